package clientconn

import (
	"sync"
	"time"
)

// Glance is how long a background read waits before it begins, at most. It is at least
// half of that.
const Glance = 100 * time.Millisecond

// Waiters are the connections of a server whose background read waits. One timer does for
// all, which runs while there are any: they are ordered by age, and their age is
// counted in ticks, so that nobody reads a clock. The zero value is usable. It is safe for
// concurrent use.
type Waiters struct {
	mu     sync.Mutex
	oldest *Conn
	newest *Conn
	tick   uint64      // counts
	timer  *time.Timer // nil: was never needed
	runs   bool        // the timer does
}

// place is that of a connection within the order; guarded by Waiters.mu.
type place struct {
	older, newer *Conn
	since        uint64 // tick
	taken        bool
}

func (w *Waiters) add(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.place.taken {
		return // two at once: what releases the first releases both
	}
	c.place = place{older: w.newest, since: w.tick, taken: true}
	if w.newest != nil {
		w.newest.place.newer = c
	} else {
		w.oldest = c
	}
	w.newest = c
	if !w.runs {
		w.run()
	}
}

// remove takes c out, if it is still there.
func (w *Waiters) remove(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.place.taken {
		w.takeOut(c)
	}
}

func (w *Waiters) takeOut(c *Conn) {
	older, newer := c.place.older, c.place.newer
	if older != nil {
		older.place.newer = newer
	} else {
		w.oldest = newer
	}
	if newer != nil {
		newer.place.older = older
	} else {
		w.newest = older
	}
	c.place = place{}
}

// run starts the timer.
func (w *Waiters) run() {
	w.runs = true
	if w.timer == nil {
		w.timer = time.AfterFunc(Glance/2, w.sweep)
		return
	}
	w.timer.Reset(Glance / 2)
}

// sweep releases who has waited for two ticks: the first one may have come at once.
func (w *Waiters) sweep() {
	for _, c := range w.overdue() {
		c.release() // locks c, which must not happen under w.mu
	}
}

func (w *Waiters) overdue() []*Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tick++
	var found []*Conn
	for w.oldest != nil && w.tick-w.oldest.place.since >= 2 {
		found = append(found, w.oldest)
		w.takeOut(w.oldest)
	}
	if w.runs = w.oldest != nil; w.runs {
		w.run()
	}
	return found
}
