package upstream

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"

	"snowgate/proxy/route"
)

// Set holds the upstreams of the tables of one router, so that what is known of them, and the connections
// to them, survive a change of routes. The zero value is empty. It is safe for concurrent use.
type Set struct {
	environment

	mu        sync.Mutex               // guards what follows
	upstreams map[string]*upstream     // by scheme, host and port
	inFlight  map[string]*atomic.Int64 // by the name of a route
}

// Adopt sets up the balancer at(i) for every route i. It reuses known upstreams, adds new ones, and
// retires those that no route names.
func (f *Set) Adopt(routes []*route.Route, at func(route int) *Balancer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun.IsZero() {
		f.begun = f.Time() // requests read it, but come after the table
	}
	known := f.upstreams
	counters := f.inFlight
	f.upstreams = make(map[string]*upstream, len(known))
	f.inFlight = make(map[string]*atomic.Int64, len(routes))
	checks := make(map[*upstream]*route.HealthCheck)
	same := newSharing(&f.environment)
	for i, route := range routes {
		f.inFlight[route.Name] = cmp.Or(counters[route.Name], new(atomic.Int64))
		members := make([]member, len(route.Targets))
		for k, t := range route.Targets {
			u := f.keep(t, known)
			members[k] = member{same.target(t), u}
			if route.Health != nil {
				checks[u] = route.Health
			}
		}
		p := at(i)
		p.service, p.inFlight = same.service(route, members), f.inFlight[route.Name]
	}
	for key, u := range known {
		if f.upstreams[key] == nil {
			u.retire()
		}
	}
	for _, u := range f.upstreams {
		u.setCheck(checks[u])
	}
}

// sharing finds equal targets and services, so that routes share them.
type sharing struct {
	env      *environment
	targets  map[route.Target]*route.Target
	services map[serviceKey]*service
}

// serviceKey identifies a service by what it consists of.
type serviceKey struct {
	members    string // by their targets, each of which has one upstream
	balance    route.Balance
	most       int
	discovered bool
}

func newSharing(env *environment) *sharing {
	return &sharing{env, make(map[route.Target]*route.Target), make(map[serviceKey]*service)}
}

func (s *sharing) target(t route.Target) *route.Target {
	if s.targets[t] == nil {
		s.targets[t] = &t
	}
	return s.targets[t]
}

// service returns the service of r with members, whose targets come from s.
func (s *sharing) service(r *route.Route, members []member) *service {
	var identity []byte
	for _, m := range members {
		identity = fmt.Appendf(identity, "%p ", m.target)
	}
	key := serviceKey{string(identity), r.Balance, r.MaxInFlight, r.Discovered}
	if s.services[key] == nil {
		s.services[key] = &service{s.env, members, r.Balance, int64(r.MaxInFlight), r.Discovered}
	}
	return s.services[key]
}

// keep returns the upstream of t, known or new.
func (f *Set) keep(t route.Target, known map[string]*upstream) *upstream {
	key := t.UpstreamKey()
	u := cmp.Or(f.upstreams[key], known[key])
	if u == nil {
		u = f.newUpstream(t)
	}
	f.upstreams[key] = u
	return u
}

// Close stops look-ups and checks, waits for their end, and closes idle connections.
func (f *Set) Close() {
	f.tasks.stop()
	f.mu.Lock()
	for _, u := range f.upstreams {
		u.retire()
	}
	f.mu.Unlock()
	f.tasks.wait()
}
