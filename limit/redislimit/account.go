package redislimit

import (
	"time"

	"snowgate/limit"
)

// account is what one gateway knows of one client. It is guarded by the lock of
// its shard. Times count from the start of the limiter.
type account struct {
	rate limit.Rate
	// arrival is the copy of the theoretical arrival time, with all uses of this
	// gateway.
	arrival time.Duration
	// asOf is when the copy was last brought up to date.
	asOf time.Duration
	// unsettled is the number of uses that are not charged yet, or whose
	// settlement is under way.
	unsettled int
	// settled is closed when the settlement that is under way has ended; nil if
	// none is.
	settled chan struct{}
	// pausedUntil is when a settlement may be tried again after one has failed.
	pausedUntil time.Duration
	// slow tells that somebody waited in vain, and that nobody else needs to.
	slow bool
}

// longAgo is before anything that a limiter has seen.
const longAgo = -2 * limit.MaxPer

// account returns the account of client. A new one makes old ones give way.
func (p *shard) account(client string, rate limit.Rate, now time.Duration) *account {
	a := p.accounts[client]
	if a == nil {
		p.sweep(now)
		a = &account{rate: rate, asOf: longAgo, pausedUntil: longAgo}
		p.accounts[client] = a
	}
	if a.rate != rate {
		a.rate = rate
		a.arrival = min(a.arrival, now+maxLead(rate))
	}
	return a
}

// sweep removes accounts that hold nothing worth keeping, of a few that it
// happens upon: more than come in, so that the memory follows what is needed.
func (p *shard) sweep(now time.Duration) {
	seen := 0
	for client, a := range p.accounts {
		if a.idle(now) {
			delete(p.accounts, client)
		}
		if seen++; seen == 4 {
			return
		}
	}
}

// idle tells that a new account would decide the same.
func (a *account) idle(now time.Duration) bool {
	return a.settled == nil && a.arrival <= now && a.asOf <= now-a.rate.Per && a.pausedUntil <= now
}

// credit is the number of uses that may be unsettled.
func credit(rate limit.Rate) int { return max(rate.Count/10, 1) }

// maxLead is how far ahead an arrival time may be: by the burst, and by what this number of
// gateways may let through too early. Debt beyond that is forgiven.
func maxLead(rate limit.Rate) time.Duration {
	const gateways = 16
	return rate.Interval() * time.Duration(rate.Count+gateways*credit(rate))
}

// maxAge is how old a copy may be when it is used.
const maxAge = time.Second

// use counts one use. While no settlement is tried, it counts here only.
func (a *account) use(arrival, now time.Duration) {
	a.arrival = arrival
	if now >= a.pausedUntil {
		a.unsettled++
	}
}

// mustWait tells that one more use would exceed the credit.
func (a *account) mustWait(now time.Duration) bool {
	return a.unsettled >= credit(a.rate) && !a.slow && now >= a.pausedUntil
}

// due tells that it is time to settle.
func (a *account) due(now time.Duration) bool {
	if a.settled != nil || now < a.pausedUntil {
		return false
	}
	return 2*a.unsettled >= credit(a.rate) || now-a.asOf >= maxAge
}

// pause puts settlements off after one has failed. The uses that are not charged
// are let go: nobody knows whether some of them were, and when settlements work
// again, they will be long past.
func (a *account) pause(until time.Duration) {
	a.pausedUntil, a.unsettled = until, 0
}

// update takes over what a settlement of uses that was sent at sent has brought:
// how far ahead the arrival time was then. The copy never goes back, so that this
// gateway by itself keeps to the rate whatever Redis says.
func (a *account) update(uses int, sent, now, ahead time.Duration) {
	a.unsettled -= uses
	a.asOf = now
	told := sent + ahead + time.Duration(a.unsettled)*a.rate.Interval()
	a.arrival = max(a.arrival, min(told, now+maxLead(a.rate)))
}
