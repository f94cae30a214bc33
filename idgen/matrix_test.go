package idgen

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The 16 cases: the clock is set back by 3 ms, 1 s, 1 h, or seven times by 20 ms; within a process
// or across a crash and restart; while 100 ids per millisecond are wanted, or as many as can be
// had. With the default policy no id repeats, no call fails, none takes more than 2 ms, and order
// is kept, which also is how uniqueness is checked: ids must strictly rise.
func TestStepMatrix(t *testing.T) {
	steps := map[string][]time.Duration{
		"3ms":    {3 * time.Millisecond},
		"1s":     {time.Second},
		"1h":     {time.Hour},
		"7x20ms": slices7(20 * time.Millisecond),
	}
	for name, backs := range steps {
		for _, restart := range []bool{false, true} {
			for _, saturated := range []bool{false, true} {
				name := fmt.Sprintf("%s/restart=%t/saturated=%t", name, restart, saturated)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testSteps(t, backs, restart, saturated) })
				})
			}
		}
	}
}

func slices7(d time.Duration) []time.Duration { return []time.Duration{d, d, d, d, d, d, d} }

func testSteps(t *testing.T, backs []time.Duration, restart, saturated bool) {
	clock := new(stepClock)
	path := filepath.Join(t.TempDir(), "ceiling")
	boot := func() *Generator {
		return start(t, testScheme(t, LayoutDefault), HighWater(path, Fixed(Worker{Number: 5})), WithClock(clock))
	}
	long := 1100 * time.Millisecond // longer than the step of 1 s reaches back
	if testing.Short() || raceEnabled && saturated {
		long = 200 * time.Millisecond
	}
	run := &runner{t: t, saturated: saturated}
	g := boot()
	run.use(g, long)
	for _, back := range backs {
		clock.step(-back)
		if restart {
			kill(g)
			g = boot()
		}
		run.use(g, 50*time.Millisecond)
	}
	run.use(g, long)
	t.Logf("%d ids, longest call %v", run.count, run.longest)
}

// runner calls Next for a while and checks every response.
type runner struct {
	t         *testing.T
	saturated bool
	last      ID
	count     int
	longest   time.Duration
}

func (r *runner) use(g *Generator, d time.Duration) {
	r.t.Helper()
	for began := time.Now(); time.Since(began) < d; {
		before := time.Now()
		for range 100 {
			r.one(g)
		}
		if took := time.Since(before); took > r.longest {
			r.longest = took
		}
		if !r.saturated {
			time.Sleep(time.Millisecond)
		}
	}
	if r.longest > 2*time.Millisecond {
		r.t.Fatalf("a call took %v of virtual time, want at most 2ms", r.longest)
	}
}

func (r *runner) one(g *Generator) {
	id, err := g.Next()
	if err != nil {
		r.t.Fatalf("Next() after %d ids: %v", r.count, err)
	}
	if id <= r.last {
		r.t.Fatalf("Next() = %d after %d: not above it", id, r.last)
	}
	r.last = id
	r.count++
}

// Every policy, many goroutines, a clock that is set to and fro at random, and crashes: calls may
// fail, but no id may come twice. The rollback count and the ring do not outlive the process, so
// here the ceiling must do its part.
func TestNoDuplicatesInChaos(t *testing.T) {
	policies := []struct {
		policy Policy
		layout Layout
	}{
		{Monotonic(), LayoutA},
		{WaitPolicy(5 * time.Millisecond), LayoutA},
		{Fail(), LayoutB},
		{CountPolicy(5 * time.Millisecond), LayoutC},
		{CountPolicy(0), LayoutD},
		{RingPolicy(200), LayoutE},
	}
	seeds := uint64(8)
	if testing.Short() || raceEnabled {
		seeds = 2
	}
	for _, p := range policies {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%s/%d", p.policy, p.layout, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testChaos(t, p.layout, p.policy, seed) })
			})
		}
	}
}

func testChaos(t *testing.T, l Layout, p Policy, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	clock := new(stepClock)
	path := filepath.Join(t.TempDir(), "ceiling")
	var ids []ID
	failed := 0
	for range 4 {
		g := start(t, testScheme(t, l), HighWater(path, Fixed(Worker{Number: 5})), WithClock(clock), WithPolicy(p))
		some, errs := chaoticLife(g, clock, rng)
		ids, failed = append(ids, some...), failed+errs
		if rng.IntN(2) == 0 {
			kill(g)
		} else {
			closeNow(t, g)
		}
		clock.step(time.Duration(rng.IntN(8000)-2000) * time.Millisecond)
	}
	n := len(ids)
	if d := duplicates(ids); d != 0 {
		t.Errorf("%d duplicates among %d ids", d, n)
	}
	if n == 0 {
		t.Errorf("no ids at all, %d calls failed", failed)
	}
	t.Logf("%d ids, %d refused", n, failed)
}

// chaoticLife uses g from several goroutines while the clock jumps.
func chaoticLife(g *Generator, clock *stepClock, rng *rand.Rand) (ids []ID, failed int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 6 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 2))
		wg.Go(func() {
			batch := make([]ID, 700)
			for range 60 {
				n, err := g.Fill(batch[:1+own.IntN(len(batch))])
				mu.Lock()
				ids = append(ids, batch[:n]...)
				if err != nil {
					failed++
				}
				mu.Unlock()
				time.Sleep(time.Duration(own.IntN(1500*(1+i%3))) * time.Microsecond)
			}
		})
	}
	for range 12 {
		time.Sleep(time.Duration(rng.IntN(12_000)) * time.Microsecond)
		clock.step(time.Duration(rng.IntN(81)-50) * time.Millisecond)
	}
	wg.Wait()
	return ids, failed
}
