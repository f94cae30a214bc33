package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lanes is how many round trips may be under way before commands wait for each
// other. One would make the deepest batches, and let one slow answer delay all
// the others.
const lanes = 2

// batcher lets commands that many goroutines issue at once share round trips:
// one that finds a lane free is sent by itself, as without a batcher, unless there are
// others that are about to come, which go with it; those that come while all lanes are
// taken wait, and go together with the next one that gets free. The busier it is, the
// less a command costs. It is safe for concurrent use.
//
// It is for one server. With a cluster, the slowest shard would hold up the
// answers of all.
type batcher struct {
	client  redis.UniversalClient
	timeout time.Duration // of a batch

	mu      sync.Mutex
	taken   int // lanes
	waiting []*waiter
}

// waiter is a command that waits to be sent, or for its answer.
type waiter struct {
	cmd  redis.Cmder
	done chan struct{}
	gone bool // nobody waits any more; guarded by batcher.mu
}

// process sends cmd and waits for its answer, but no longer than ctx lasts. It
// returns the error of cmd, which must not be looked at if ctx ended before.
func (b *batcher) process(ctx context.Context, cmd redis.Cmder) error {
	b.mu.Lock()
	leads := b.taken < lanes
	if leads {
		b.taken++
		b.mu.Unlock()
		runtime.Gosched() // to those who are as far, and have not had their turn yet
		b.mu.Lock()
		if len(b.waiting) == 0 {
			b.mu.Unlock()
			defer b.leave()
			return b.client.Process(ctx, cmd)
		}
	}
	w := &waiter{cmd: cmd, done: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	if leads {
		b.leave()
	}
	select {
	case <-w.done:
		return cmd.Err()
	case <-ctx.Done():
		b.mu.Lock()
		w.gone = true
		b.mu.Unlock()
		return ctx.Err()
	}
}

// leave gives a lane to those who wait.
func (b *batcher) leave() {
	if batch := b.take(); batch != nil {
		go b.run(batch)
	}
}

// run sends batches until nobody waits.
func (b *batcher) run(batch []*waiter) {
	for ; batch != nil; batch = b.take() {
		b.send(batch)
		runtime.Gosched() // to those who are about to come
	}
}

// take returns the waiters for a lane that is free; if there are none, it gives
// the lane back and returns nil.
func (b *batcher) take() []*waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := slices.DeleteFunc(b.waiting, func(w *waiter) bool { return w.gone })
	b.waiting = nil
	if len(batch) == 0 {
		b.taken--
		return nil
	}
	return batch
}

// send sends the commands of batch in one round trip.
func (b *batcher) send(batch []*waiter) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	pipe := b.client.Pipeline()
	for _, w := range batch {
		_ = pipe.Process(ctx, w.cmd) // only notes it
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	for _, w := range batch {
		close(w.done)
	}
}
