package load

import (
	"runtime/debug"
	"testing"
)

// The first run that ends leaves the other one without collections, the last one leaves
// everything as it was.
func TestRunsAtTheSameTime(t *testing.T) {
	before := percent()
	first, second := uncollected(), uncollected()
	first()
	if got := percent(); got != -1 {
		t.Errorf("during the second run: %d, want -1", got)
	}
	second()
	if got := percent(); got != before {
		t.Errorf("after both: %d, want %d", got, before)
	}
}

func percent() int {
	now := debug.SetGCPercent(-1)
	debug.SetGCPercent(now)
	return now
}
