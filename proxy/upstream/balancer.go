package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"snowgate/proxy/route"
)

// Balancer is what a route sends its requests to. It is safe for concurrent use.
type Balancer struct {
	*service

	turn     atomic.Uint64
	inFlight *atomic.Int64 // of the route, over all tables
}

// service is what does not change of a pool. Routes that lead to the same have one in common,
// as with [terms].
type service struct {
	env     *environment
	members []member
	balance route.Balance
	most    int64 // in flight for one route; 0: no bound
	// discovered tells that the members are all replicas there are.
	discovered bool
}

// member is one upstream of a route.
type member struct {
	target   *route.Target
	upstream *upstream
}

// candidate is a replica with the target that it is a replica of.
type candidate struct {
	Target  *route.Target
	Replica *Replica
}

// Pick is the right to send one request to a replica.
type Pick struct {
	candidate
	at     time.Time // when it was given
	probe  bool      // the request is the one that tries a replica that was taken out
	alone  bool      // the route has no other replica
	Others bool      // there are others that it could be sent to
}

// noReplicaPause is when to ask again for a service of which no replica is there:
// containers start within seconds.
const noReplicaPause = 5 * time.Second

// ErrTried says that every replica was tried that could be.
var ErrTried = errors.New("proxy: every replica was tried")

// NoReplicaError says that the checks of all replicas fail, or that there is none.
type NoReplicaError struct {
	RetryAfter time.Duration
	absent     bool
}

func (e *NoReplicaError) Error() string {
	if e.absent {
		return "proxy: the service has no replica"
	}
	return "proxy: the health checks of all replicas fail"
}

func (s *service) Now() time.Time { return s.env.Time() }

// Enter counts one request of the route, and reports whether it may come in.
func (p *Balancer) Enter() bool {
	if n := p.inFlight.Add(1); p.most > 0 && n > p.most {
		p.inFlight.Add(-1)
		return false
	}
	return true
}

// Leave ends the counting of a request that Enter let in.
func (p *Balancer) Leave() { p.inFlight.Add(-1) }

// Pick chooses a replica that was not tried yet. It waits only for the addresses
// of names of which none is known, and asks for the context of that wait only then.
// The caller returns the lease.
func (p *Balancer) Pick(wait func() context.Context, now time.Time, tried []*Replica) (Pick, error) {
	var few [8]candidate
	all := p.candidates(few[:0], now)
	if len(all) == 0 && p.discovered {
		return Pick{}, p.none(tried)
	}
	if len(all) == 0 {
		var err error
		if all, err = p.await(wait(), all); err != nil {
			return Pick{}, err
		}
	}
	one, err := p.choose(all, now, tried)
	if err == nil {
		one.at = now
		one.Replica.InFlight.Add(1)
	}
	return one, err
}

// none says that there is no replica any more, or not yet.
func (p *Balancer) none(tried []*Replica) error {
	if len(tried) > 0 {
		return ErrTried
	}
	return &NoReplicaError{RetryAfter: noReplicaPause, absent: true}
}

// candidates appends all replicas whose addresses are known to list.
func (s *service) candidates(list []candidate, now time.Time) []candidate {
	for i := range s.members {
		for _, r := range s.members[i].upstream.current(now) {
			list = append(list, candidate{s.members[i].target, r})
		}
	}
	return list
}

// await appends the replicas of the first name that has any.
func (s *service) await(ctx context.Context, list []candidate) ([]candidate, error) {
	var failure error
	for i := range s.members {
		s.members[i].upstream.resolve() // all at once
	}
	for i := range s.members {
		found, err := s.members[i].upstream.Await(ctx)
		if err != nil {
			failure = err
			continue
		}
		for _, r := range found {
			list = append(list, candidate{s.members[i].target, r})
		}
		return list, nil
	}
	return nil, failure
}

// choose chooses one of all. If fewer than half of them are fit, or all that are were tried in
// vain, the route is in panic: it chooses among all that the checks do not call unhealthy. So no
// request is refused for what others have found out.
func (p *Balancer) choose(all []candidate, now time.Time, tried []*Replica) (Pick, error) {
	if len(all) == 1 && len(tried) == 0 && !all[0].Replica.health.unhealthy.Load() {
		return Pick{candidate: all[0], alone: true}, nil // also if another route took it out
	}
	fit, left := count(all, tried, false)
	panicking := 2*fit < len(all) || left == 0
	others := left > 0
	if panicking {
		_, left = count(all, tried, true)
		others = left > 1
	}
	for _, c := range all {
		if !slices.Contains(tried, c.Replica) && c.Replica.health.claimProbe(now, panicking) {
			return Pick{candidate: c, probe: true, Others: others}, nil
		}
	}
	switch {
	case left > 0:
		return Pick{candidate: p.next(all, left, tried, panicking), Others: left > 1}, nil
	case len(tried) > 0:
		return Pick{}, ErrTried
	default:
		return Pick{}, &NoReplicaError{RetryAfter: soonest(all)}
	}
}

// count returns how many of all are usable, and how many of these were not tried.
func count(all []candidate, tried []*Replica, panicking bool) (usable, left int) {
	for _, c := range all {
		if !c.Replica.health.usable(panicking) {
			continue
		}
		usable++
		if !slices.Contains(tried, c.Replica) {
			left++
		}
	}
	return usable, left
}

// next returns the one of all whose turn it is. left is how many there are that
// are usable and were not tried; if that has changed meanwhile, any will do.
func (p *Balancer) next(all []candidate, left int, tried []*Replica, panicking bool) candidate {
	turn, places := p.turn.Add(1)-1, uint64(left)
	skip := int((turn%places + p.env.startOf(turn/places)%places) % places)
	best, found := all[0], false
	for i := range 2 * len(all) { // twice, to begin anywhere
		c := all[i%len(all)]
		if !c.Replica.health.usable(panicking) || slices.Contains(tried, c.Replica) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if p.balance != route.LeastInFlight {
			return c
		}
		if !found || c.Replica.InFlight.Load() < best.Replica.InFlight.Load() {
			best, found = c, true
		}
	}
	return best
}

// soonest returns when the next check of one of all may pass.
func soonest(all []candidate) time.Duration {
	wait := longestPause
	for _, c := range all {
		if c.Replica.Upstream != nil {
			wait = min(wait, c.Replica.Upstream.checkInterval())
		}
	}
	return max(wait, time.Second)
}
