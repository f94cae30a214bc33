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

// lanes is the maximum number of round trips in flight. One lane makes the largest batches. The
// others are used only while replies are late, as when Redis is far away.
const lanes = 8

// late is the age at which a reply counts as late. In a Docker network a reply takes 0.1 ms, and a
// few times as long if Redis is busy.
const late = 5 * time.Millisecond

// batcher lets commands of many goroutines share round trips, and reads of values share one MGET.
//
// A lone command is sent at once. Commands that arrive while one is in flight wait, and share the
// next round trip, which begins when the reply arrives or is late: a command waits for 2 × late at
// most before it is sent, or for a lane if all are taken. So the busier the gateway is, the
// less a command costs: 0.87 of the time of a request that asks Redis.
//
// A failure of a round trip is the error of every command in it. A caller whose context ends gets
// its error at once; the command may be carried out all the same. A batcher is safe for concurrent
// use. It works on one server: in a cluster, the slowest shard would delay the replies of all.
type batcher struct {
	client  redis.UniversalClient
	timeout time.Duration // of a batch, on a new connection; callers may give up earlier
	cohort  cohort.Cohort // of goroutines that are about to send a command

	mu      sync.Mutex
	since   [lanes]time.Time // when the round trip on each began; zero: the lane is free
	waiting []*waiter
	clock   *time.Timer // calls tick while commands wait
	ticking bool

	waiters sync.Pool // waiters to be used again
}

// waiter is a command that waits to be sent, or for its reply.
type waiter struct {
	question
	done chan struct{} // has a value when the reply has arrived
	gone bool          // the caller has given up; guarded by batcher.mu
}

// question is a command and its reply.
type question struct {
	cmd redis.Cmder // nil: for the value of key
	key string

	value string
	err   error
}

// newWaiter returns a waiter for q.
func (b *batcher) newWaiter(q question) *waiter {
	w, ok := b.waiters.Get().(*waiter)
	if !ok {
		w = &waiter{done: make(chan struct{}, 1)}
	}
	w.question = q
	return w
}

// process sends cmd and waits for its reply or the end of ctx. It returns the error of cmd. If ctx
// ended, the caller must not read cmd, which may still be in flight.
func (b *batcher) process(ctx context.Context, cmd redis.Cmder) error {
	_, err := b.ask(ctx, question{cmd: cmd})
	return err
}

// get returns the value of key, or [redis.Nil] if there is none or the value is not a string. It
// waits for the reply or the end of ctx.
func (b *batcher) get(ctx context.Context, key string) (string, error) {
	return b.ask(ctx, question{key: key})
}

// ask sends q and waits for the reply or the end of ctx.
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
	if !leads && !b.ticking {
		b.startClock()
	}
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

// enter takes a free lane, unless a reply on another lane is pending and not late yet. The caller
// holds mu.
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

// startClock makes the clock call tick when the replies in flight are late. The caller holds mu.
// While replies are in time, the clock runs down once in that time, however many commands there
// are.
func (b *batcher) startClock() {
	b.ticking = true
	if b.clock == nil {
		b.clock = time.AfterFunc(late, func() { defer panics.Catch(panics.Redis, nil); b.tick() })
		return
	}
	b.clock.Reset(late)
}

// tick sends the waiting commands if a lane is free and the replies in flight are late.
func (b *batcher) tick() {
	b.mu.Lock()
	b.ticking = false
	if len(b.waiting) == 0 {
		b.mu.Unlock()
		return
	}
	lane, ok := b.enter()
	if !ok {
		b.startClock()
	}
	b.mu.Unlock()
	if ok {
		b.leave(lane)
	}
}

// gather lets other goroutines run that are about to send a command. The caller holds mu, which
// gather releases in the meantime.
func (b *batcher) gather() {
	if !b.cohort.Due() {
		return
	}
	b.mu.Unlock()
	runtime.Gosched()
	b.mu.Lock()
	b.cohort.Learn(len(b.waiting) > 0)
}

// leave sends the waiting commands on lane, or frees the lane.
func (b *batcher) leave(lane int) {
	if batch := b.take(lane); batch != nil {
		go func() { defer panics.Catch(panics.Redis, func(error) { b.leave(lane) }); b.run(lane, batch) }()
	}
}

// run sends batches until no command waits.
func (b *batcher) run(lane int, batch []*waiter) {
	for ; batch != nil; batch = b.take(lane) {
		b.send(batch)
		runtime.Gosched() // lets other goroutines add commands to the next batch
	}
}

// take returns the waiting commands for lane. If there are none, it frees the lane and returns nil.
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

// send sends batch in one round trip: all reads of values as one MGET, before the other commands. If
// the client panics, the commands without a reply get the panic as their error.
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
		_ = commands.Process(ctx, values) // only adds it to the pipeline
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

// mget returns the MGET for all values that batch reads, nil if there are none.
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

// valueAt returns the value at index i of the reply to an MGET.
func valueAt(values *redis.SliceCmd, i int) (string, error) {
	if err := values.Err(); err != nil {
		return "", err
	}
	all := values.Val()
	if i >= len(all) {
		return "", fmt.Errorf("redisstore: the reply to MGET has %d values, fewer than there are keys", len(all))
	}
	switch value := all[i].(type) {
	case string:
		return value, nil
	case nil:
		return "", redis.Nil
	case error:
		return "", value
	default:
		return "", fmt.Errorf("redisstore: the reply to MGET has a value of type %T", value)
	}
}
