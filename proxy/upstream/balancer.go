package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"snowgate/proxy/route"
)

// Balancer picks a replica for each attempt of the requests of one route. It is safe for concurrent
// use.
type Balancer struct {
	*service

	turn     atomic.Uint64
	inFlight *atomic.Int64 // of the route, over all tables
}

// service is the immutable part of a balancer. Routes with equal targets and limits share one.
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

// Pick is the replica that was chosen for one attempt.
type Pick struct {
	candidate
	at     time.Time // when it was picked
	probe  bool      // the attempt probes an ejected replica
	alone  bool      // the route has no other replica
	Others bool      // the request could be sent to another replica, too
}

// noReplicaPause is when to ask again for a service of which no replica is there:
// containers start within seconds.
const noReplicaPause = 5 * time.Second

// ErrTried means that the request was tried on every usable replica.
var ErrTried = errors.New("proxy: every replica was tried")

// NoReplicaError means that a service has no replica, or that the checks of all its replicas fail.
// RetryAfter is when a replica may be there again.
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

// Admit counts one request of the route. It reports false if the route is at its limit. After true,
// the caller must call Release.
func (p *Balancer) Admit() bool {
	if n := p.inFlight.Add(1); p.most > 0 && n > p.most {
		p.inFlight.Add(-1)
		return false
	}
	return true
}

// Release ends a request that Admit has counted.
func (p *Balancer) Release() { p.inFlight.Add(-1) }

// Pick chooses a replica that is not in tried and adds one to its InFlight; the caller takes that
// back. Pick blocks only while no address is known. Only then does it call wait, for a context.
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

// choose picks one of all. If fewer than half are healthy, or all healthy ones were tried, the route
// is in panic: choose then ignores ejections and heeds only the active checks. So failures of some
// requests never make the gateway refuse others.
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
