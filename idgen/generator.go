package idgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

// Generator issues ids. New makes it. A Generator is safe for concurrent use and runs two
// goroutines until Close.
type Generator struct {
	tenure atomic.Pointer[tenure] // never nil

	scheme Scheme
	window window
	policy Policy
	time   *timeline
	pacer  pacer
	keeper keeper

	mu        sync.Mutex // guards changes of tenure, and steps of the clock
	lease     Lease      // nil: none, or lost
	highest   int64      // highest timestamp used under lease by earlier tenures
	retired   int64      // ids issued by earlier tenures
	rollbacks atomic.Int64

	errors atomic.Int64
	waits  atomic.Int64
	waited atomic.Int64 // in nanoseconds

	cancel context.CancelFunc
	done   sync.WaitGroup
	closed bool // guarded by mu
}

var errFrozen = errors.New("idgen: the tenure has ended")

// New acquires a worker number and returns a generator that issues ids under that number. After a
// crash, the first timestamp of the lease may lie in the future, by up to the lead of the old
// ceiling. New then waits for that timestamp, for at most 5 s. ctx bounds the acquisition and this
// wait, nothing later. The caller must Close the generator.
func New(ctx context.Context, s Scheme, src Source, opts ...Option) (*Generator, error) {
	o := defaults()
	var faults []error
	for _, opt := range opts {
		faults = append(faults, opt(&o))
	}
	if s.layout.IsZero() {
		faults = append(faults, fmt.Errorf("%w: the scheme is the zero value", ErrLayout))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	if _, counts := o.policy.(countPolicy); counts && s.layout.Bits(FieldRollback) == 0 {
		return nil, fmt.Errorf("%w: the count policy needs a rollback field, %q has none", ErrLayout, s.layout)
	}
	g := &Generator{scheme: s, window: o.window, policy: o.policy, time: newTimeline(o, s.epoch)}
	g.tenure.Store(vacant(ErrNoWorker))
	g.pacer.init(s.layout)
	g.keeper.init(src, o)
	if !o.background {
		if err := g.boot(ctx); err != nil {
			return nil, err
		}
	}
	run, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	g.done.Go(func() { panics.Keep(run, panics.IDs, g.keep) })
	g.done.Go(func() { panics.Keep(run, panics.IDs, g.pace) })
	return g, nil
}

func (g *Generator) boot(ctx context.Context) error {
	if err := g.acquire(ctx); err != nil {
		return err
	}
	if err := g.awaitFloor(ctx); err != nil {
		return errors.Join(err, g.lease.Release(ctx, g.lease.Floor()-1))
	}
	return nil
}

// Scheme returns the layout and epoch of the ids.
func (g *Generator) Scheme() Scheme { return g.scheme }

// Next returns a new id. If the ids of this millisecond are used up, Next sleeps for at most the
// wait bound (see WithMaxWait). It returns ErrSaturated, without sleeping, if that would not be
// long enough. Other errors are ErrClosed, ErrNoWorker, ErrCeiling, ErrClockBehind,
// ErrRollbacksExhausted, ErrTimeExhausted, ErrBeforeEpoch and errors of the clock.
func (g *Generator) Next() (ID, error) {
	e := g.tenure.Load()
	if ticket, ok := e.draw(); ok {
		return e.id(ticket), nil
	}
	return g.next(context.Background(), g.window)
}

// draw takes one published ticket. draw compares the word with the limit before it adds: callers
// that find no open ticket must not use up future ones.
func (e *tenure) draw() (ticket int64, ok bool) {
	limit := e.limit.Load()
	if e.word.Load() >= limit {
		return 0, false
	}
	if ticket = e.word.Add(1) - 1; ticket < limit {
		return ticket, true
	}
	e.forfeit(ticket, 1)
	return 0, false
}

// NextContext is like Next, but ctx alone bounds the wait. If ctx ends during the wait, the id that
// was reserved is never issued.
func (g *Generator) NextContext(ctx context.Context) (ID, error) {
	e := g.tenure.Load()
	if ticket, ok := e.draw(); ok {
		return e.id(ticket), nil
	}
	w := g.window
	w.maxWait = 1 << 40
	if deadline, ok := ctx.Deadline(); ok {
		w.maxWait = max(0, time.Until(deadline).Milliseconds())
	}
	return g.next(ctx, w)
}

// TryNext is like Next, but never waits. Where Next would sleep for a free id, TryNext returns
// ErrSaturated; where Next would wait for a later ceiling, it returns ErrCeiling.
func (g *Generator) TryNext() (ID, error) {
	e := g.tenure.Load()
	if ticket, ok := e.draw(); ok {
		return e.id(ticket), nil
	}
	w := g.window
	w.maxWait, w.awake = 0, true
	return g.next(context.Background(), w)
}

// Fill fills dst with new ids in rising order. It returns the number of ids filled: len(dst), or
// fewer and the error that Next would have returned. Fill waits as often as needed, each time for
// at most the wait bound. If dst is longer than the window, this takes about len(dst) divided by
// the layout's ids per second.
func (g *Generator) Fill(dst []ID) (int, error) {
	filled := 0
	for filled < len(dst) {
		rest := dst[filled:]
		n := g.fillOpen(rest)
		if n == 0 {
			r, err := g.reserve(context.Background(), int64(len(rest)), g.window)
			if err != nil {
				return filled, err
			}
			n = r.n
			r.tenure.write(rest[:n], r.first)
		}
		filled += int(n)
	}
	return filled, nil
}

// fillOpen fills dst with one atomic add. It returns 0 and takes nothing if fewer than len(dst)
// tickets are published.
func (g *Generator) fillOpen(dst []ID) int64 {
	e := g.tenure.Load()
	n := int64(len(dst))
	limit := e.limit.Load()
	if e.word.Load() > limit-n {
		return 0
	}
	first := e.word.Add(n) - n
	open := min(max(0, limit-first), n)
	e.write(dst[:open], first)
	e.forfeit(first+open, n-open)
	return open
}

// forfeit discards n tickets that were drawn but turned out to be above the limit.
func (e *tenure) forfeit(first, n int64) {
	if first < frozen {
		e.skip(n)
	}
}

func (g *Generator) next(ctx context.Context, w window) (ID, error) {
	r, err := g.reserve(ctx, 1, w)
	if err != nil {
		return 0, err
	}
	return r.tenure.id(r.first), nil
}

// reservation is a run of n tickets that the caller may turn into ids after a wait. If n is 0, the
// caller must try again after the wait.
type reservation struct {
	tenure   *tenure
	now      int64 // id time of the reservation
	first, n int64
	wait     int64 // in milliseconds
}

// reserve reads the clock and takes between 1 and n tickets. It sleeps until they may be used.
func (g *Generator) reserve(ctx context.Context, n int64, w window) (reservation, error) {
	beats := g.keeper.beats.Load()
	for polls := w.maxWait; ; {
		r, err := g.attempt(n, w)
		switch {
		case errors.Is(err, ErrCeiling) && polls > 0 && g.keeper.hurry(beats):
			r.wait = 1
			polls--
		case err != nil:
			return r, g.refuse(err)
		case r.wait > 0 && r.tenure.slots != nil: // this slot is used up: try the next one
			if polls -= r.wait; polls < 0 {
				return r, g.refuse(ErrSaturated)
			}
		}
		if r.wait > 0 {
			if w.awake {
				return r, g.refuse(ErrSaturated)
			}
			if err := g.sleep(ctx, r.wait); err != nil {
				r.tenure.skip(r.n)
				return r, g.refuse(err)
			}
		}
		switch {
		case r.n == 0: // the wait was for the clock, not for a ticket
			continue
		case r.wait > 0:
			g.wake(r.tenure)
		default:
			g.pacer.observe(g, r)
		}
		return r, nil
	}
}

// attempt reads the clock once and reserves tickets. It never sleeps.
func (g *Generator) attempt(n int64, w window) (r reservation, err error) {
	for {
		e := g.tenure.Load()
		r = reservation{tenure: e}
		if e.err != nil {
			return r, e.err
		}
		r.now, r.wait, err = g.now(e)
		if err != nil || r.wait > 0 {
			return r, err
		}
		pace := g.time.pace()
		w := w
		w.maxWait = int64(float64(w.maxWait) * pace)
		if e.slots != nil {
			r.first, r.n, r.wait, err = e.placeInRing(r.now, n)
		} else {
			r.first, r.n, r.wait, err = e.place(r.now, n, w)
		}
		gone := g.since(&r, err)
		if !errors.Is(err, errFrozen) && (gone == 0 || !errors.Is(err, ErrSaturated)) {
			if r.wait > 0 && pace > 0 {
				r.wait = int64(math.Ceil(float64(r.wait) / pace))
			}
			return r, err
		}
	}
}

// since reads the clock again before a caller waits or is refused. The goroutine may have been
// descheduled between reading the clock and drawing its ticket, while others advanced the word.
// since returns how many milliseconds have passed and subtracts them from the wait.
func (g *Generator) since(r *reservation, err error) int64 {
	if r.wait == 0 && !errors.Is(err, ErrSaturated) {
		return 0
	}
	now, _, err := g.time.read()
	if err != nil || now <= r.now {
		return 0
	}
	r.wait = max(0, r.wait-(now-r.now))
	return now - r.now
}

// refuse counts err and returns it.
func (g *Generator) refuse(err error) error {
	g.errors.Add(1)
	return err
}

// sleep waits for ms milliseconds, or until ctx ends, and counts the wait.
func (g *Generator) sleep(ctx context.Context, ms int64) error {
	d := time.Duration(ms) * time.Millisecond
	g.waits.Add(1)
	g.waited.Add(int64(d))
	return deadline.Sleep(ctx, d)
}
