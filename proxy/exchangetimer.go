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
	// disconnectCheckAfter is how long an exchange lasts before anybody looks whether its client is
	// still there.
	disconnectCheckAfter = 100 * time.Millisecond
	// longRequestAfter is how long it lasts before it counts as long, and is watched.
	longRequestAfter = 500 * time.Millisecond
)

// timerOwner is who has patience. Its methods are called by other goroutines, each at most
// once, with a lock held, and must not call back.
type timerOwner interface {
	tooSlow() // the service has not answered in time
	lasting() // the exchange goes on after a glance
	long()    // and after a moment
}

// exchangeTimer waits, with one timer, for three things: for a service that takes too
// long to answer, which does not count the time in which the gateway waits for
// the client instead, and for the exchange as a whole to last, and to become a long one.
//
// The timer is set as seldom as possible, and stopped only if it would run for
// long. It may fire too early, and then looks for how long it has to go on. So it costs a
// short exchange nothing if its exchangeTimer has served another one a moment ago.
type exchangeTimer struct {
	lender *exchangeTimers
	limit  time.Duration // for the service

	mu       sync.Mutex
	owner    timerOwner
	timer    *time.Timer
	fires    time.Time // when the timer fires; zero: not at all
	deadline time.Time // of the service; zero: the gateway does not wait for it
	lasts    time.Time // when the exchange has lasted for a glance; zero: it has
	becomes  time.Time // when the exchange is long; zero: it is
	answered bool      // the service has answered, or was given up
	ended    bool
}

// exchangeTimers lends timers. One that is lent again fires as it was set before, if that is not too
// late.
type exchangeTimers struct{ pool sync.Pool }

// lend begins to wait on behalf of owner. limit is for the service.
func (s *exchangeTimers) lend(limit time.Duration, owner timerOwner) *exchangeTimer {
	p, again := s.pool.Get().(*exchangeTimer)
	if !again {
		p = newPatience()
		p.lender = s
	}
	p.begin(limit, owner)
	return p
}

func newPatience() *exchangeTimer {
	p := new(exchangeTimer)
	p.timer = time.AfterFunc(time.Hour, func() { defer panics.Catch(panics.Exchange, p.broke); p.fire() }) // set by arm
	return p
}

func (p *exchangeTimer) begin(limit time.Duration, owner timerOwner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.limit, p.owner = limit, owner
	p.deadline, p.lasts, p.becomes = now.Add(limit), now.Add(disconnectCheckAfter), now.Add(longRequestAfter)
	p.answered, p.ended = false, false
	p.arm(now)
}

// fire does what is due.
func (p *exchangeTimer) fire() {
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
func (p *exchangeTimer) broke(error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.owner.tooSlow()
	}
}

// arm sees to it that the timer fires in time for whatever comes next.
func (p *exchangeTimer) arm(now time.Time) {
	next := earlier(p.deadline, earlier(p.lasts, p.becomes))
	if next.IsZero() || !p.fires.IsZero() && !p.fires.After(next) {
		return
	}
	p.fires = next
	p.timer.Reset(next.Sub(now))
}

// pause stops the clock of the service until resume.
func (p *exchangeTimer) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = time.Time{}
}

// resume starts the clock of the service anew, unless the wait for it is over.
func (p *exchangeTimer) resume() {
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
func (p *exchangeTimer) answer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = true
	p.deadline = time.Time{}
}

// end ends all waiting. Nothing is called after it has returned.
func (p *exchangeTimer) end() {
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
func (p *exchangeTimer) giveBack() {
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
