package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/panics"
)

// errClosed says that the router was closed.
var errClosed = errors.New("proxy: the router is closed")

// fleet holds the upstreams of the tables of one router, so that what is known of
// them, and the connections to them, survive a change of routes. The zero value
// is empty. It is safe for concurrent use.
type fleet struct {
	resolver Resolver         // nil: net.DefaultResolver
	now      func() time.Time // nil: time.Now
	dial     dialer           // nil: dialService

	ejecting sync.Mutex // held while a replica is judged; before all others

	mu        sync.Mutex
	begun     time.Time                // the first table was adopted
	upstreams map[string]*upstream     // by scheme, host and port
	inFlight  map[string]*atomic.Int64 // by the name of a route

	life    sync.Mutex      // guards what follows; may be taken while mu is held
	ctx     context.Context //nolint:containedctx // of look-ups and checks, which belong to no call
	stop    context.CancelFunc
	closed  bool
	running sync.WaitGroup
}

// dialer returns what opens connections to replicas, in time.
func (f *fleet) dialer() dialer {
	if f.dial != nil {
		return inTime(f.dial)
	}
	return inTime(dialService)
}

func (f *fleet) time() time.Time {
	if f.now != nil {
		return f.now()
	}
	return time.Now()
}

// start runs work on a goroutine of its own, unless the fleet is closed. work ends
// with its context. If work panics, broken is called, unless it is nil.
func (f *fleet) start(work func(context.Context), broken func(error)) bool {
	f.life.Lock()
	defer f.life.Unlock()
	if f.closed {
		return false
	}
	if f.ctx == nil {
		f.ctx, f.stop = context.WithCancel(context.Background())
	}
	ctx := f.ctx
	f.running.Go(func() { defer panics.Catch(panics.Upstream, broken); work(ctx) })
	return true
}

// adopt gives every route of t, in their order, the pool of its place, of the upstreams that
// are known and of new ones. Those that t does not name are let go.
func (f *fleet) adopt(t *Table, places []place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun.IsZero() {
		f.begun = f.time() // requests read it, but come after the table
	}
	known := f.upstreams
	counters := f.inFlight
	f.upstreams = make(map[string]*upstream, len(known))
	f.inFlight = make(map[string]*atomic.Int64, len(t.routes))
	checks := make(map[*upstream]*HealthCheck)
	same := newSharing(f)
	for i, route := range t.routes {
		f.inFlight[route.Name] = cmp.Or(counters[route.Name], new(atomic.Int64))
		members := make([]member, len(route.targets))
		for k, t := range route.targets {
			u := f.keep(t, known)
			members[k] = member{same.target(t), u}
			if route.Health != nil {
				checks[u] = route.Health
			}
		}
		places[i].pool.service, places[i].pool.inFlight = same.service(route, members), f.inFlight[route.Name]
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

// sharing finds what the routes of a table have in common, so that what is equal is the same.
type sharing struct {
	fleet    *fleet
	targets  map[target]*target
	services map[serviceKey]*service
}

// serviceKey is what makes a service.
type serviceKey struct {
	members    string // by their targets, each of which has one upstream
	balance    Balance
	most       int
	discovered bool
}

func newSharing(f *fleet) *sharing {
	return &sharing{f, make(map[target]*target), make(map[serviceKey]*service)}
}

func (s *sharing) target(t target) *target {
	if s.targets[t] == nil {
		s.targets[t] = &t
	}
	return s.targets[t]
}

// service returns the service of r with members, the targets of which are from s.
func (s *sharing) service(r *Route, members []member) *service {
	var identity []byte
	for _, m := range members {
		identity = fmt.Appendf(identity, "%p ", m.target)
	}
	key := serviceKey{string(identity), r.Balance, r.MaxInFlight, r.Discovered}
	if s.services[key] == nil {
		s.services[key] = &service{s.fleet, members, r.Balance, int64(r.MaxInFlight), r.Discovered}
	}
	return s.services[key]
}

// keep returns the upstream of t.
func (f *fleet) keep(t target, known map[string]*upstream) *upstream {
	key := t.upstreamKey()
	u := cmp.Or(f.upstreams[key], known[key])
	if u == nil {
		u = f.newUpstream(t)
	}
	f.upstreams[key] = u
	return u
}

// close ends look-ups and checks, waits for their end, and closes the connections
// that no request is using.
func (f *fleet) close() {
	f.life.Lock()
	f.closed = true
	if f.stop != nil {
		f.stop()
	}
	f.life.Unlock()
	f.mu.Lock()
	for _, u := range f.upstreams {
		u.retire()
	}
	f.mu.Unlock()
	f.running.Wait()
}
