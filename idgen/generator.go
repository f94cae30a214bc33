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

// Generator issues ids. It is made by New, is safe for concurrent use, and owns
// two goroutines until Close.
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
	waited atomic.Int64 // nanoseconds

	cancel context.CancelFunc
	done   sync.WaitGroup
	closed bool // guarded by mu
}

var errFrozen = errors.New("idgen: the tenure has ended")

// New acquires a worker number and returns a generator that issues ids under
// it. After a crash the first timestamp of the lease is up to the lead of its
// ceiling in the future: then New waits for it, for at most 5 s. ctx bounds the
// acquisition and this wait, nothing later. The caller must Close the generator.
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

// Next returns a new id. If the ids of this millisecond are used up it sleeps,
// for at most the wait bound (see WithMaxWait), and returns ErrSaturated
// without sleeping when that would not be enough. Other errors: ErrClosed,
// ErrNoWorker, ErrCeiling, ErrClockBehind, ErrRollbacksExhausted, ErrTimeExhausted,
// ErrBeforeEpoch and those of the clock.
func (g *Generator) Next() (ID, error) {
	e := g.tenure.Load()
	if ticket, ok := e.draw(); ok {
		return e.id(ticket), nil
	}
	return g.next(context.Background(), g.window)
}

// draw takes one published ticket. It looks before it adds, so that callers who
// find nothing open do not use up the future.
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

// NextContext is Next with a wait that is bounded by ctx alone. An id whose
// wait was given up is never issued to anybody.
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

// TryNext is Next without any wait: where Next would sleep, it returns
// ErrSaturated, or ErrCeiling if that is what it would wait for.
func (g *Generator) TryNext() (ID, error) {
	e := g.tenure.Load()
	if ticket, ok := e.draw(); ok {
		return e.id(ticket), nil
	}
	w := g.window
	w.maxWait, w.awake = 0, true
	return g.next(context.Background(), w)
}

// Fill fills dst with new ids, in rising order, and returns how many it could
// fill: all of them, or fewer and the error that Next would have returned. It
// waits as often as it takes, each time for at most the wait bound, so filling
// takes about len(dst) divided by the layout's ids per second, if that is more
// than the window holds.
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

// fillOpen fills dst from the published tickets with one atomic add, if they
// are enough for all of it.
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

// forfeit gives up n tickets that turned out not to be open.
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

// reservation is a run of n tickets that may be turned into ids after a wait.
// With n = 0 the caller shall try again after the wait.
type reservation struct {
	tenure   *tenure
	now      int64 // id time when it was made
	first, n int64
	wait     int64 // milliseconds
}

// reserve reads the clock and takes up to n tickets, at least one, sleeping
// until they may be used.
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
		case r.wait > 0 && r.tenure.slots != nil: // try another slot
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
		case r.n == 0: // it was not for a ticket
			continue
		case r.wait > 0:
			g.wake(r.tenure)
		default:
			g.pacer.observe(g, r)
		}
		return r, nil
	}
}

// attempt is one decision, without any waiting.
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

// since looks at the clock again before a caller waits or is refused: it may
// have lost the processor between reading the clock and drawing its ticket,
// while others moved the word on. It returns how many milliseconds went by, and
// takes them off the wait.
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

// refuse counts an error.
func (g *Generator) refuse(err error) error {
	g.errors.Add(1)
	return err
}

// sleep waits for ms milliseconds or until ctx ends.
func (g *Generator) sleep(ctx context.Context, ms int64) error {
	d := time.Duration(ms) * time.Millisecond
	g.waits.Add(1)
	g.waited.Add(int64(d))
	return deadline.Sleep(ctx, d)
}
