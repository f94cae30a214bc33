// Package budget bounds calls by a time, where there are many of them and nearly none takes
// long.
//
// A context of [context.WithTimeout] starts a timer and registers with its parent, for every
// call. One of this package does so when somebody asks for its Done, and not before. Who
// waits for one thing only calls [Wait], which needs neither; and if nobody else waits for
// it, [Waiter.Wait], which does not even ask the parent for its Done unless it takes long.
package budget

import (
	"context"
	"sync"
	"time"
)

// Timers makes contexts, and lends timers to who waits. The zero value is usable. It is safe
// for concurrent use.
type Timers struct{ pool sync.Pool }

// WithTimeout is like [context.WithTimeout]; what there is to release, the Release of the
// Context does.
func (t *Timers) WithTimeout(parent context.Context, timeout time.Duration) *Context {
	begun := time.Now()
	end := begun.Add(timeout)
	if earlier, ok := parent.Deadline(); ok && earlier.Before(end) {
		end = earlier
	}
	return &Context{Context: parent, timers: t, begun: begun, end: end}
}

// Context is a context with a deadline. It is safe for concurrent use.
type Context struct {
	//nolint:containedctx // it is a context
	context.Context // the parent

	timers *Timers
	begun  time.Time
	end    time.Time

	mu       sync.Mutex
	timed    context.Context //nolint:containedctx // for Done; nil: nobody has asked for it
	cancel   context.CancelFunc
	released bool
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (time.Time, bool) { return c.end, true }

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.end)
		if c.released {
			c.cancel()
		}
	}
	return c.timed.Done()
}

// Err implements [context.Context].
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timed != nil:
		return c.timed.Err()
	case c.Context.Err() != nil:
		return c.Context.Err()
	case c.released:
		return context.Canceled
	case !time.Now().Before(c.end):
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Release cancels the context.
func (c *Context) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
	if c.cancel != nil {
		c.cancel()
	}
}

// Wait waits until done is closed or something comes from it, and returns nil, or until ctx
// ends, and returns its error. Nobody releases ctx meanwhile.
func Wait(ctx context.Context, done <-chan struct{}) error {
	c, ok := ctx.(*Context)
	if !ok {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a := c.timers.lend(c.end)
	defer c.timers.giveBack(a)
	select {
	case <-done:
		return nil
	case <-c.Context.Done():
		return c.Context.Err()
	case <-a.rings:
		return context.DeadlineExceeded
	}
}

// Inattention is for how long after a context was made a [Waiter] may not notice that the
// parent has ended.
const Inattention = 50 * time.Millisecond

// Waiter waits for something that is done for it alone. It may wait again if nothing has
// ended its waits before. One goroutine at a time waits.
type Waiter struct{ alarm }

// NewWaiter returns a Waiter.
func NewWaiter() *Waiter {
	return &Waiter{alarm{rings: make(chan bool, 2)}} // there is room for Done and for the alarm
}

// Done says that it is done. It is called once for every Wait, does not block, and may be
// called by any goroutine, also when nobody waits any more.
func (w *Waiter) Done() { w.rings <- true }

// Wait waits until Done is called, and returns nil, or until ctx ends, and returns its error;
// w is of no use then. If ctx is a [Context], the end of its parent is noticed within
// [Inattention]. Nobody releases ctx meanwhile.
func (w *Waiter) Wait(ctx context.Context) error {
	c, ok := ctx.(*Context)
	if !ok {
		select {
		case <-w.rings:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	attentive := c.begun.Add(Inattention)
	if attentive.After(c.end) {
		attentive = c.end
	}
	w.ringAt(attentive)
	if <-w.rings {
		w.hush()
		return nil
	}
	w.ringAt(c.end)
	defer w.hush()
	select {
	case done := <-w.rings:
		if done {
			return nil
		}
		return context.DeadlineExceeded
	case <-c.Context.Done():
		return c.Context.Err()
	}
}

// alarm rings at an instant. Its timer is set as seldom as possible, and never stopped: it may
// fire too early, and then looks for how long it has to go on.
type alarm struct {
	rings chan bool // false: the alarm. Holds one of them

	mu    sync.Mutex
	timer *time.Timer
	fires time.Time // when the timer does; zero: not at all
	at    time.Time // when to ring; zero: nobody waits
}

// lend returns an alarm that rings at an instant.
func (t *Timers) lend(at time.Time) *alarm {
	a, again := t.pool.Get().(*alarm)
	if !again {
		a = &alarm{rings: make(chan bool, 1)}
	}
	a.ringAt(at)
	return a
}

// giveBack lends a to others.
func (t *Timers) giveBack(a *alarm) {
	a.hush()
	t.pool.Put(a)
}

// ringAt has a ring at an instant, and not before.
func (a *alarm) ringAt(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = at
	if a.fires.IsZero() || at.Before(a.fires) {
		a.set()
	}
}

// hush has a not ring, nor have rung.
func (a *alarm) hush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Time{}
	select {
	case <-a.rings:
	default:
	}
}

// set has the timer fire when a is to ring. It needs mu.
func (a *alarm) set() {
	a.fires = a.at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(a.at), a.fire)
		return
	}
	a.timer.Reset(time.Until(a.at))
}

func (a *alarm) fire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fires = time.Time{}
	switch {
	case a.at.IsZero():
	case time.Now().Before(a.at):
		a.set()
	default:
		a.at = time.Time{}
		a.rings <- false // there is room: it is emptied when nobody waits any more
	}
}
