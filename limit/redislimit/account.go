package redislimit

import (
	"time"

	"snowgate/limit"
)

// account is the state of one client on one gateway. The lock of its shard guards it. Times are
// relative to the start of the limiter.
type account struct {
	rate limit.Rate
	// arrival is the local copy of the theoretical arrival time. It includes all uses on this
	// gateway.
	arrival time.Duration
	// asOf is when the copy was last brought up to date.
	asOf time.Duration
	// unsettled is the number of uses that are not charged yet, or whose settlement is in flight.
	unsettled int
	// settled is closed when the settlement in flight has ended; nil: there is none.
	settled chan struct{}
	// pausedUntil is when settlements may be tried again after one has failed.
	pausedUntil time.Duration
	// slow is true after a request has waited in vain. Other requests then do not wait.
	slow bool
}

// longAgo is earlier than any time of a limiter.
const longAgo = -2 * limit.MaxPer

// account returns the account of client. When it makes a new one, it removes idle accounts.
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

// sweep examines a few random accounts and removes idle ones. It examines four for each account
// that is added, so that the memory follows the number of active clients.
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

// idle reports whether a new account would lead to the same decisions.
func (a *account) idle(now time.Duration) bool {
	return a.settled == nil && a.arrival <= now && a.asOf <= now-a.rate.Per && a.pausedUntil <= now
}

// credit returns the number of uses that may be unsettled.
func credit(rate limit.Rate) int { return max(rate.Count/10, 1) }

// maxLead returns how far ahead an arrival time may be: by the burst, and by what that number of
// gateways may allow too early. Debt beyond that is dropped.
func maxLead(rate limit.Rate) time.Duration {
	const gateways = 16
	return rate.Interval() * time.Duration(rate.Count+gateways*credit(rate))
}

// maxAge is the maximum age of a copy that a decision uses.
const maxAge = time.Second

// use counts one use. While settlements are paused, it counts only locally.
func (a *account) use(arrival, now time.Duration) {
	a.arrival = arrival
	if now >= a.pausedUntil {
		a.unsettled++
	}
}

// mustWait reports whether one more use would exceed the credit.
func (a *account) mustWait(now time.Duration) bool {
	return a.unsettled >= credit(a.rate) && !a.slow && now >= a.pausedUntil
}

// due reports whether a settlement should start.
func (a *account) due(now time.Duration) bool {
	if a.settled != nil || now < a.pausedUntil {
		return false
	}
	return 2*a.unsettled >= credit(a.rate) || now-a.asOf >= maxAge
}

// pause delays settlements after one has failed. It drops the unsettled uses, because Redis may
// have charged some of them, and they will be long past when settlements work again.
func (a *account) pause(until time.Duration) {
	a.pausedUntil, a.unsettled = until, 0
}

// update applies the result of a settlement that was sent at sent: how far ahead the arrival time
// was. The copy never goes back, so this gateway alone keeps to the rate whatever Redis replies.
func (a *account) update(uses int, sent, now, ahead time.Duration) {
	a.unsettled -= uses
	a.asOf = now
	told := sent + ahead + time.Duration(a.unsettled)*a.rate.Interval()
	a.arrival = max(a.arrival, min(told, now+maxLead(a.rate)))
}
