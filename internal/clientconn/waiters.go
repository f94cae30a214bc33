package clientconn

import (
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/cohort"
	"snowgate/internal/panics"
)

// Glance is the longest time that a handler runs before the disconnect check of its client begins.
// The shortest is half of it.
const Glance = 100 * time.Millisecond

// Waiters are the connections of a server whose handlers may need a disconnect check. One timer
// serves them all. It runs while there are any, and counts ticks, so that no request reads a clock.
// The zero value is ready to use. Waiters is safe for concurrent use.
type Waiters struct {
	tick      atomic.Uint64
	responded cohort.Cohort // gathers goroutines that have responded before they read the next request

	mu    sync.Mutex
	conns []*Conn
	spare []*Conn     // empty slice for the next sweep
	timer *time.Timer // nil: not needed yet
	runs  bool        // the timer runs
}

// add makes the timer visit c at every tick, until c wants no more visits. The caller holds a lock
// of c, so add must not call methods of c.
func (w *Waiters) add(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	w.run()
}

// run starts the timer if it does not run. The caller holds mu.
func (w *Waiters) run() {
	switch {
	case w.runs:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(Glance/2, func() { defer panics.Catch(panics.Client, nil); w.sweep() })
	default:
		w.timer.Reset(Glance / 2)
	}
	w.runs = true
}

// sweep visits the connections. A connection that has waited for less than two ticks stays, because
// its first tick may have come at once.
func (w *Waiters) sweep() {
	now := w.tick.Add(1)
	w.mu.Lock()
	visited := w.conns
	w.conns, w.spare = w.spare, nil
	w.mu.Unlock()
	stay := visited[:0]
	for _, c := range visited {
		if c.visit(now) {
			stay = append(stay, c)
		}
	}
	clear(visited[len(stay):])
	w.mu.Lock()
	defer w.mu.Unlock()
	came := w.conns
	stay = append(stay, came...)
	w.conns = stay
	clear(came)
	w.spare = came[:0]
	if w.runs = len(w.conns) > 0; w.runs {
		w.timer.Reset(Glance / 2)
	}
}
