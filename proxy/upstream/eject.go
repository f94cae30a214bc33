package upstream

import (
	"fmt"
	"time"
)

// Report records the outcome of an attempt. It ejects the replica if the rules say so.
func (p *Balancer) Report(l Pick, b Outcome) {
	if b == Success && !l.probe && !l.Replica.health.suspect.Load() { // nothing new, which spares the clock
		if !l.alone {
			l.Replica.health.recent.passed(p.env.period(l.at))
		}
		return
	}
	p.judge(l, b)
}

// judge is Report for an outcome that can change the state of the replica.
func (p *Balancer) judge(l Pick, b Outcome) {
	h, now := &l.Replica.health, p.Now()
	if b != Success && b != Unrelated {
		l.Replica.failures.Add(1)
	}
	if l.probe {
		h.tried(now, b)
		return
	}
	switch {
	case b == Unrelated:
		return
	case l.alone: // with nobody to compare it to
	case b == Success:
		h.recent.passed(p.env.period(l.at))
	default:
		h.recent.failed(p.env.period(now))
	}
	if b == Success || b == BadStatus {
		h.answered()
	}
	switch {
	case b.breaks() && h.broke():
		p.eject(l.Replica, now, b)
	case b != Success && !l.alone && !h.checkPassed.Load() && !h.ejected.Load() && 100*h.share(p.env.period(now)) >= outlierMargin:
		p.eject(l.Replica, now, b)
	}
}

// eject ejects r for failures in a row, if b counts by itself and there were enough, or as an
// outlier among the replicas of the route. It does neither if too few replicas would be left. The
// replicas of one router are judged one after the other, so that two that fail at the same time do
// not each count on the other.
func (p *Balancer) eject(r *Replica, now time.Time, b Outcome) {
	p.env.ejecting.Lock()
	defer p.env.ejecting.Unlock()
	var few [8]candidate
	all := p.candidates(few[:0], now)
	if !spares(all, r) {
		return
	}
	if b.breaks() && r.health.isBroken() {
		r.health.eject(now, false, b, b.String())
		return
	}
	number := p.env.period(now)
	own, others := r.health.recent.sum(number), counts{}
	for _, c := range all {
		if c.Replica != r && c.Replica.health.healthy() {
			sum := c.Replica.health.recent.sum(number)
			others.good += sum.good
			others.bad += sum.bad
		}
	}
	if isOutlier(own, others) {
		r.health.eject(now, true, b, fmt.Sprintf("it failed %d of its last %d requests, the others %d of %d",
			own.bad, own.all(), others.bad, others.all()))
	}
}

// spares reports whether all can do without r: at least half of them must stay, and one.
func spares(all []candidate, r *Replica) bool {
	there, left := false, 0
	for _, c := range all {
		switch {
		case c.Replica == r:
			there = true
		case c.Replica.health.healthy():
			left++
		}
	}
	return there && left > 0 && 2*left >= len(all)
}
