package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/route"
	"snowgate/proxy/transport"
)

// errClosed says that the router was closed.
var errClosed = errors.New("proxy: the router is closed")

// Set holds the upstreams of the tables of one router, so that what is known of
// them, and the connections to them, survive a change of routes. The zero value
// is empty. It is safe for concurrent use.
type Set struct {
	Resolver Resolver                                  // nil: net.DefaultResolver
	Now      func() time.Time                          // nil: time.Now
	Dial     transport.Dialer                          // nil: dialService
	Starts   func(round uint64) uint64                 // where a round of turns begins; nil: randomStart
	Standard bool                                      // HTTP/1.1 without TLS is sent by the transport of net/http, too
	Checked  func(upstream, address string, err error) // told when the check of a replica fails first, or passes again; nil: nobody is

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

// startOf returns at which place a round of turns begins.
func (f *Set) startOf(round uint64) uint64 {
	if f.Starts != nil {
		return f.Starts(round)
	}
	return randomStart(round)
}

// newTransport returns the way to a replica of u.
func (u *upstream) newTransport(address string) transport.Transport {
	p := u.protocol
	if u.fleet.Standard && p == transport.HTTP11 {
		p = transport.Standard11
	}
	return transport.New(address, u.scheme, p, u.whileThere(u.fleet.dialer()))
}

// dialer returns what opens connections to replicas, in time.
func (f *Set) dialer() transport.Dialer {
	if f.Dial != nil {
		return transport.InTime(f.Dial)
	}
	return transport.InTime(transport.DialService)
}

func (f *Set) Time() time.Time {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now()
}

// start runs work on a goroutine of its own, unless the fleet is closed. work ends
// with its context. If work panics, broken is called, unless it is nil.
func (f *Set) start(work func(context.Context), broken func(error)) bool {
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

// Adopt makes a pool for every route, of the upstreams that are known and of new ones, and puts it
// where at says. Upstreams that no route names are let go.
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
	same := newSharing(f)
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

// sharing finds what the routes of a table have in common, so that what is equal is the same.
type sharing struct {
	fleet    *Set
	targets  map[route.Target]*route.Target
	services map[serviceKey]*service
}

// serviceKey is what makes a service.
type serviceKey struct {
	members    string // by their targets, each of which has one upstream
	balance    route.Balance
	most       int
	discovered bool
}

func newSharing(f *Set) *sharing {
	return &sharing{f, make(map[route.Target]*route.Target), make(map[serviceKey]*service)}
}

func (s *sharing) target(t route.Target) *route.Target {
	if s.targets[t] == nil {
		s.targets[t] = &t
	}
	return s.targets[t]
}

// service returns the service of r with members, the targets of which are from s.
func (s *sharing) service(r *route.Route, members []member) *service {
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
func (f *Set) keep(t route.Target, known map[string]*upstream) *upstream {
	key := t.UpstreamKey()
	u := cmp.Or(f.upstreams[key], known[key])
	if u == nil {
		u = f.newUpstream(t)
	}
	f.upstreams[key] = u
	return u
}

// Close ends look-ups and checks, waits for their end, and closes the connections
// that no request is using.
func (f *Set) Close() {
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
