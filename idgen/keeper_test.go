package idgen

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs f with a generator on a memory source and a clock that can be set.
func bubble(t *testing.T, f func(t *testing.T, g *Generator, m *memorySource, c *stepClock), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, c := newMemorySource(Worker{Number: 9}), new(stepClock)
		g := start(t, testScheme(t, LayoutDefault), m, append([]Option{WithClock(c)}, opts...)...)
		f(t, g, m, c)
	})
}

func setErr(p interface{ Store(*error) }, err error) {
	if err == nil {
		p.Store(nil)
		return
	}
	p.Store(&err)
}

func TestHeartbeatExtendsTheCeiling(t *testing.T) {
	bubble(t, func(t *testing.T, g *Generator, m *memorySource, _ *stepClock) {
		for range 100 {
			time.Sleep(777 * time.Millisecond)
			mustNext(t, g)
		}
		h := g.Health()
		if !h.Healthy || time.Since(h.Heartbeat) > time.Second || h.CeilingDistance < 2*time.Second {
			t.Errorf("Health = %+v, want healthy, a fresh heartbeat and 2s to the ceiling", h)
		}
		if h.Generated != 100 || h.Errors != 0 || h.Worker.Number != 9 || !h.Held {
			t.Errorf("Health = %+v, want 100 ids, no errors, worker 9 held", h)
		}
	})
}

// Nothing is issued above the ceiling, however long the holder was away, and issuing goes on once
// the ceiling can be extended.
func TestCeilingIsAFence(t *testing.T) {
	bubble(t, func(t *testing.T, g *Generator, m *memorySource, _ *stepClock) {
		s := g.Scheme()
		setErr(&m.extendErr, errors.New("registry away"))
		ceiling := s.At(m.ceiling)
		for time.Now().Before(ceiling.Add(2 * time.Second)) {
			id, err := g.Next()
			switch {
			case err == nil && s.Time(id).After(ceiling):
				t.Fatalf("stamp %v is above the ceiling %v", s.Time(id), ceiling)
			case err == nil && time.Now().After(ceiling.Add(time.Millisecond)):
				t.Fatalf("an id was issued at %v, the ceiling is %v", time.Now(), ceiling)
			case err != nil && !errors.Is(err, ErrCeiling):
				t.Fatal(err)
			case err != nil && !time.Now().After(ceiling):
				t.Fatalf("refused below the ceiling: %v", err)
			}
			time.Sleep(100 * time.Microsecond)
		}
		if h := g.Health(); h.Healthy || !errors.Is(h.Err, ErrCeiling) || h.Errors == 0 {
			t.Errorf("Health = %+v, want ErrCeiling", h)
		}
		setErr(&m.extendErr, nil)
		time.Sleep(1100 * time.Millisecond)
		mustNext(t, g)
	})
}

// The same at high rates: published tickets stop at the ceiling too.
func TestCeilingFencesPublishedTickets(t *testing.T) {
	for _, perMS := range []int{600, 2000, 10_000} {
		bubble(t, func(t *testing.T, g *Generator, m *memorySource, _ *stepClock) {
			s := g.Scheme()
			setErr(&m.extendErr, errors.New("registry away"))
			ceiling := s.At(m.ceiling)
			time.Sleep(time.Until(ceiling) - 100*time.Millisecond)
			for refused := false; !refused; time.Sleep(time.Millisecond) {
				for range perMS {
					id, err := g.Next()
					if refused = errors.Is(err, ErrCeiling); refused {
						break
					}
					if err != nil || s.Time(id).After(ceiling) {
						t.Fatalf("%d per ms: stamp %v, %v; the ceiling is %v", perMS, s.Time(id), err, ceiling)
					}
				}
			}
		})
	}
}

// A clock that jumps over the ceiling costs a short wait, not an error.
func TestForwardStepIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, g *Generator, _ *memorySource, c *stepClock) {
		mustNext(t, g)
		c.step(8 * time.Hour)
		began := time.Now()
		id := mustNext(t, g)
		if took := time.Since(began); took > 2*time.Millisecond {
			t.Errorf("Next took %v, want at most 2ms", took)
		}
		if off := g.Scheme().Time(id).Sub(began.Add(8 * time.Hour)); off < 0 || off > 2*time.Millisecond {
			t.Errorf("stamp is %v off the clock", off)
		}
	})
}

// A registry with a clock of its own lets no ceiling follow such a jump. Nothing is issued while it
// lasts; after it, ids are issued at once and at true times.
func TestForwardStepThatTheCeilingDoesNotFollow(t *testing.T) {
	for _, perMS := range []int{1, 600, 5000} {
		bubble(t, func(t *testing.T, g *Generator, m *memorySource, c *stepClock) {
			s := g.Scheme()
			m.latest = func() int64 { return s.Since(time.Now()) }
			issue := func(until func(ID, error) bool) {
				for {
					for range perMS {
						if id, err := g.Next(); until(id, err) {
							return
						}
					}
					time.Sleep(time.Millisecond)
				}
			}
			enough := 0
			right := func(id ID, err error) bool {
				if off := time.Until(s.Time(id)); err != nil || off.Abs() > 15*time.Millisecond {
					t.Fatalf("%d per ms: %v, stamp %v ahead", perMS, err, off)
				}
				enough++
				return enough%(10*perMS) == 0
			}
			issue(right)
			for _, by := range []time.Duration{time.Hour, 24 * time.Hour} {
				c.step(by)
				issue(func(_ ID, err error) bool {
					if err != nil && !errors.Is(err, ErrCeiling) {
						t.Fatal(err)
					}
					return err != nil
				})
				time.Sleep(20 * time.Second)
				for range 2 * perMS {
					if id, err := g.Next(); !errors.Is(err, ErrCeiling) {
						t.Fatalf("%d per ms: Next() = %v, %v, want ErrCeiling", perMS, s.Time(id), err)
					}
				}
				c.step(-by)
				issue(right)
			}
		})
	}
}

func TestLostLeaseIsAcquiredAnew(t *testing.T) {
	var reported []error
	report := WithReport(func(err error) { reported = append(reported, err) })
	bubble(t, func(t *testing.T, g *Generator, m *memorySource, _ *stepClock) {
		last := mustNext(t, g)
		setErr(&m.extendErr, ErrLeaseLost)
		setErr(&m.acquireErr, ErrNoWorker)
		time.Sleep(1500 * time.Millisecond)
		if h := g.Health(); h.Held || !h.Healthy {
			t.Errorf("Health = %+v, want the lease lost, and healthy below the ceiling", h)
		}
		mustNext(t, g)
		time.Sleep(2 * time.Second)
		if _, err := g.Next(); !errors.Is(err, ErrCeiling) {
			t.Errorf("above the ceiling of the lost lease: %v, want ErrCeiling", err)
		}
		setErr(&m.acquireErr, nil)
		setErr(&m.extendErr, nil)
		time.Sleep(1100 * time.Millisecond)
		if id := mustNext(t, g); id <= last {
			t.Errorf("id %d after re-acquisition is not above %d", id, last)
		}
		if m.acquires.Load() != 2 {
			t.Errorf("acquired %d times, want 2", m.acquires.Load())
		}
		if len(reported) == 0 || !errors.Is(reported[0], ErrLeaseLost) {
			t.Errorf("reported %v, want the loss first", reported)
		}
	}, report)
}

// The new tenure starts above the ceiling that the old one had, so a number that is lost and had
// again cannot repeat; while the clock is below it, ids are refused on a clock with a reference.
func TestReacquiredNumberStartsAboveItsCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemorySource(Worker{Number: 9})
		g := start(t, testScheme(t, LayoutDefault), m, WithClock(new(referenceClock)))
		mustNext(t, g)
		old := m.ceiling
		setErr(&m.extendErr, ErrLeaseLost)
		time.Sleep(1001 * time.Millisecond)
		setErr(&m.extendErr, nil)
		synctest.Wait()
		if _, err := g.Next(); !errors.Is(err, ErrClockBehind) {
			t.Errorf("below the floor: %v, want ErrClockBehind", err)
		}
		time.Sleep(2 * time.Second)
		id := mustNext(t, g)
		if f, _ := LayoutDefault.Unpack(id); f.Time <= old {
			t.Errorf("stamp %d is not above the old ceiling %d", f.Time, old)
		}
	})
}

// Crashing again and again does not move the stamps ahead of the clock.
func TestHundredCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testScheme(t, LayoutDefault)
		m := newMemorySource(Worker{Number: 9})
		last := ID(0)
		for range 100 {
			began := time.Now()
			g := start(t, s, m)
			if took := time.Since(began); took > 3*time.Second+time.Millisecond {
				t.Fatalf("start took %v, want at most the lead of 3s", took)
			}
			for range 100 {
				id := mustNext(t, g)
				if ahead := time.Until(s.Time(id)); ahead > 5*time.Millisecond || id <= last {
					t.Fatalf("id %d after %d, stamped %v ahead", id, last, ahead)
				}
				last = id
			}
			kill(g)
		}
	})
}

func TestUntrustedClockRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, g *Generator, _ *memorySource, c *stepClock) {
		for range 5000 { // some of them published
			mustNext(t, g)
		}
		setErr(&c.err, ErrClock)
		time.Sleep(10 * time.Millisecond)
		if _, err := g.Next(); !errors.Is(err, ErrClock) {
			t.Errorf("Next = %v, want ErrClock", err)
		}
		if h := g.Health(); h.Healthy || !errors.Is(h.Err, ErrClock) {
			t.Errorf("Health = %+v, want ErrClock", h)
		}
		time.Sleep(time.Minute) // the lease is kept meanwhile
		setErr(&c.err, nil)
		mustNext(t, g)
	})
}

func TestBackgroundStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemorySource(Worker{Number: 9})
		setErr(&m.acquireErr, errors.New("registry away"))
		if _, err := New(t.Context(), testScheme(t, LayoutDefault), m); err == nil {
			t.Error("New succeeded without a number")
		}
		g := start(t, testScheme(t, LayoutDefault), m, WithBackgroundStart())
		time.Sleep(5 * time.Second)
		if _, err := g.Next(); !errors.Is(err, ErrNoWorker) {
			t.Errorf("Next = %v, want ErrNoWorker", err)
		}
		if h := g.Health(); h.Healthy || h.Held || !h.Heartbeat.IsZero() {
			t.Errorf("Health = %+v, want nothing held", h)
		}
		setErr(&m.acquireErr, nil)
		time.Sleep(1100 * time.Millisecond)
		mustNext(t, g)
	})
}

func TestCloseReleasesWithTheLastTimestamp(t *testing.T) {
	for _, count := range []int{0, 1, 30_000} {
		bubble(t, func(t *testing.T, g *Generator, m *memorySource, _ *stepClock) {
			time.Sleep(time.Second)
			ids := make([]ID, count)
			if _, err := g.Fill(ids); err != nil {
				t.Fatal(err)
			}
			closeNow(t, g)
			closeNow(t, g) // again: nothing
			if _, err := g.Next(); !errors.Is(err, ErrClosed) {
				t.Errorf("Next after Close: %v, want ErrClosed", err)
			}
			if n, err := g.Fill(make([]ID, 3)); n != 0 || !errors.Is(err, ErrClosed) {
				t.Errorf("Fill after Close = %d, %v, want ErrClosed", n, err)
			}
			if count > 0 {
				f, _ := LayoutDefault.Unpack(ids[count-1])
				if got := m.released.Load(); got != f.Time {
					t.Errorf("released with %d, the last id is of %d", got, f.Time)
				}
			}
			if h := g.Health(); h.Healthy || !errors.Is(h.Err, ErrClosed) || h.Generated != int64(count) {
				t.Errorf("Health = %+v, want closed with %d ids", h, count)
			}
		})
	}
}

// The mark that Close releases covers every id that a caller was promised before.
func TestCloseDuringCalls(t *testing.T) {
	bubble(t, func(t *testing.T, g *Generator, m *memorySource, _ *stepClock) {
		last := make(chan int64, 8)
		for range cap(last) {
			go func() {
				high := int64(0)
				for {
					id, err := g.Next()
					if err != nil {
						last <- high
						return
					}
					f, _ := LayoutDefault.Unpack(id)
					high = max(high, f.Time)
				}
			}()
		}
		time.Sleep(50*time.Millisecond + time.Microsecond)
		closeNow(t, g)
		for range cap(last) {
			if high := <-last; high > m.released.Load() {
				t.Errorf("an id of %d was issued, released with %d", high, m.released.Load())
			}
		}
	})
}

func TestNewGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemorySource(Worker{})
		m.ceiling = testScheme(t, LayoutDefault).Since(time.Now()) + 2000
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := New(ctx, testScheme(t, LayoutDefault), m); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("New = %v, want DeadlineExceeded", err)
		}
	})
}
