package idgen

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// leased runs f with a generator whose own clock can be set, while its ceilings follow another one.
func leased(t *testing.T, p Policy, f func(t *testing.T, g *Generator, m *memorySource, host, lease *stepClock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, host, lease := newMemorySource(Worker{Number: 9}), new(stepClock), new(stepClock)
		g := start(t, testScheme(t, LayoutDefault), m, WithClock(host), WithLeaseClock(lease), WithPolicy(p))
		f(t, g, m, host, lease)
	})
}

// A clock that is set to next year moves no ceiling, neither of a lease that is held nor of one
// that is acquired; refusals come at once and do not drive the heartbeat.
func TestCeilingsFollowTheLeaseClock(t *testing.T) {
	leased(t, Monotonic(), func(t *testing.T, g *Generator, m *memorySource, host, lease *stepClock) {
		s := g.Scheme()
		bound := func() {
			t.Helper()
			synctest.Wait() // a heartbeat may be under way
			if ahead := m.ceiling - s.Since(time.Now()); ahead > m.lead {
				t.Errorf("the ceiling is %d ms ahead of the clock of the lease, want at most %d", ahead, m.lead)
			}
		}
		mustNext(t, g)
		host.step(365 * 24 * time.Hour)
		beats := g.keeper.beats.Load()
		began := time.Now()
		for range 1000 {
			if _, err := g.Next(); !errors.Is(err, ErrCeiling) {
				t.Fatalf("Next() = %v, want ErrCeiling", err)
			}
		}
		if took, n := time.Since(began), g.keeper.beats.Load()-beats; took > 50*time.Millisecond || n > 3 {
			t.Errorf("1000 refusals took %v and %d heartbeats", took, n)
		}
		setErr(&m.extendErr, ErrLeaseLost)
		time.Sleep(5 * time.Second) // it is lost and acquired anew, while the clock is off
		setErr(&m.extendErr, nil)
		time.Sleep(5 * time.Second)
		bound()
		host.step(-365 * 24 * time.Hour)
		if off := time.Until(s.Time(mustNext(t, g))); off.Abs() > 10*time.Millisecond {
			t.Errorf("stamps are %v off when the clock is right again", off)
		}
		bound()
	})
}

// A generator that rides while the clock that ceilings follow is behind as well has only what is
// left beneath its ceiling, and makes it last.
func TestRideLastsBeneathTheCeiling(t *testing.T) {
	for _, step := range []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Minute, time.Hour} {
		leased(t, Monotonic(), func(t *testing.T, g *Generator, m *memorySource, host, lease *stepClock) {
			time.Sleep(900 * time.Millisecond)
			last := mustNext(t, g)
			ceiling := m.ceiling
			host.step(-step)
			lease.step(-step)
			for passed := time.Duration(0); passed < step+10*time.Second; passed += 20 * time.Millisecond {
				for range 10 {
					id := mustNext(t, g)
					if id <= last {
						t.Fatalf("%v: id %d after %d", step, id, last)
					}
					last = id
				}
				time.Sleep(20 * time.Millisecond)
			}
			if f, _ := LayoutDefault.Unpack(last); f.Time <= ceiling {
				t.Errorf("%v: the last stamp is %d, want it beyond the ceiling of before, %d", step, f.Time, ceiling)
			}
			if h := g.Health(); h.Errors != 0 || h.Rollbacks != 1 || h.ClockOffset > step/2 {
				t.Errorf("%v: Health = %+v, want one rollback, no error, and the clock nearly caught up", step, h)
			}
		})
	}
}

// The rates that a ride allows while the clock that ceilings follow is behind: 100 000 ids a second
// for a minute, 1500 for an hour.
func TestRideLeavesRoom(t *testing.T) {
	for step, perMS := range map[time.Duration]float64{time.Minute: 100, time.Hour: 1.5} {
		leased(t, Monotonic(), func(t *testing.T, g *Generator, _ *memorySource, host, lease *stepClock) {
			time.Sleep(900 * time.Millisecond)
			mustNext(t, g)
			host.step(-step)
			lease.step(-step)
			mustNext(t, g)
			before, wanted := g.Health().CeilingDistance, 0.0
			for range 6000 {
				for wanted += perMS; wanted >= 1; wanted-- {
					mustNext(t, g)
				}
				time.Sleep(time.Millisecond)
			}
			share := float64(6*time.Second) / float64(step)
			if used := before - g.Health().CeilingDistance; used > time.Duration(1.1*share*float64(before))+10*time.Millisecond {
				t.Errorf("%v: %v of %v are used after 6 s", step, used, before)
			}
		})
	}
}
