package cohort

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// TestGather: ready goroutines all reach the step before one of them takes it. A busy machine may
// interrupt that, but not every time.
func TestGather(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const goroutines, attempts = 10, 20
	var steps []string
	for range attempts {
		steps = nil
		var c Cohort
		var mu sync.Mutex
		note := func(step string) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, step)
		}
		var working sync.WaitGroup
		for range goroutines {
			working.Go(func() {
				note("prepare")
				c.Gather()
				note("write")
			})
		}
		working.Wait()
		if !slices.Contains(steps[:goroutines], "write") {
			return
		}
	}
	t.Errorf("the last of %d attempts: %v, want all to prepare first", attempts, steps)
}

// TestAlone: a lone goroutine seldom yields, whatever other goroutines do.
func TestAlone(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var turns atomic.Int64
	var over atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		for !over.Load() {
			turns.Add(1)
			runtime.Gosched()
		}
	})
	var c Cohort
	const calls = 10_000
	for range calls {
		c.Gather()
	}
	over.Store(true)
	other.Wait()
	if n := turns.Load(); n > calls/8 {
		t.Errorf("another goroutine had %d turns during %d calls without company", n, calls)
	}
}

// TestLearn: after several yields without company, calls skip their yield for a while, and then
// yield again.
func TestLearn(t *testing.T) {
	var c Cohort
	for range 3 { // the pause may come again
		for range 3 {
			for range tries - 1 {
				wantDue(t, &c, true)
				c.Learn(false)
			}
			wantDue(t, &c, true)
			c.Learn(true)
		}
		for range tries {
			wantDue(t, &c, true)
			c.Learn(false)
		}
		for range pause {
			wantDue(t, &c, false)
		}
	}
	wantDue(t, &c, true)
}

func wantDue(t *testing.T, c *Cohort, want bool) {
	t.Helper()
	if got := c.Due(); got != want {
		t.Errorf("Due() = %t, want %t", got, want)
	}
}

// TestGatherAtOnce: with several processors, calls may happen at the same instant. That may cost
// time, but nothing else.
func TestGatherAtOnce(t *testing.T) {
	var c Cohort
	var working sync.WaitGroup
	for range 16 {
		working.Go(func() {
			for range 1000 {
				c.Gather()
			}
		})
	}
	working.Wait()
	if n := c.here.Load(); n != 0 {
		t.Errorf("%d goroutines are left in Gather", n)
	}
}

func BenchmarkGatherAlone(b *testing.B) {
	var c Cohort
	for b.Loop() {
		c.Gather()
	}
}
