package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Balance is how a route chooses among its replicas.
type Balance string

// The ways to choose.
const (
	RoundRobin    Balance = "round_robin"     // in turn; the default
	LeastInFlight Balance = "least_in_flight" // who has the fewest requests to answer
)

// pool is what a route sends its requests to. It is safe for concurrent use.
type pool struct {
	*service

	turn     atomic.Uint64
	inFlight *atomic.Int64 // of the route, over all tables
}

// service is what does not change of a pool. Routes that lead to the same have one in common,
// as with [terms].
type service struct {
	fleet   *fleet
	members []member
	balance Balance
	most    int64 // in flight for one route; 0: no bound
	// discovered tells that the members are all replicas there are.
	discovered bool
}

// member is one upstream of a route.
type member struct {
	target   *target
	upstream *upstream
}

// candidate is a replica with the target that it is a replica of.
type candidate struct {
	target  *target
	replica *replica
}

// lease is the right to send one request to a replica.
type lease struct {
	candidate
	probe  bool // the request is the one that tries a replica that was taken out
	alone  bool // the route has no other replica
	others bool // there are others that it could be sent to
}

// noReplicaPause is when to ask again for a service of which no replica is there:
// containers start within seconds.
const noReplicaPause = 5 * time.Second

// maxTries is how many replicas one request is tried on.
const maxTries = 4

// errTried says that every replica was tried that could be.
var errTried = errors.New("proxy: every replica was tried")

// noReplicaError says that all replicas were taken out, or that there is none.
type noReplicaError struct {
	retryAfter time.Duration
	absent     bool
}

func (e *noReplicaError) Error() string {
	if e.absent {
		return "proxy: the service has no replica"
	}
	return fmt.Sprintf("proxy: no replica is fit; one is tried again in %s", e.retryAfter.Round(time.Millisecond))
}

func (s *service) now() time.Time { return s.fleet.time() }

// enter counts one request of the route, and reports whether it may come in.
func (p *pool) enter() bool {
	if n := p.inFlight.Add(1); p.most > 0 && n > p.most {
		p.inFlight.Add(-1)
		return false
	}
	return true
}

func (p *pool) leave() { p.inFlight.Add(-1) }

// lease chooses a replica that was not tried yet. It waits only for the addresses
// of names of which none is known, and asks for the context of that wait only then.
// The caller returns the lease.
func (p *pool) lease(wait func() context.Context, now time.Time, tried []*replica) (lease, error) {
	var few [8]candidate
	all := p.candidates(few[:0], now)
	if len(all) == 0 && p.discovered {
		return lease{}, p.none(tried)
	}
	if len(all) == 0 {
		var err error
		if all, err = p.await(wait(), all); err != nil {
			return lease{}, err
		}
	}
	one, err := p.choose(all, now, tried)
	if err == nil {
		one.replica.inFlight.Add(1)
	}
	return one, err
}

// none says that there is no replica any more, or not yet.
func (p *pool) none(tried []*replica) error {
	if len(tried) > 0 {
		return errTried
	}
	return &noReplicaError{retryAfter: noReplicaPause, absent: true}
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
		found, err := s.members[i].upstream.await(ctx)
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

// choose chooses one of all.
func (p *pool) choose(all []candidate, now time.Time, tried []*replica) (lease, error) {
	if len(all) == 1 && len(tried) == 0 && !all[0].replica.health.unfit.Load() {
		return lease{candidate: all[0], alone: true}, nil // also if another route took it out
	}
	fit, left := 0, 0 // left: fit and not tried
	for _, c := range all {
		if c.replica.health.fit() {
			fit++
			if !slices.Contains(tried, c.replica) {
				left++
			}
		}
	}
	for _, c := range all {
		if !slices.Contains(tried, c.replica) && c.replica.health.claim(now, fit == 0) {
			return lease{candidate: c, probe: true, others: left > 0}, nil
		}
	}
	switch {
	case left > 0:
		return lease{candidate: p.next(all, left, tried), others: left > 1}, nil
	case len(tried) > 0:
		return lease{}, errTried
	default:
		return lease{}, &noReplicaError{retryAfter: soonest(all, now)}
	}
}

// next returns the one of all whose turn it is. left is how many there are that
// are fit and were not tried; if that has changed meanwhile, any will do.
func (p *pool) next(all []candidate, left int, tried []*replica) candidate {
	skip := int((p.turn.Add(1) - 1) % uint64(left))
	best, found := all[0], false
	for i := range 2 * len(all) { // twice, to begin anywhere
		c := all[i%len(all)]
		if !c.replica.health.fit() || slices.Contains(tried, c.replica) {
			continue
		}
		if skip > 0 {
			skip--
			continue
		}
		if p.balance != LeastInFlight {
			return c
		}
		if !found || c.replica.inFlight.Load() < best.replica.inFlight.Load() {
			best, found = c, true
		}
	}
	return best
}

// soonest returns when the first of all may be tried again.
func soonest(all []candidate, now time.Time) time.Duration {
	wait := longestPause
	for _, c := range all {
		if c.replica.health.out.Load() && !c.replica.health.unfit.Load() {
			wait = min(wait, c.replica.health.wait(now))
		} else if c.replica.upstream != nil {
			wait = min(wait, c.replica.upstream.checkInterval())
		}
	}
	return max(wait, time.Second)
}
