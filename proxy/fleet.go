package proxy

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
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

	mu        sync.Mutex
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
// with its context.
func (f *fleet) start(work func(context.Context)) bool {
	f.life.Lock()
	defer f.life.Unlock()
	if f.closed {
		return false
	}
	if f.ctx == nil {
		f.ctx, f.stop = context.WithCancel(context.Background())
	}
	ctx := f.ctx
	f.running.Go(func() { work(ctx) })
	return true
}

// adopt returns a pool for every route of t, in their order, of the upstreams that
// are known and of new ones. Those that t does not name are let go.
func (f *fleet) adopt(t *Table) []*pool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.upstreams
	counters := f.inFlight
	f.upstreams = make(map[string]*upstream, len(known))
	f.inFlight = make(map[string]*atomic.Int64, len(t.routes))
	pools := make([]*pool, len(t.routes))
	checks := make(map[*upstream]*HealthCheck)
	same := make(map[target]*target) // routes that name the same have it in common: a request finds it in the processor's cache
	for i, route := range t.routes {
		f.inFlight[route.Name] = cmp.Or(counters[route.Name], new(atomic.Int64))
		pools[i] = &pool{fleet: f, balance: route.Balance, most: int64(route.MaxInFlight), inFlight: f.inFlight[route.Name], discovered: route.Discovered}
		for _, t := range route.targets {
			u := f.keep(t, known)
			if same[t] == nil {
				same[t] = &t
			}
			pools[i].members = append(pools[i].members, member{same[t], u})
			if route.Health != nil {
				checks[u] = route.Health
			}
		}
	}
	for key, u := range known {
		if f.upstreams[key] == nil {
			u.retire()
		}
	}
	for _, u := range f.upstreams {
		u.setCheck(checks[u])
	}
	return pools
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
