package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

// coalesce is the minimum time from the end of one refresh to the next of the same follower. If
// many messages arrive at once, the first one causes a refresh at once, and the others share the
// next one.
const coalesce = 20 * time.Millisecond

// A Follower keeps a copy of something that all gateways share under one revision. A [Feed] keeps
// the copy current.
type Follower interface {
	// Refresh reads everything, and writes back what Redis has lost. It must end in bounded time.
	// The Feed never calls it twice at once.
	Refresh(ctx context.Context) error
}

// Poller is a [Follower] that can also read the changes alone.
type Poller interface {
	Follower
	// Poll reads what has changed since the last Refresh or Poll. The Feed calls it in place of
	// Refresh while messages arrive and Redis has lost nothing.
	Poll(ctx context.Context) error
}

// worker refreshes one follower, never twice at once. A request during a refresh leads to another
// refresh, which begins after the request.
type worker struct {
	kind     string
	follower Follower
	wake     chan struct{}

	mu   sync.Mutex
	next *refreshRun // requested and not begun; nil: none
}

// refreshRun is one refresh, requested or running.
type refreshRun struct {
	full bool
	done chan struct{}
	err  error // once done is closed
}

func newWorker(kind string, follower Follower) *worker {
	return &worker{kind: kind, follower: follower, wake: make(chan struct{}, 1)}
}

// request requests a refresh that begins after the call.
func (w *worker) request(full bool) *refreshRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next == nil {
		w.next = &refreshRun{done: make(chan struct{})}
		w.wake <- struct{}{} // never blocks: the channel has room for each run that has not begun
	}
	w.next.full = w.next.full || full
	return w.next
}

// run does the requested refreshes until ctx ends.
func (w *worker) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		t := w.take()
		if err := w.refresh(ctx, t.full); err != nil {
			t.err = fmt.Errorf("%s: %w", w.kind, err)
		}
		close(t.done)
		if deadline.Sleep(ctx, coalesce) != nil {
			return
		}
	}
}

// refresh calls the follower. A panic is an error, and the next run tries again.
func (w *worker) refresh(ctx context.Context, full bool) (err error) {
	defer panics.Into(panics.Feed, &err)
	if poller, ok := w.follower.(Poller); ok && !full {
		return poller.Poll(ctx)
	}
	return w.follower.Refresh(ctx)
}

func (w *worker) take() *refreshRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.next
	w.next = nil
	return t
}

// result waits for the end of the run.
func (t *refreshRun) result(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
