//go:build !race

package budget_test

import (
	"context"
	"testing"
	"time"

	"snowgate/internal/budget"
)

func TestAllocations(t *testing.T) {
	var timers budget.Timers
	done := make(chan struct{})
	close(done)
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	parent.Done()
	if n := testing.AllocsPerRun(100, func() {
		ctx := timers.WithTimeout(parent, time.Second)
		_ = budget.Wait(ctx, done)
		ctx.Release()
	}); n > 1 {
		t.Errorf("%v allocations, want one", n)
	}
}
