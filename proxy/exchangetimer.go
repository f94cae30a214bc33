package proxy

import (
	"errors"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// errTooSlow means that the response timeout of the route has passed.
var errTooSlow = errors.New("proxy: no response in time")

const (
	// disconnectCheckAfter is how long a round trip lasts before the gateway looks whether its client
	// is still there. Most are over by then, and need not follow the client's context.
	disconnectCheckAfter = 100 * time.Millisecond
	// longRequestAfter is how long a round trip lasts before its token is watched.
	longRequestAfter = 500 * time.Millisecond
)

// timerOwner is told when a deadline has passed. Its methods are called by the timer's goroutine, each
// at most once, with the timer's lock held, and must not call the timer.
type timerOwner interface {
	tooSlow() // the response timeout has passed
	lasting() // the round trip has lasted for disconnectCheckAfter
	long()    // and for longRequestAfter
}

// exchangeTimer serves three deadlines of a round trip with one timer: the response timeout, the
// disconnect check and the token watch. The response timeout does not run while the gateway waits for
// the client. exchangeTimer is safe for concurrent use.
//
// The timer is lent from one round trip to the next. It is set as seldom as possible, and stopped only
// if it would run for long: it may fire early, and then sets itself anew. So a short round trip sets no
// timer if another one used it a moment ago. A timer of its own for each costs 2.6 % of a request
// (docs/explained/performance.md). TestPatienceIsLentAgain fails when a timer fires for its last owner.
type exchangeTimer struct {
	lender *exchangeTimers
	limit  time.Duration // the response timeout

	mu       sync.Mutex
	owner    timerOwner
	timer    *time.Timer
	fires    time.Time // when the timer fires; zero: not at all
	deadline time.Time // of the response; zero: the gateway does not wait for it
	lasts    time.Time // of the disconnect check; zero: it was made
	becomes  time.Time // when the token is to be watched; zero: it is
	answered bool      // the header of the response has come, or was given up
	ended    bool
}

// exchangeTimers lends timers. It is safe for concurrent use.
type exchangeTimers struct{ pool sync.Pool }

// lend starts a timer on behalf of owner. limit is the response timeout. The caller must call end, and
// then giveBack if nobody else can still hold the timer.
func (s *exchangeTimers) lend(limit time.Duration, owner timerOwner) *exchangeTimer {
	p, again := s.pool.Get().(*exchangeTimer)
	if !again {
		p = newTimer()
		p.lender = s
	}
	p.begin(limit, owner)
	return p
}

func newTimer() *exchangeTimer {
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

// fire tells the owner which deadlines have passed.
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

// broke gives up the round trip whose owner panicked in fire.
func (p *exchangeTimer) broke(error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.owner.tooSlow()
	}
}

// arm sets the timer for the earliest deadline, unless it fires before that anyway.
func (p *exchangeTimer) arm(now time.Time) {
	next := earlier(p.deadline, earlier(p.lasts, p.becomes))
	if next.IsZero() || !p.fires.IsZero() && !p.fires.After(next) {
		return
	}
	p.fires = next
	p.timer.Reset(next.Sub(now))
}

// pause suspends the response timeout until resume, while the gateway waits for the client.
func (p *exchangeTimer) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadline = time.Time{}
}

// resume starts the response timeout anew, unless the response has come.
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

// responded ends the response timeout. tooSlow is not called after responded has returned.
func (p *exchangeTimer) responded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = true
	p.deadline = time.Time{}
}

// end ends all three deadlines. The owner is not called after end has returned.
func (p *exchangeTimer) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.owner = nil         // the timer may keep p for a while, but must not keep the round trip
	if p.lasts.IsZero() { // else it fires within disconnectCheckAfter
		p.fires = time.Time{}
		p.timer.Stop()
	}
}

// giveBack returns p to the timers that are lent. The caller must not use p afterwards.
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
