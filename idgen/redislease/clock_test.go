package redislease

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
)

var _ idgen.Referenced = (*Clock)(nil)

// reference is a Redis whose clock may differ from that of the host by any amount.
type reference struct {
	off  atomic.Int64     // nanoseconds
	trip [2]time.Duration // there and back
	err  error
}

// step sets the clock forward, or back.
func (r *reference) step(by time.Duration) { r.off.Add(int64(by)) }

func (r *reference) now() time.Time { return time.Now().Add(time.Duration(r.off.Load())) }

func (r *reference) answer(_ context.Context, cmd redis.Cmder) error {
	<-time.After(r.trip[0])
	if r.err != nil {
		cmd.SetErr(r.err)
		return r.err
	}
	n := r.now()
	<-time.After(r.trip[1])
	cmd.(*redis.Cmd).SetVal([]any{strconv.FormatInt(n.Unix(), 10), strconv.Itoa(n.Nanosecond() / 1000)})
	return nil
}

// onClock runs a test in virtual time, with a clock that follows a reference.
func onClock(t *testing.T, test func(t *testing.T, c *Clock, r *reference)) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer rdb.Close()
		r := &reference{trip: [2]time.Duration{time.Millisecond, time.Millisecond}}
		r.step(-5 * time.Hour)
		wiretap(rdb).fake = r.answer
		c := NewClock(rdb, "")
		if _, err := c.Now(); !errors.Is(err, idgen.ErrClock) {
			t.Errorf("Now() before the first reading: %v, want ErrClock", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		pass(t, c, 100*time.Millisecond)
		test(t, c, r)
		cancel()
		<-done
	})
}

// watch advances the time by d and checks every millisecond that the clock does not go back. It
// returns how long Now failed, and its last error.
func watch(t *testing.T, c *Clock, d time.Duration) (failed time.Duration, last error) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	before := c.Time()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		now := c.Time()
		if now.Before(before) && c.State().Readings > 1 {
			t.Fatalf("the clock went back by %v", before.Sub(now))
		}
		before = now
		if _, err := c.Now(); err != nil {
			failed, last = failed+time.Millisecond, err
		}
	}
	return failed, last
}

// pass is watch without the results.
func pass(t *testing.T, c *Clock, d time.Duration) {
	t.Helper()
	_, _ = watch(t, c, d)
}

func wantOffset(t *testing.T, c *Clock, r *reference, bound time.Duration) {
	t.Helper()
	if off := c.Time().Sub(r.now()); off.Abs() > bound {
		t.Errorf("the clock is %v ahead of the reference, want ±%v", off, bound)
	}
}

func TestClockFollowsTheReferenceNotTheHost(t *testing.T) {
	onClock(t, func(t *testing.T, c *Clock, r *reference) {
		wantOffset(t, c, r, time.Millisecond)
		r.trip = [2]time.Duration{30 * time.Millisecond, 10 * time.Millisecond}
		if failed, err := watch(t, c, 10*time.Second); failed != 0 {
			t.Errorf("Now() failed for %v: %v", failed, err)
		}
		wantOffset(t, c, r, 20*time.Millisecond) // half of the round trip
		n, err := c.Now()
		if err != nil || n != c.Time().UnixMilli() {
			t.Errorf("Now() = %d, %v; Time() = %d", n, err, c.Time().UnixMilli())
		}
	})
}

func TestSmallStepsOfTheReferenceAreSlewed(t *testing.T) {
	for _, step := range []time.Duration{-200 * time.Millisecond, -3 * time.Millisecond, 3 * time.Millisecond, 200 * time.Millisecond} {
		onClock(t, func(t *testing.T, c *Clock, r *reference) {
			r.step(step)
			if failed, err := watch(t, c, 3*time.Second); failed != 0 {
				t.Errorf("step %v: Now() failed for %v: %v", step, failed, err)
			}
			wantOffset(t, c, r, time.Millisecond)
		})
	}
}

// wantNow checks how far Now is ahead of the reference.
func wantNow(t *testing.T, c *Clock, r *reference, want time.Duration) {
	t.Helper()
	n, err := c.Now()
	if ahead := time.UnixMilli(n).Sub(r.now()); err != nil || (ahead-want).Abs() > 10*time.Millisecond {
		t.Errorf("Now() is %v ahead of the reference, %v, want %v", ahead, err, want)
	}
}

// A step back shows in Now, which does not fail meanwhile, but not in Time, which waits for the
// reference.
func TestStepBackIsShownWhenItStays(t *testing.T) {
	for _, step := range []time.Duration{time.Second, 3 * time.Second, time.Hour} {
		onClock(t, func(t *testing.T, c *Clock, r *reference) {
			r.step(-step)
			if failed, err := watch(t, c, 850*time.Millisecond); failed != 0 { // the next reading is due
				t.Errorf("step %v: Now() failed for %v: %v", step, failed, err)
			}
			wantNow(t, c, r, step)
			if failed, err := watch(t, c, 700*time.Millisecond); failed != 0 {
				t.Errorf("step %v: Now() failed for %v: %v", step, failed, err)
			}
			wantNow(t, c, r, 0)
			if off := c.Time().Sub(r.now()); off < step-800*time.Millisecond || off > step {
				t.Errorf("step %v: Time() is %v ahead of the reference", step, off)
			}
			if failed, err := watch(t, c, min(step, 10*time.Second)); failed != 0 {
				t.Errorf("step %v: Now() failed for %v: %v", step, failed, err)
			}
			wantNow(t, c, r, 0)
			if step < 10*time.Second {
				pass(t, c, 2*time.Second)
				wantOffset(t, c, r, 10*time.Millisecond)
			}
		})
	}
}

// One wrong reading, or four, have no lasting effect: the clock stands still for less than half a
// second.
func TestStepBackThatIsTakenBackIsNotShown(t *testing.T) {
	for _, wrong := range []int{1, 4} {
		onClock(t, func(t *testing.T, c *Clock, r *reference) {
			before, _ := c.Now()
			step := func() {
				t.Helper()
				<-time.After(time.Millisecond)
				n, err := c.Now()
				if n < before || err != nil {
					t.Fatalf("%d wrong: Now() = %d after %d, %v", wrong, n, before, err)
				}
				before = n
			}
			r.step(-time.Hour)
			for from := c.State().Readings; c.State().Readings < from+int64(wrong); {
				step()
			}
			r.step(time.Hour)
			for range 3000 {
				step()
			}
			wantNow(t, c, r, 0)
			wantOffset(t, c, r, time.Millisecond)
		})
	}
}

func TestReferenceFarAheadIsBelievedWhenItStays(t *testing.T) {
	onClock(t, func(t *testing.T, c *Clock, r *reference) {
		r.step(time.Hour)
		failed, err := watch(t, c, 10*time.Second)
		wantErr(t, err, idgen.ErrClock)
		if failed < 3900*time.Millisecond || failed > 7*time.Second {
			t.Errorf("Now() failed for %v, want five readings", failed)
		}
		wantOffset(t, c, r, time.Millisecond)
	})
}

func TestReferenceThatJumpsAndReturnsLeavesNoTrace(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		onClock(t, func(t *testing.T, c *Clock, r *reference) {
			r.step(step)
			pass(t, c, 3*time.Second)
			r.step(-step)
			if failed, err := watch(t, c, 6*time.Second); failed > time.Second {
				t.Errorf("step %v and back: Now() failed for %v: %v", step, failed, err)
			}
			wantNow(t, c, r, 0)
			wantOffset(t, c, r, time.Millisecond)
		})
	}
}

func TestClockWithoutReadings(t *testing.T) {
	onClock(t, func(t *testing.T, c *Clock, r *reference) {
		r.err = errors.New("no Redis")
		if failed, err := watch(t, c, 590*time.Second); failed != 0 {
			t.Errorf("Now() failed for %v: %v", failed, err)
		}
		wantOffset(t, c, r, time.Millisecond) // a perfect host
		if _, err := watch(t, c, 20*time.Second); !errors.Is(err, idgen.ErrClock) {
			t.Errorf("Now() after ten minutes: %v, want ErrClock", err)
		}
		if st := c.State(); st.Errors < 600 || !errors.Is(st.LastError, r.err) {
			t.Errorf("State() = %+v, want every failure", st)
		}
		r.err = nil
		pass(t, c, 1100*time.Millisecond)
		if _, err := c.Now(); err != nil {
			t.Errorf("Now() when Redis is back: %v", err)
		}
	})
}

func TestSlowReadingsAreNotUsed(t *testing.T) {
	onClock(t, func(t *testing.T, c *Clock, r *reference) {
		r.trip = [2]time.Duration{0, 800 * time.Millisecond}
		r.step(100 * time.Millisecond)
		readings := c.State().Readings
		pass(t, c, 5*time.Second)
		if st := c.State(); st.Readings > readings+1 || st.LastError == nil {
			t.Errorf("State() = %+v, want no further reading", st)
		}
	})
}

func TestClockOnRedis(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		c := NewClock(s.rdb, "")
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, err := c.Now()
		if off := n - time.Now().UnixMilli(); err != nil || off < -50 || off > 50 {
			t.Errorf("Now() = %d ms off, %v; Redis runs on this host", off, err)
		}
		if c.State().Synced.IsZero() || c.Offset().Abs() > 50*time.Millisecond {
			t.Errorf("State() = %+v", c.State())
		}
	})
}

func TestUnsyncedClockNamesTheCause(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	cause := errors.New("no Redis")
	wiretap(rdb).fake = (&reference{err: cause}).answer
	c := NewClock(rdb, "")
	wantErr(t, c.Sync(t.Context()), cause)
	_, err := c.Now()
	wantErr(t, err, idgen.ErrClock, cause)
}

func BenchmarkClockNow(b *testing.B) {
	c := NewClock(miniStore(b).rdb, "")
	if err := c.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		_, _ = c.Now()
	}
}
