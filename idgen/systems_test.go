package idgen

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// system starts a generator as docs/reference/ids.md configures it.
func system(t *testing.T, layout Layout, policy Policy, f func(t *testing.T, g *Generator, c *stepClock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := new(stepClock)
		g := start(t, testScheme(t, layout), newMemorySource(Worker{Number: 1}), WithClock(c), WithPolicy(policy))
		time.Sleep(time.Second)
		f(t, g, c)
	})
}

func parts(t *testing.T, g *Generator, id ID) Parts {
	t.Helper()
	p, err := g.Scheme().Decompose(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// System A: a step back is slept through until the last used millisecond has passed again.
func TestSystemAWaits(t *testing.T) {
	system(t, LayoutA, WaitPolicy(5*time.Millisecond), func(t *testing.T, g *Generator, c *stepClock) {
		last := mustNext(t, g)
		c.step(-3 * time.Millisecond)
		began := time.Now()
		id := mustNext(t, g)
		if took := time.Since(began); took != 3*time.Millisecond || id <= last {
			t.Errorf("after a step of 3ms Next took %v and gave %d after %d", took, id, last)
		}
		c.step(-time.Second)
		if _, err := g.Next(); !errors.Is(err, ErrClockBehind) {
			t.Errorf("after a step beyond the limit: %v, want ErrClockBehind", err)
		}
		time.Sleep(time.Second - time.Millisecond)
		if id := mustNext(t, g); id <= last { // caught up
			t.Errorf("id %d is not above %d", id, last)
		}
	})
}

func TestSystemAWithoutALimit(t *testing.T) {
	system(t, LayoutA, WaitPolicy(0), func(t *testing.T, g *Generator, c *stepClock) {
		last := mustNext(t, g)
		c.step(-time.Minute)
		if id := mustNext(t, g); id <= last || g.Health().Waited < time.Minute-time.Millisecond {
			t.Errorf("Next = %d after %d, waited %v, want the minute", id, last, g.Health().Waited)
		}
		c.step(-time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.NextContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("NextContext = %v, want DeadlineExceeded", err)
		}
	})
}

// A step back that reaches no used millisecond disturbs nobody.
func TestStepIntoUnusedTime(t *testing.T) {
	for _, p := range []Policy{Monotonic(), WaitPolicy(time.Millisecond), Fail()} {
		system(t, LayoutA, p, func(t *testing.T, g *Generator, c *stepClock) {
			mustNext(t, g)
			time.Sleep(time.Second)
			if _, err := g.TryNext(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			g.Health() // reads the clock, as a heartbeat does
			c.step(-500 * time.Millisecond)
			if id, err := g.TryNext(); err != nil || time.Since(g.Scheme().Time(id)) != 500*time.Millisecond {
				t.Errorf("%s: TryNext = stamp %v at %v, %v, want the clock's", p, g.Scheme().Time(id), time.Now(), err)
			}
			if n := g.Health().Rollbacks; n != 0 {
				t.Errorf("%s: %d rollbacks, want none", p, n)
			}
		})
	}
}

func TestSystemAOctet(t *testing.T) {
	source := func(addr string) Source {
		return octet{0, func(context.Context) (netip.Addr, error) { return netip.ParseAddr(addr) }}
	}
	s := testScheme(t, LayoutA)
	l, err := source("10.0.3.217").Acquire(t.Context(), s, 0)
	if err != nil || l.Worker() != (Worker{0, 217}) {
		t.Errorf("worker of 10.0.3.217 = %v, %v, want 217", l, err)
	}
	if _, err := source("fd00::7").Acquire(t.Context(), s, 0); !errors.Is(err, ErrNoWorker) {
		t.Errorf("IPv6 only: %v, want ErrNoWorker", err)
	}
	narrow := testScheme(t, LayoutB) // 5 bits
	if _, err := source("10.0.3.32").Acquire(t.Context(), narrow, 0); !errors.Is(err, ErrFieldRange) {
		t.Errorf("octet 32 in 5 bits: %v, want ErrFieldRange", err)
	}
}

// System B: an error until the clock is healthy again.
func TestSystemBFails(t *testing.T) {
	system(t, LayoutB, Fail(), func(t *testing.T, g *Generator, c *stepClock) {
		last := mustNext(t, g)
		c.step(-100 * time.Millisecond)
		for range 10 {
			if _, err := g.Next(); !errors.Is(err, ErrClockBehind) {
				t.Fatalf("stepped back: %v, want ErrClockBehind", err)
			}
		}
		if h := g.Health(); h.Healthy || h.Errors != 10 || !errors.Is(h.Err, ErrClockBehind) {
			t.Errorf("Health = %+v, want 10 errors and ErrClockBehind", h)
		}
		time.Sleep(100 * time.Millisecond)
		if id := mustNext(t, g); id <= last || !g.Health().Healthy {
			t.Errorf("recovered: id %d after %d, %+v", id, last, g.Health())
		}
	})
}

// System C: up to 5 ms are slept through; seven longer steps are counted; the eighth is an error,
// and stays one.
func TestSystemCCounts(t *testing.T) {
	testCount(t, LayoutC, CountPolicy(5*time.Millisecond), 7)
}

// System D: three steps, whatever their size.
func TestSystemDCounts(t *testing.T) {
	testCount(t, LayoutD, CountPolicy(0), 3)
	system(t, LayoutD, CountPolicy(0), func(t *testing.T, g *Generator, c *stepClock) {
		mustNext(t, g)
		c.step(-time.Millisecond)
		id := mustNext(t, g)
		if p := parts(t, g, id); p.Rollback != 1 {
			t.Errorf("rollback after a step of 1ms = %d, want 1", p.Rollback)
		}
		if _, err := strconv.ParseInt(id.Decimal(), 10, 64); err != nil {
			t.Error(err)
		}
	})
}

func testCount(t *testing.T, l Layout, p Policy, survives int64) {
	system(t, l, p, func(t *testing.T, g *Generator, c *stepClock) {
		var ids []ID
		use := func() {
			batch := make([]ID, 5000)
			n, err := g.Fill(batch)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, batch[:n]...)
		}
		use()
		for i := range survives {
			c.step(-20 * time.Millisecond)
			time.Sleep(pacePeriod + time.Millisecond) // until nothing is published without a look at the clock
			use()
			if got := parts(t, g, ids[len(ids)-1]); got.Rollback != i+1 {
				t.Fatalf("rollback field after %d steps = %d", i+1, got.Rollback)
			}
		}
		if d := duplicates(ids); d != 0 {
			t.Errorf("%d duplicates", d)
		}
		c.step(-20 * time.Millisecond)
		time.Sleep(pacePeriod + time.Millisecond)
		for range 3 {
			if _, err := g.Next(); !errors.Is(err, ErrRollbacksExhausted) {
				t.Errorf("one step too many: %v, want ErrRollbacksExhausted", err)
			}
			time.Sleep(time.Hour) // it stays, even when the clock has caught up
		}
		if h := g.Health(); h.Healthy || h.Rollbacks != survives+1 {
			t.Errorf("Health = %+v, want unhealthy after %d steps", h, survives+1)
		}
	})
}

func TestSystemCSleepsThroughShortSteps(t *testing.T) {
	system(t, LayoutC, CountPolicy(5*time.Millisecond), func(t *testing.T, g *Generator, c *stepClock) {
		last := mustNext(t, g)
		c.step(-5 * time.Millisecond)
		began := time.Now()
		id := mustNext(t, g)
		if p := parts(t, g, id); p.Rollback != 0 || id <= last || time.Since(began) != 5*time.Millisecond {
			t.Errorf("after 5ms back: %+v in %v, want no rollback counted and 5ms", p, time.Since(began))
		}
	})
}

// The released mark covers what was issued before the clock went back.
func TestCountReleasesTheHighestTimestamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := new(stepClock), newMemorySource(Worker{})
		g := start(t, testScheme(t, LayoutD), m, WithClock(c), WithPolicy(CountPolicy(0)))
		high := parts(t, g, mustNext(t, g)).Time
		c.step(-time.Hour)
		mustNext(t, g) // below the floor of a lease that is new: refused or not, no matter
		closeNow(t, g)
		if got := g.Scheme().At(m.released.Load()); got.Before(high) {
			t.Errorf("released with %v, an id of %v exists", got, high)
		}
	})
}

// System E: a stepped-back clock continues the newer ids it finds in the ring.
func TestSystemERing(t *testing.T) {
	system(t, LayoutE, RingPolicy(200), func(t *testing.T, g *Generator, c *stepClock) {
		var ids []ID
		for range 300 { // the ring once around: 10 ids in each millisecond
			for range 10 {
				ids = append(ids, mustNext(t, g))
			}
			time.Sleep(time.Millisecond)
		}
		newest := g.Scheme().Time(ids[len(ids)-1])
		c.step(-time.Hour)
		further := 0
		for {
			id, err := g.Next()
			if errors.Is(err, ErrSaturated) {
				break
			}
			if err != nil {
				t.Fatalf("after %d further ids: %v", further, err)
			}
			if g.Scheme().Time(id).After(newest) {
				t.Fatalf("id of %v, newer than all in the ring", g.Scheme().Time(id))
			}
			ids = append(ids, id)
			further++
		}
		if want := 200 * (4096 - 10); further != want {
			t.Errorf("%d further ids from the ring, want %d", further, want)
		}
		if d := duplicates(ids); d != 0 {
			t.Errorf("%d duplicates", d)
		}
	})
}

// A full slot in normal times means the next millisecond, as everywhere.
func TestSystemESaturates(t *testing.T) {
	system(t, LayoutE, RingPolicy(200), func(t *testing.T, g *Generator, _ *stepClock) {
		began := time.Now()
		ids := make([]ID, 10*4096+1)
		if n, err := g.Fill(ids); n != len(ids) || err != nil {
			t.Fatalf("Fill = %d, %v", n, err)
		}
		if took := time.Since(began); took != 10*time.Millisecond {
			t.Errorf("10 milliseconds of ids took %v", took)
		}
		if got := g.Health().Generated; got != int64(len(ids)) {
			t.Errorf("Generated = %d, want %d", got, len(ids))
		}
	})
}

func TestPolicyNames(t *testing.T) {
	for _, name := range []string{"monotonic", "wait", "count", "ring", "fail"} {
		if p, err := ParsePolicy(name, time.Second, 10); err != nil || p.String() != name {
			t.Errorf("ParsePolicy(%q) = %v, %v", name, p, err)
		}
	}
	if p, err := ParsePolicy("sleep", 0, 0); err == nil {
		t.Errorf("ParsePolicy(sleep) = %v, want an error", p)
	}
	if p, err := ParsePolicy("ring", 0, 1); err == nil {
		t.Errorf("ParsePolicy(ring, 1 slot) = %v, want an error", p)
	}
}

// The default policy gains on the clock by an eighth, and comes back to it when that has caught up.
func TestMonotonicReturnsToTheClock(t *testing.T) {
	system(t, LayoutDefault, Monotonic(), func(t *testing.T, g *Generator, c *stepClock) {
		mustNext(t, g)
		c.step(-4 * time.Second)
		mustNext(t, g)
		for left := 4 * time.Second; left > 0; left -= 500 * time.Millisecond {
			if ahead := g.Health().ClockOffset; ahead != left {
				t.Errorf("riding: stamps are %v ahead of the clock, want %v", ahead, left)
			}
			mustNext(t, g)
			time.Sleep(4 * time.Second)
		}
		mustNext(t, g)
		if h := g.Health(); h.ClockOffset != 0 || h.Rollbacks != 1 || !h.Healthy {
			t.Errorf("Health = %+v, want no offset any more, one rollback", h)
		}
		c.step(-time.Hour)
		mustNext(t, g)
		time.Sleep(time.Minute)
		if h := g.Health(); h.ClockOffset != time.Hour-time.Minute/8 || h.Rollbacks != 2 || !h.Healthy {
			t.Errorf("Health = %+v, want 1h offset less an eighth of a minute, two rollbacks", h)
		}
		c.step(2*time.Hour + 4*time.Second)
		time.Sleep(2 * time.Second)
		if got := time.Until(g.Scheme().Time(mustNext(t, g))); got != time.Hour {
			t.Errorf("stamps are %v ahead, want the clock's hour", got)
		}
		if off := g.Health().ClockOffset; off != 0 {
			t.Errorf("offset = %v, want 0", off)
		}
	})
}
