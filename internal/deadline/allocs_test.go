//go:build !race

package deadline_test

import (
	"context"
	"testing"
	"time"

	"snowgate/internal/deadline"
)

func TestAllocations(t *testing.T) {
	var timers deadline.Timers
	done := make(chan struct{})
	close(done)
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	parent.Done()
	if n := testing.AllocsPerRun(100, func() {
		ctx := timers.WithTimeout(parent, time.Second)
		_ = deadline.Wait(ctx, done)
		ctx.Release()
	}); n > 1 {
		t.Errorf("%v allocations, want one", n)
	}
}
