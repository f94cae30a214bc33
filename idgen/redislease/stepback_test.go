package redislease

import (
	"context"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens/tokenstest/redistest"
)

// TestLeaseWhenTheClockOfRedisStepsBack: the recorded ceiling never decreases, the holder keeps its
// number, and no other gateway gets it before the lease for that ceiling has ended.
func TestLeaseWhenTheClockOfRedisStepsBack(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{2 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.StartWithClock(t)
			s, sc := store{rdb: connect(t, server.URL()), real: server}, scheme(t, layoutA)
			settle(t, s, sc)
			o := roomy("a")
			o.TTL = 30 * time.Second
			const base = 2 * time.Hour // so that the registry is older than any step
			server.StepClock(base)
			at := func(off time.Duration) int64 { return now(sc) + (base + off).Milliseconds() }
			l, err := source(t, s.rdb, Only(idgen.Worker{}), o).Acquire(t.Context(), sc, at(0))
			if err != nil {
				t.Fatal(err)
			}
			extendAt := func(off time.Duration) int64 {
				t.Helper()
				c, err := l.Extend(t.Context(), at(off))
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			before := extendAt(0)
			rival := func(off time.Duration) error {
				o.Address = "b"
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, err := source(t, s.rdb, Only(idgen.Worker{}), o).Acquire(ctx, sc, at(off))
				return err
			}
			server.StepClock(-step)
			for range 3 {
				if c := extendAt(-step); c < before || c != ceilingOf(t, s, sc, 0) {
					t.Errorf("the ceiling is %d, recorded %d, before the step it was %d", c, ceilingOf(t, s, sc, 0), before)
				}
			}
			wantErr(t, rival(-step), ErrTaken)
			if step == time.Hour { // the holder is silent for longer than the TTL, which is less than the step
				server.StepClock(o.TTL + time.Second)
				wantErr(t, rival(o.TTL+time.Second-step), ErrTaken)
				server.StepClock(-o.TTL - time.Second)
			}
			server.StepClock(step) // it is right again
			if c := extendAt(0); c < before {
				t.Errorf("the ceiling is %d, before the step it was %d", c, before)
			}
			server.StepClock(o.TTL + 2*time.Second) // silent past its lease
			if err := rival(o.TTL + 2*time.Second); err != nil {
				t.Errorf("after the end of the lease: %v", err)
			}
		})
	}
}
