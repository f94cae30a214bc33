package proxy

import (
	"errors"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// errTooSlow says that a service did not answer in time.
var errTooSlow = errors.New("proxy: no answer in time")

const (
	// glance is how long an exchange lasts before anybody looks whether its client is
	// still there.
	glance = 100 * time.Millisecond
	// moment is how long it lasts before it counts as long, and is watched.
	moment = 500 * time.Millisecond
)

// waiting is who has patience. Its methods are called by other goroutines, each at most
// once, with a lock held, and must not call back.
type waiting interface {
	tooSlow() // the service has not answered in time
	lasting() // the exchange goes on after a glance
	long()    // and after a moment
}

// patience waits, with one timer, for three things: for a service that takes too
// long to answer, which does not count the time in which the gateway waits for
// the client instead, and for the exchange as a whole to last, and to become a long one.
//
// The timer is set as seldom as possible, and stopped only if it would run for
// long. It may fire too early, and then looks for how long it has to go on. So it costs a
// short exchange nothing if its patience has served another one a moment ago.
type patience struct {
	lender *patiences
	limit  time.Duration // for the service

	mu       sync.Mutex
	owner    waiting
	timer    *time.Timer
	fires    time.Time // when the timer fires; zero: not at all
	deadline time.Time // of the service; zero: the gateway does not wait for it
	lasts    time.Time // when the exchange has lasted for a glance; zero: it has
	becomes  time.Time // when the exchange is long; zero: it is
	answered bool      // the service has answered, or was given up
	ended    bool
}

// patiences lends timers. One that is lent again fires as it was set before, if that is not too
// late.
type patiences struct{ pool sync.Pool }

// lend begins to wait on behalf of owner. limit is for the service.
func (s *patiences) lend(limit time.Duration, owner waiting) *patience {
	p, again := s.pool.Get().(*patience)
	if !again {
		p = newPatience()
		p.lender = s
	}
	p.begin(limit, owner)
	return p
}

func newPatience() *patience {
	p := new(patience)
	p.timer = time.AfterFunc(time.Hour, func() { defer panics.Catch(panics.Exchange, p.broke); p.fire() }) // set by arm
	return p
}

func (p *patience) begin(limit time.Duration, owner waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.limit, p.owner = limit, owner
	p.deadline, p.lasts, p.becomes = now.Add(limit), now.Add(glance), now.Add(moment)
	p.answered, p.ended = false, false
	p.arm(now)
}

// fire does what is due.
func (p *patience) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fires = time.Time{}
	if p.ended {
		return
	}
	now := time.Now()
	if isDue(p.lasts, now) {
		p.lasts = time.Time{}
		p.owner.lasting()
	}
	if isDue(p.becomes, now) {
		p.becomes = time.Time{}
		p.owner.long()
	}
	if isDue(p.deadline, now) {
		p.deadline = time.Time{}
		p.answered = true
		p.owner.tooSlow()
	}
	p.arm(now)
}

// broke gives the exchange up that made fire panic.
func (p *patience) broke(error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.owner.tooSlow()
	}
}

// arm sees to it that the timer fires in time for whatever comes next.
func (p *patience) arm(now time.Time) {
	next := earlier(p.deadline, earlier(p.lasts, p.becomes))
	if next.IsZero() || !p.fires.IsZero() && !p.fires.After(next) {
		return
	}
	p.fires = next
	p.timer.Reset(next.Sub(now))
}

// pause stops the clock of the service until resume.
func (p *patience) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = time.Time{}
}

// resume starts the clock of the service anew, unless the wait for it is over.
func (p *patience) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answered || p.ended {
		return
	}
	now := time.Now()
	p.deadline = now.Add(p.limit)
	p.arm(now)
}

// answer ends the wait for the service. tooSlow is not called after it has
// returned.
func (p *patience) answer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = true
	p.deadline = time.Time{}
}

// end ends all waiting. Nothing is called after it has returned.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.owner = nil         // the timer may keep p for a while, and not what has ended
	if p.lasts.IsZero() { // else it fires within a glance
		p.fires = time.Time{}
		p.timer.Stop()
	}
}

// giveBack lends the timer to others. Nobody may use p any more.
func (p *patience) giveBack() {
	p.lender.pool.Put(p)
}

func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// earlier returns the earlier of two instants; the zero Time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
