package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/budget"
	"snowgate/cohort"
)

// lanes is how many round trips may be under way at once. The second one is for when the
// answer on the first is late: while it is not, one makes the deepest batches.
const lanes = 2

// late is when an answer is no longer to be expected at any moment. In a Docker network it takes
// a tenth of a millisecond, and what has other work to do a few of them.
const late = 5 * time.Millisecond

// batcher lets commands that many goroutines issue at once share round trips:
// one that finds nothing under way is sent by itself, as without a batcher, unless there are
// others that are about to come, which go with it; those that come during a round trip wait, and
// go together when its answer has come, or is late. The busier it is, the
// less a command costs. It is safe for concurrent use.
//
// It is for one server. With a cluster, the slowest shard would hold up the
// answers of all.
type batcher struct {
	client  redis.UniversalClient
	timeout time.Duration // of a batch
	cohort  cohort.Cohort // who is about to send a command

	mu      sync.Mutex
	since   [lanes]time.Time // when each was last taken for a round trip; zero: it is free
	waiting []*waiter

	waiters sync.Pool // of those that were told and wait for nothing
}

// waiter is a command that waits to be sent, or for its answer.
type waiter struct {
	*budget.Waiter // for the answer
	cmd            redis.Cmder
	gone           bool // nobody waits any more; guarded by batcher.mu
}

// newWaiter returns one that waits for cmd.
func (b *batcher) newWaiter(cmd redis.Cmder) *waiter {
	if w, ok := b.waiters.Get().(*waiter); ok {
		w.cmd = cmd
		return w
	}
	return &waiter{Waiter: budget.NewWaiter(), cmd: cmd}
}

// process sends cmd and waits for its answer, but no longer than ctx lasts. It
// returns the error of cmd, which must not be looked at if ctx ended before.
func (b *batcher) process(ctx context.Context, cmd redis.Cmder) error {
	b.mu.Lock()
	lane, leads := b.enter()
	if leads {
		b.gather()
		if len(b.waiting) == 0 {
			b.mu.Unlock()
			defer b.leave(lane)
			return b.client.Process(ctx, cmd)
		}
	}
	w := b.newWaiter(cmd)
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	if leads {
		b.leave(lane)
	}
	if err := w.Wait(ctx); err != nil {
		b.mu.Lock()
		w.gone = true
		b.mu.Unlock()
		return err
	}
	w.cmd = nil
	b.waiters.Put(w)
	return cmd.Err()
}

// enter takes a lane, if one is free and no answer is to be expected on another at any
// moment. The caller holds mu.
func (b *batcher) enter() (lane int, ok bool) {
	for i, since := range b.since {
		switch {
		case since.IsZero():
			lane, ok = i, true
		case time.Since(since) < late:
			return 0, false
		}
	}
	if ok {
		b.since[lane] = time.Now()
	}
	return lane, ok
}

// gather lets those come who are as far and have not had their turn yet. The caller holds mu, but
// not meanwhile.
func (b *batcher) gather() {
	if !b.cohort.Due() {
		return
	}
	b.mu.Unlock()
	runtime.Gosched()
	b.mu.Lock()
	b.cohort.Learn(len(b.waiting) > 0)
}

// leave gives a lane to those who wait.
func (b *batcher) leave(lane int) {
	if batch := b.take(lane); batch != nil {
		go b.run(lane, batch)
	}
}

// run sends batches until nobody waits.
func (b *batcher) run(lane int, batch []*waiter) {
	for ; batch != nil; batch = b.take(lane) {
		b.send(batch)
		runtime.Gosched() // to those who are about to come
	}
}

// take returns the waiters for a lane that is free; if there are none, it gives
// the lane back and returns nil.
func (b *batcher) take(lane int) []*waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := slices.DeleteFunc(b.waiting, func(w *waiter) bool { return w.gone })
	b.waiting = nil
	if len(batch) == 0 {
		b.since[lane] = time.Time{}
		return nil
	}
	b.since[lane] = time.Now()
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
		w.Done()
	}
}
