package redislease

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/idgen"
)

func TestExtendRaisesTheCeilingBeforeItIsUsed(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc, o := scheme(t, layoutA), quick("a")
		settle(t, s, sc)
		src := source(t, s.rdb, Any(), o)
		l := acquire(t, src, sc)
		for range 3 {
			old := l.Ceiling()
			eventually(t, "the next millisecond", newMillisecond())
			before := now(sc)
			ceiling := extend(t, l, sc)
			if ceiling != l.Ceiling() || ceiling <= old || ceiling < before+300-1 || ceiling > now(sc)+300 {
				t.Fatalf("Extend() = %d, before %d, want 300 ms after the present, %d", ceiling, old, before)
			}
		}
		st := src.State()
		if !st.Held || st.Worker != 0 || st.Owner == "" || st.Ceiling.UnixMilli() != sc.At(l.Ceiling()).UnixMilli() ||
			time.Since(st.Heartbeat) > time.Minute || st.Errors != 0 {
			t.Errorf("State() = %+v", st)
		}
	})
}

// A holder whose id time stands still, because its clock is not trusted, gets no
// ceiling far beyond it: a Redis clock that is ahead for a while leaves no trace.
func TestCeilingDoesNotFollowAJumpOfRedis(t *testing.T) {
	s := miniStore(t)
	sc, o := scheme(t, layoutA), quick("a")
	settle(t, s, sc)
	l := acquire(t, source(t, s.rdb, Any(), o), sc)
	s.mini.SetTime(time.Now().Add(time.Hour))
	stood := now(sc)
	ceiling, err := l.Extend(t.Context(), stood)
	if err != nil {
		t.Fatal(err)
	}
	if want := stood + (slack + o.Lead).Milliseconds(); ceiling > want {
		t.Errorf("Extend() = %d ms ahead, want %d at most", ceiling-stood, want-stood)
	}
}

func TestLostReplies(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc, o := scheme(t, layoutA), quick("a")
		settle(t, s, sc)
		w := wiretap(s.rdb)
		src := source(t, s.rdb, Any(), o)
		src.started = true // so that it is the nonce that counts, not the address

		w.lose.Store(2)
		for range 2 {
			_, err := src.Acquire(t.Context(), sc, now(sc))
			wantErr(t, err, errLost)
		}
		l := acquire(t, src, sc)
		if n := l.Worker().Number; n != 0 {
			t.Errorf("Acquire after lost replies = worker %d, want 0, which the lost ones got", n)
		}
		floor := l.Floor()
		for range 3 {
			w.lose.Store(2)
			for range 2 {
				old := l.Ceiling()
				_, err := l.Extend(t.Context(), now(sc))
				wantErr(t, err, errLost)
				if l.Ceiling() != old {
					t.Errorf("the ceiling was raised by a reply that never came")
				}
			}
			extend(t, l, sc)
		}
		w.lose.Store(1)
		wantErr(t, l.Release(t.Context(), floor+5), errLost)
		if err := l.Release(t.Context(), floor+5); err != nil {
			t.Errorf("Release repeated after a lost reply: %v", err)
		}
	})
}

func TestReleaseLeavesTheFinalMark(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc, o := scheme(t, layoutA), quick("a")
		settle(t, s, sc)
		src := source(t, s.rdb, Any(), o)
		l := acquire(t, src, sc)
		last := now(sc) - 1
		if err := l.Release(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if src.State().Held {
			t.Error("State().Held after Release")
		}
		next := acquire(t, source(t, s.rdb, Only(l.Worker()), quick("b")), sc)
		if next.Floor() != last+1 {
			t.Errorf("floor after release at %d = %d, want the next millisecond", last, next.Floor())
		}
		wantErr(t, l.Release(t.Context(), last+1000), idgen.ErrLeaseLost) // not the owner any more
		if _, err := l.Extend(t.Context(), now(sc)); err == nil {
			t.Error("Extend after Release succeeded")
		}
		extend(t, next, sc)
	})
}

// Two clones of a gateway exist after a snapshot of a machine was restored. The second one that
// renews its lease fails, because the first one has changed the nonce.
func TestCloneIsFoundOut(t *testing.T) {
	s := miniStore(t)
	sc, o := scheme(t, layoutA), quick("a")
	settle(t, s, sc)
	l := acquire(t, source(t, s.rdb, Any(), o), sc).(*lease)
	clone := *l
	extend(t, l, sc)
	_, err := clone.Extend(t.Context(), now(sc))
	wantErr(t, err, idgen.ErrLeaseLost)
	extend(t, l, sc)
}

func TestSuccessorStartsAboveTheCeiling(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc, o := scheme(t, layoutA), quick("a")
		settle(t, s, sc)
		zombie := acquire(t, source(t, s.rdb, Any(), o), sc)
		expire(t, s, "0")
		began := time.Now()
		next := acquire(t, source(t, s.rdb, Only(zombie.Worker()), quick("b")), sc)
		if next.Floor() != zombie.Ceiling()+1 || now(sc) < next.Floor() {
			t.Errorf("floor %d at %d, want the ceiling + 1 = %d, in the past (waited %v)",
				next.Floor(), now(sc), zombie.Ceiling()+1, time.Since(began))
		}
		_, err := zombie.Extend(t.Context(), now(sc))
		wantErr(t, err, idgen.ErrLeaseLost)
		if zombie.Ceiling() >= next.Floor() {
			t.Errorf("the zombie's ceiling rose to %d", zombie.Ceiling())
		}
	})
}

// expire ends a lease early.
func expire(t *testing.T, s store, number string) {
	t.Helper()
	if err := s.rdb.ZRem(t.Context(), "{sg}:wl", number).Err(); err != nil {
		t.Fatal(err)
	}
}

// forgetting lists the ways in which Redis can lose data.
var forgetting = []struct {
	name   string
	mini   bool // miniredis can, too
	forget func(t *testing.T, s store)
}{
	{"wiped", true, func(t *testing.T, s store) {
		if err := s.rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}},
	{"other replication id", false, func(t *testing.T, s store) {
		s.real.Do("DEBUG", "CHANGE-REPL-ID")
	}},
}

func onForgetting(t *testing.T, test func(t *testing.T, s store, forget func())) {
	t.Parallel()
	for _, f := range forgetting {
		t.Run(f.name, func(t *testing.T) {
			t.Run("redis", func(t *testing.T) {
				s := realStore(t, "--enable-debug-command", "yes")
				test(t, s, func() { t.Helper(); f.forget(t, s) })
			})
			if !f.mini {
				return
			}
			t.Run("miniredis", func(t *testing.T) {
				s := miniStore(t)
				test(t, s, func() { t.Helper(); f.forget(t, s) })
			})
		})
	}
}

func TestLivingHoldersReclaimAndNewcomersWait(t *testing.T) {
	onForgetting(t, func(t *testing.T, s store, forget func()) {
		sc, o := scheme(t, layoutA), roomy("a")
		settle(t, s, sc)
		var log events
		o.OnEvent = log.add
		living := source(t, s.rdb, Any(), o)
		l := acquire(t, living, sc)
		old := l.Ceiling()
		forget()

		newcomer := source(t, s.rdb, Only(l.Worker()), roomy("b")) // wants the same number
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := newcomer.Acquire(ctx, sc, now(sc))
		wantErr(t, err, idgen.ErrNoWorker, ErrQuarantine, context.DeadlineExceeded)
		if q := newcomer.State().Quarantine; q <= 0 || q > 1100*time.Millisecond {
			t.Errorf("State().Quarantine = %v, want up to Lead + Skew", q)
		}
		if ceiling := extend(t, l, sc); ceiling <= old {
			t.Errorf("re-claim: ceiling %d, was %d", ceiling, old)
		}
		if _, ok := log.find(EventReclaimed); !ok || living.State().Reclaims != 1 {
			t.Errorf("no re-claim is reported: %+v", living.State())
		}
		_, err = newcomer.Acquire(t.Context(), sc, now(sc))
		wantErr(t, err, ErrTaken)
		extend(t, l, sc)
		other := acquire(t, source(t, s.rdb, Any(), roomy("b")), sc)
		if other.Worker() == l.Worker() {
			t.Errorf("a newcomer got the re-claimed number %v", other.Worker())
		}
	})
}

func TestDeadHoldersDoNotReclaim(t *testing.T) {
	onForgetting(t, func(t *testing.T, s store, forget func()) {
		sc, o := scheme(t, layoutA), quick("a")
		o.TTL = 500 * time.Millisecond
		settle(t, s, sc)
		l := acquire(t, source(t, s.rdb, Any(), o), sc)
		ended := l.Ceiling() + (o.TTL - o.Lead).Milliseconds()
		eventually(t, "ceiling and lease have passed", func() bool { return now(sc) > ended })
		forget()
		_, err := l.Extend(t.Context(), now(sc))
		wantErr(t, err, idgen.ErrLeaseLost)
		next := acquire(t, source(t, s.rdb, Only(l.Worker()), quick("b")), sc)
		if next.Floor() <= l.Ceiling() {
			t.Errorf("floor %d, but the old ceiling is %d", next.Floor(), l.Ceiling())
		}
	})
}

// A Redis that was restarted with its data still knows the holder, even if it was away until the
// ceiling had passed.
func TestHolderWhoseRecordSurvivedGoesOn(t *testing.T) {
	s := realStore(t, "--enable-debug-command", "yes")
	sc, o := scheme(t, layoutA), quick("a")
	settle(t, s, sc)
	l := acquire(t, source(t, s.rdb, Any(), o), sc)
	extend(t, l, sc)
	old := l.Ceiling()
	eventually(t, "the ceiling has passed", func() bool { return now(sc) > old })
	s.real.Do("DEBUG", "CHANGE-REPL-ID")
	if ceiling := extend(t, l, sc); ceiling <= now(sc) {
		t.Errorf("ceiling %d at %d: nothing can be issued", ceiling, now(sc))
	}
	_, err := source(t, s.rdb, Only(l.Worker()), quick("b")).Acquire(t.Context(), sc, now(sc))
	wantErr(t, err, ErrTaken)
}

// A Redis that was restarted with older data may have lost the lease of the next holder. The nonce
// shows that.
func TestHolderWhoseRecordWasRolledBackWaits(t *testing.T) {
	s := realStore(t, "--enable-debug-command", "yes")
	sc, o := scheme(t, layoutA), quick("a")
	settle(t, s, sc)
	l := acquire(t, source(t, s.rdb, Any(), o), sc)
	number := fmt.Sprint(l.Worker().Number)
	before, err := s.rdb.HGet(t.Context(), "{sg}:w", number).Result()
	if err != nil {
		t.Fatal(err)
	}
	extend(t, l, sc)
	extend(t, l, sc) // the last nonce but one is still accepted, for lost replies
	eventually(t, "the ceiling has passed", func() bool { return now(sc) > l.Ceiling() })
	if err := s.rdb.HSet(t.Context(), "{sg}:w", number, before).Err(); err != nil {
		t.Fatal(err)
	}
	s.real.Do("DEBUG", "CHANGE-REPL-ID")
	_, err = l.Extend(t.Context(), now(sc))
	wantErr(t, err, idgen.ErrLeaseLost)
}

// returning prepares a holder of number 0 whose recorded lease ends at the returned time, and a
// Redis that still has the record but has begun a new term.
func returning(t *testing.T, o Options) (s store, l *lease, ends time.Time) {
	t.Helper()
	s = miniStore(t)
	sc := scheme(t, layoutA)
	settle(t, s, sc)
	start := time.Now().Truncate(time.Millisecond)
	s.mini.SetTime(start)
	l = acquire(t, source(t, s.rdb, Any(), o), sc).(*lease)
	s.mini.HDel("{sg}:w", "meta")
	return s, l, start.Add(o.TTL)
}

// Redis may be another node now, and either clock may differ by the skew, so a holder does not
// return shortly before the end of its lease.
func TestHolderReturnsOnlyBeforeItsLeaseCanHaveEnded(t *testing.T) {
	o := quick("a")
	for _, c := range []struct {
		name    string
		left    time.Duration
		returns bool
	}{
		{"in time", 2*o.Skew + time.Millisecond, true},
		{"two skews before its end", 2 * o.Skew, false},
		{"after its end", -time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := quick("a")
			o.TTL = time.Minute
			s, l, ends := returning(t, o)
			s.mini.SetTime(ends.Add(-c.left))
			_, err := l.Extend(t.Context(), l.scheme.Since(ends))
			if !c.returns {
				wantErr(t, err, idgen.ErrLeaseLost)
			} else if err != nil {
				t.Errorf("Extend: %v", err)
			}
		})
	}
}

// After a lost reply the same nonce is sent again, so two states of the record may have it. If
// Redis returns to the earlier state, the ceiling must not go back.
func TestReturningHolderBringsItsCeiling(t *testing.T) {
	o := quick("a")
	o.TTL = time.Minute
	s, l, ends := returning(t, o)
	l.ceiling += 1000
	s.mini.SetTime(ends.Add(-o.TTL))
	extend(t, l, l.scheme)
	if recorded := ceilingIn(t, s); recorded < l.ceiling {
		t.Errorf("the recorded ceiling is %d, the holder's %d", recorded, l.ceiling)
	}
}

// ceilingIn reads the recorded ceiling of number 0, in Unix milliseconds.
func ceilingIn(t *testing.T, s store) (ceiling int64) {
	t.Helper()
	var nonce string
	var floor int64
	if _, err := fmt.Sscan(s.mini.HGet("{sg}:w", "0"), &nonce, &floor, &ceiling); err != nil {
		t.Fatal(err)
	}
	return ceiling
}

// A record of another holder never permits a return, whatever its lease.
func TestHolderDoesNotReturnToAnothersRecord(t *testing.T) {
	o := quick("a")
	o.TTL = time.Minute
	s, l, ends := returning(t, o)
	l.nonce = newNonce()
	s.mini.SetTime(ends.Add(o.Lead - o.TTL)) // its ceiling has passed, but for the skew
	_, err := l.Extend(t.Context(), l.scheme.Since(ends))
	wantErr(t, err, idgen.ErrLeaseLost)
}

// The case that docs/model found: a gateway is replaced at its address, Redis loses all data, and
// both gateways reclaim the number. Only one of them may have a ceiling in the future.
func TestReplacedHolderCannotReclaimBesideItsSuccessor(t *testing.T) {
	onForgetting(t, func(t *testing.T, s store, forget func()) {
		sc, o := scheme(t, layoutA), roomy("a")
		settle(t, s, sc)
		old := acquire(t, source(t, s.rdb, Any(), o), sc)
		successor := acquire(t, source(t, s.rdb, Any(), o), sc)
		forget()
		_, err := old.Extend(t.Context(), now(sc))
		wantErr(t, err, idgen.ErrLeaseLost)
		extend(t, successor, sc)
		if old.Ceiling() >= successor.Floor() {
			t.Errorf("ceiling %d of the old, floor %d of its successor", old.Ceiling(), successor.Floor())
		}
	})
}

func TestRegistryNumbersAreWrittenBack(t *testing.T) {
	s := miniStore(t)
	sc, o := scheme(t, layoutA), roomy("10.0.0.1")
	settle(t, s, sc)
	acquire(t, source(t, s.rdb, Registered(), roomy("10.0.0.0")), sc)
	l := acquire(t, source(t, s.rdb, Registered(), o), sc)
	s.mini.FlushAll()
	extend(t, l, sc)
	next := acquire(t, source(t, s.rdb, Registered(), roomy("10.0.0.3")), sc)
	if l.Worker().Number != 2 || next.Worker().Number != 3 {
		t.Errorf("numbers %d and %d, want 2, re-claimed, and 3, because the counter was written back",
			l.Worker().Number, next.Worker().Number)
	}
	kept, err := s.rdb.HGetAll(t.Context(), "{sg}:wr").Result()
	if diff := cmp.Diff(map[string]string{"10.0.0.1": "2", "10.0.0.3": "3"}, kept); err != nil || diff != "" {
		t.Errorf("{sg}:wr: %v, (-want +got)\n%s", err, diff)
	}
}

func TestSkipQuarantine(t *testing.T) {
	s := miniStore(t)
	sc, o := scheme(t, layoutA), quick("a")
	o.Lead, o.Skew, o.SkipQuarantine = 30*time.Second, 10*time.Second, true
	w := wiretap(s.rdb)
	l := acquire(t, source(t, s.rdb, Any(), o), sc)
	if got := w.trips.Load(); got > 4 { // both forms of the script, EVALSHA and EVAL
		t.Errorf("took %d round trips: it waited", got)
	}
	extend(t, l, sc)
}

func TestFullRedis(t *testing.T) {
	s := realStore(t)
	sc, o := scheme(t, layoutA), quick("a")
	settle(t, s, sc)
	s.real.Do("CONFIG", "SET", "maxmemory", "1")
	if err := s.rdb.Set(t.Context(), "x", "y", 0).Err(); err == nil {
		t.Fatal("Redis is not full")
	}
	l := acquire(t, source(t, s.rdb, Any(), o), sc)
	extend(t, l, sc)
	if err := l.Release(t.Context(), now(sc)); err != nil {
		t.Error(err)
	}
}

func TestScriptsAreSentAgainWhenRedisForgotThem(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		sc, o := scheme(t, layoutA), quick("a")
		settle(t, s, sc)
		l := acquire(t, source(t, s.rdb, Any(), o), sc)
		for range 2 {
			if err := s.rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			extend(t, l, sc)
		}
	})
}

func TestReadOnlyRedisIsNamed(t *testing.T) {
	s := realStore(t)
	sc, o := scheme(t, layoutA), quick("a")
	settle(t, s, sc)
	l := acquire(t, source(t, s.rdb, Any(), o), sc)
	s.real.Do("REPLICAOF", "127.0.0.1", "1")
	_, err := l.Extend(t.Context(), now(sc))
	if err == nil || !contains(err, "READONLY") && !contains(err, "read only") && !contains(err, "MASTERDOWN") {
		t.Errorf("Extend on a replica: %v", err)
	}
	s.real.Do("REPLICAOF", "NO", "ONE")
	extend(t, l, sc)
}

func TestContextIsHonoured(t *testing.T) {
	s := realStore(t)
	sc, o := scheme(t, layoutA), quick("a")
	settle(t, s, sc)
	l := acquire(t, source(t, s.rdb, Any(), o), sc)
	s.real.Freeze()
	defer s.real.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := l.Extend(ctx, now(sc)); err == nil {
		t.Error("a frozen Redis answered")
	}
	if took := time.Since(start); took > 700*time.Millisecond {
		t.Errorf("Extend took %v with 50 ms allowed", took)
	}
}
