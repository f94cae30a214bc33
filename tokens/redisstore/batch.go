package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/cohort"
	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

// lanes is how many round trips may be under way at once. The second one is for when the
// answer on the first is late: while it is not, one makes the deepest batches.
const lanes = 2

// late is when an answer is no longer to be expected at any moment. In a Docker network it takes
// a tenth of a millisecond, and what has other work to do a few of them.
const late = 5 * time.Millisecond

// batcher lets commands that many goroutines issue at once share round trips, and those that
// read a value share one command:
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

// waiter waits for what it asked for to be sent, or for its answer.
type waiter struct {
	question
	done chan struct{} // has a value when the answer is there
	gone bool          // nobody waits any more; guarded by batcher.mu
}

// question is what to ask, and the answer.
type question struct {
	cmd redis.Cmder // nil: for the value of key
	key string

	value string
	err   error
}

// newWaiter returns one that waits for an answer to q.
func (b *batcher) newWaiter(q question) *waiter {
	w, ok := b.waiters.Get().(*waiter)
	if !ok {
		w = &waiter{done: make(chan struct{}, 1)}
	}
	w.question = q
	return w
}

// process sends cmd and waits for its answer, but no longer than ctx lasts. It
// returns the error of cmd, which must not be looked at if ctx ended before.
func (b *batcher) process(ctx context.Context, cmd redis.Cmder) error {
	_, err := b.ask(ctx, question{cmd: cmd})
	return err
}

// get returns the value of key, or [redis.Nil] if there is none, which may also be because
// it is not text. It waits no longer than ctx lasts.
func (b *batcher) get(ctx context.Context, key string) (string, error) {
	return b.ask(ctx, question{key: key})
}

// ask waits for the answer to q, but no longer than ctx lasts.
func (b *batcher) ask(ctx context.Context, q question) (value string, err error) {
	b.mu.Lock()
	lane, leads := b.enter()
	if leads {
		b.gather()
		if len(b.waiting) == 0 {
			b.mu.Unlock()
			defer b.leave(lane)
			if q.cmd != nil {
				return "", b.client.Process(ctx, q.cmd)
			}
			return b.client.Get(ctx, q.key).Result()
		}
	}
	w := b.newWaiter(q)
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	if leads {
		b.leave(lane)
	}
	if err := deadline.Wait(ctx, w.done); err != nil {
		b.mu.Lock()
		w.gone = true
		b.mu.Unlock()
		return "", err
	}
	value, err = w.value, w.err
	w.question = question{}
	b.waiters.Put(w)
	return value, err
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
		go func() { defer panics.Catch(panics.Redis, func(error) { b.leave(lane) }); b.run(lane, batch) }()
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

// send sends what batch asks in one round trip: all values by one command, before the others.
// If that panics, all who have no answer yet get the panic as their error.
func (b *batcher) send(batch []*waiter) {
	told := 0
	defer panics.Catch(panics.Redis, func(err error) {
		for _, w := range batch[told:] {
			w.err = err
			w.done <- struct{}{}
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	values, commands := mget(ctx, batch), b.client.Pipeline()
	if values != nil {
		_ = commands.Process(ctx, values) // only notes it
	}
	for _, w := range batch {
		if w.cmd != nil {
			_ = commands.Process(ctx, w.cmd)
		}
	}
	_, _ = commands.Exec(ctx) // every command has its own error
	i := 0
	for _, w := range batch {
		if w.cmd != nil {
			w.err = w.cmd.Err()
		} else {
			w.value, w.err = valueAt(values, i)
			i++
		}
		told++
		w.done <- struct{}{}
	}
}

// mget returns the command that asks for all values which batch asks for, nil if there are none.
func mget(ctx context.Context, batch []*waiter) *redis.SliceCmd {
	args := append(make([]any, 0, 1+len(batch)), "mget")
	for _, w := range batch {
		if w.cmd == nil {
			args = append(args, &w.key)
		}
	}
	if len(args) == 1 {
		return nil
	}
	return redis.NewSliceCmd(ctx, args...)
}

// valueAt returns the answer to the key at index i of what mget asks for.
func valueAt(values *redis.SliceCmd, i int) (string, error) {
	if err := values.Err(); err != nil {
		return "", err
	}
	all := values.Val()
	if i >= len(all) {
		return "", fmt.Errorf("redisstore: %d answers, and there were more questions", len(all))
	}
	switch value := all[i].(type) {
	case string:
		return value, nil
	case nil:
		return "", redis.Nil
	case error:
		return "", value
	default:
		return "", fmt.Errorf("redisstore: a value is a %T", value)
	}
}
