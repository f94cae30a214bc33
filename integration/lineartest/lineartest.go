// Package lineartest checks that the work of a function grows as its input does. Input that a
// caller sends before its token is accepted costs the caller a byte per byte; it must not cost the
// gateway the square of that.
//
// Work is counted as allocations, allocated bytes, and processor time of the thread, which leaves
// out what neighbours do. Each is taken at one, two and four times a length. A linear function
// takes four times as much for four times the input, a quadratic one sixteen times.
package lineartest

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// Case is a function and the worst input that is known for it.
type Case struct {
	// Name says which function, and which input.
	Name string
	// Size is the length of the shortest input, in bytes or in whatever Prepare counts.
	// 0 is 16 KiB.
	Size int
	// Prepare makes an input of about size and returns a call of the function with it. The call is
	// repeated, so it must leave the input as it was.
	Prepare func(size int) func()
}

// Bounds of how much more the largest input may cost than the smallest, which has a quarter of its
// length.
const (
	mostAllocations = 5
	mostBytes       = 7 // append reserves more than it needs, up to twice as much for short lists
	mostTime        = 8 // halfway, by ratio, between linear and quadratic

	// spareBytes and spareAllocations may be allocated whatever the length is.
	spareBytes, spareAllocations = 4 << 10, 16
)

// tries is how often a case may fail before it does: a thread shares the caches of its processor.
const tries = 4

// Run checks cases, each as a subtest.
func Run(t *testing.T, cases []Case) {
	t.Helper()
	SkipUnderRace(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			var fault string
			for range tries {
				if fault = c.check(t); fault == "" {
					return
				}
			}
			t.Error(fault)
		})
	}
}

// SkipUnderRace skips a test of work: most of it would be the race detector's.
func SkipUnderRace(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("the race detector works more than what is measured")
	}
}

// work is what a call has cost.
type work struct {
	bytes, allocations float64
	time               time.Duration
}

// check returns what is wrong with the growth of c, or nothing.
func (c *Case) check(t *testing.T) string {
	unit := c.Size
	if unit == 0 {
		unit = 16 << 10
	}
	one, two, four := measure(c.Prepare(unit)), measure(c.Prepare(2*unit)), measure(c.Prepare(4*unit))
	t.Logf("at %d, twice and four times: %v %v %v; %.0f %.0f %.0f bytes; %.0f %.0f %.0f allocations", unit,
		one.time, two.time, four.time, one.bytes, two.bytes, four.bytes, one.allocations, two.allocations, four.allocations)
	return judge(one, four)
}

// judge returns what is wrong with the growth from one to four, or nothing.
func judge(one, four work) string {
	switch {
	case four.bytes > mostBytes*one.bytes+spareBytes:
		return "four times the input makes it allocate more than seven times the bytes"
	case four.allocations > mostAllocations*one.allocations+spareAllocations:
		return "four times the input makes it allocate more than five times as often"
	case four.time > mostTime*one.time:
		return "four times the input makes it take more than eight times as long"
	}
	return ""
}

const (
	samples      = 5
	sampleTime   = 300 * time.Microsecond
	mostRepeated = 10000
)

// measure returns what call costs, at the best of some samples.
func measure(call func()) work {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC() // and none while it is measured
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	begin := threadTime()
	call() // fills caches and pools
	repeat := 1
	if took := threadTime() - begin; took < sampleTime {
		repeat = int(min(mostRepeated, sampleTime/max(took, 1)+1))
	}
	least := work{math.MaxFloat64, math.MaxFloat64, math.MaxInt64}
	for range samples {
		one := sample(call, repeat)
		least.bytes, least.allocations = min(least.bytes, one.bytes), min(least.allocations, one.allocations)
		least.time = min(least.time, one.time)
		if one.time > 100*time.Millisecond {
			break // it is not noise that makes that
		}
	}
	return least
}

func sample(call func(), repeat int) work {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := threadTime()
	for range repeat {
		call()
	}
	took := threadTime() - begin
	runtime.ReadMemStats(&after)
	n := float64(repeat)
	return work{float64(after.TotalAlloc-before.TotalAlloc) / n, float64(after.Mallocs-before.Mallocs) / n, took / time.Duration(repeat)}
}
