package redislease

import (
	"context"
	"testing"
	"time"

	"snowgate/idgen"
)

// newTerm makes Redis begin a new term with all its data at the given time, and waits for the end
// of the quarantine. It returns the time after that.
func newTerm(t *testing.T, s store, sc idgen.Scheme, at time.Time) time.Time {
	t.Helper()
	s.mini.SetTime(at)
	s.mini.HDel("{sg}:w", "meta")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	o := quick("prober")
	_, err := source(t, s.rdb, Any(), o).Acquire(ctx, sc, sc.Since(at))
	wantErr(t, err, ErrQuarantine)
	at = at.Add(o.Lead + o.Skew + time.Millisecond)
	s.mini.SetTime(at)
	return at
}

// inTerm is a store whose number 0 is leased at address a for a minute, and that
// has begun a new term since.
func inTerm(t *testing.T) (s store, l *lease, at, ends time.Time) {
	t.Helper()
	s = miniStore(t)
	sc := scheme(t, layoutA)
	settle(t, s, sc)
	start := time.Now().Truncate(time.Millisecond)
	s.mini.SetTime(start)
	l = acquire(t, source(t, s.rdb, Any(), quick("a")), sc).(*lease)
	return s, l, newTerm(t, s, sc, start.Add(5*time.Second)), start.Add(time.Minute)
}

// A lease stays in force after a loss of data that did not affect it. The holder may be silent and
// come back, and Redis may return to the record of the holder once more. So no other gateway gets
// the number until the lease has ended.
func TestLeaseOutlivesATerm(t *testing.T) {
	s, l, at, _ := inTerm(t)
	only := Only(l.Worker())
	_, err := source(t, s.rdb, only, quick("b")).Acquire(t.Context(), l.scheme, l.scheme.Since(at))
	wantErr(t, err, ErrTaken)
	other, err := source(t, s.rdb, Any(), quick("b")).Acquire(t.Context(), l.scheme, l.scheme.Since(at))
	if err != nil || other.Worker() == l.Worker() {
		t.Errorf("a newcomer got %v, %v", other, err)
	}
	if _, err := l.Extend(t.Context(), l.scheme.Since(at)); err != nil {
		t.Errorf("the holder did not get its number back: %v", err)
	}

	s, l, _, ends := inTerm(t)
	s.mini.SetTime(ends.Add(time.Millisecond))
	next, err := source(t, s.rdb, only, quick("b")).Acquire(t.Context(), l.scheme, l.scheme.Since(ends))
	if err != nil || next.Floor() <= l.Ceiling() {
		t.Errorf("after the end of the lease: %v, %v", next, err)
	}
}

// A gateway at the address that holds the lease need not wait for its end: neither after a restart,
// nor when the nonces of the holder were lost.
func TestSameAddressInANewTerm(t *testing.T) {
	for _, started := range []bool{false, true} {
		s, l, at, _ := inTerm(t)
		src := source(t, s.rdb, Only(l.Worker()), quick("a"))
		src.started = started
		next, err := src.Acquire(t.Context(), l.scheme, l.scheme.Since(at))
		if err != nil {
			t.Fatalf("started before: %t: %v", started, err)
		}
		if base := l.scheme.Since(at) - 1; next.Floor() <= base {
			t.Errorf("floor %d, not above the base of the term, %d", next.Floor(), base)
		}
		if _, err := l.Extend(t.Context(), l.scheme.Since(at)); err == nil {
			t.Error("the earlier holder could extend beside its successor")
		}
	}
}
