package clientconn

import (
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/cohort"
	"snowgate/internal/panics"
)

// Glance is how long a handler runs before its client is looked for, at most. It is at
// least half of that.
const Glance = 100 * time.Millisecond

// Waiters are the connections of a server on which something was asked a moment ago. One
// timer does for all, which runs while there are any and counts ticks, so that nobody reads
// a clock. The zero value is usable. It is safe for concurrent use.
type Waiters struct {
	tick     atomic.Uint64
	answered cohort.Cohort // who has answered a request and is about to read the next one

	mu    sync.Mutex
	conns []*Conn
	spare []*Conn     // empty, for the next sweep
	timer *time.Timer // nil: was never needed
	runs  bool        // the timer does
}

// add has c visited at every tick until that wants no more. It is called with a lock of c
// held, and so calls nothing of c.
func (w *Waiters) add(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	w.run()
}

// run sees to it that the timer does. It needs mu.
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

// sweep visits the connections. Those that wait for less than two ticks stay: the first
// may have come at once.
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
