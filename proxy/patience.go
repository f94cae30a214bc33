package proxy

import (
	"errors"
	"sync"
	"time"
)

// errTooSlow says that a service did not answer in time.
var errTooSlow = errors.New("proxy: no answer in time")

// moment is how long an exchange lasts before it counts as long, and is watched.
const moment = 500 * time.Millisecond

// patience waits, with one timer, for two things: for a service that takes too
// long to answer, which does not count the time in which the gateway waits for
// the client instead, and for the exchange as a whole to become a long one.
//
// The timer is set as seldom as possible. It may fire too early, and then looks
// for how long it has to go on. So it costs a short exchange no more than to be
// made and stopped.
type patience struct {
	limit time.Duration // for the service
	give  func()        // the service took too long
	long  func()        // the exchange has lasted for a moment; nil: nobody asks

	mu       sync.Mutex
	timer    *time.Timer
	fires    time.Time // when the timer fires; zero: not at all
	deadline time.Time // of the service; zero: the gateway does not wait for it
	becomes  time.Time // when the exchange is long; zero: it is already, or nobody asks
	answered bool      // the service has answered, or was given up
	ended    bool
}

// newPatience calls give when limit has passed, at most once, and long, unless
// it is nil, after a moment. Both are called with a lock held and must not call
// back.
func newPatience(limit time.Duration, give, long func()) *patience {
	now := time.Now()
	p := &patience{limit: limit, give: give, long: long, deadline: now.Add(limit)}
	p.fires = p.deadline
	if long != nil {
		p.becomes = now.Add(moment)
		p.fires = earlier(p.fires, p.becomes)
	}
	p.mu.Lock() // the timer may fire before it is stored
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.fires.Sub(now), p.fire)
	return p
}

// fire does what is due.
func (p *patience) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	now := time.Now()
	p.fires = time.Time{}
	if isDue(p.becomes, now) {
		p.becomes = time.Time{}
		p.long()
	}
	if isDue(p.deadline, now) {
		p.deadline = time.Time{}
		p.answered = true
		p.give()
	}
	p.arm(now)
}

// arm sees to it that the timer fires in time for whatever comes next.
func (p *patience) arm(now time.Time) {
	next := earlier(p.deadline, p.becomes)
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

// answer ends the wait for the service. give is not called after it has
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
	p.timer.Stop()
}

func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// earlier returns the earlier of two instants; the zero Time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
