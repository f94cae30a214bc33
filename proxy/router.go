package proxy

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
	"snowgate/tokens"
)

// Router holds the current table of routes and the replicas of their services. The zero value has
// no routes. It is safe for concurrent use and must not be copied.
type Router struct {
	// Resolver looks up the names of services; nil is [net.DefaultResolver]. It
	// must be set before the first table.
	Resolver upstream.Resolver
	// Counter, if set, returns what counts the requests of the route of that name. It
	// must be set before the first table.
	Counter func(route string) exchange.Counter
	// Gone, if set, is called with the name of each route that a swap takes out of force. It
	// must be set before the first table.
	Gone func(route string)
	// Checked, if set, is called when the health check of a replica fails for the first time, with
	// the reason, and when it passes again, with nil. It must be set before the first table, may be
	// called by many goroutines at once, and must not wait.
	Checked func(upstream, address string, err error)

	swapping  sync.Mutex
	current   atomic.Pointer[snapshot]
	upstreams upstream.Set
}

// snapshot is a table together with the balancers of its routes. It never changes.
type snapshot struct {
	table   *route.Table
	entries []entry     // in the order of the routes
	since   []time.Time // when each of them became what it is
}

// entry is a route in force, as requests see it. It fits into one cache line (64 bytes) and holds
// only what differs from route to route. With ten thousand routes, the entry of a request is in no
// cache of the processor, and every line that belongs to one route alone costs a wait.
type entry struct {
	*route.Policy
	name     string // of the route
	balancer upstream.Balancer
	counter  exchange.Counter // nil: nobody counts
}

// Swap makes t the table for every request from now on. Requests in flight keep the route that they
// have. Replicas of services that t still names keep their state and their connections.
func (r *Router) Swap(t *route.Table) {
	r.swapping.Lock()
	defer r.swapping.Unlock()
	r.upstreams.Resolver = r.Resolver
	if r.upstreams.Checked == nil && r.Checked != nil { // later, checks read it
		r.upstreams.Checked = r.Checked
	}
	old, before := r.layout(), make(map[string]int)
	for i, route := range old.table.Routes {
		before[route.Name] = i
	}
	next := &snapshot{table: t, entries: make([]entry, len(t.Routes)), since: make([]time.Time, len(t.Routes))}
	r.upstreams.Adopt(t.Routes, func(i int) *upstream.Balancer { return &next.entries[i].balancer })
	known := make(route.Policies)
	for i, route := range t.Routes {
		at := &next.entries[i]
		at.Policy, at.name = known.Of(route), route.Name
		if r.Counter != nil {
			at.counter = r.Counter(route.Name)
		}
		next.since[i] = r.upstreams.Time()
		if k, was := before[route.Name]; was && old.table.Routes[k].Says(route) {
			next.since[i] = old.since[k]
		}
		delete(before, route.Name)
	}
	r.current.Store(next)
	if r.Gone != nil {
		for name := range before {
			r.Gone(name)
		}
	}
}

// Close stops look-ups and health checks, and closes the connections that no request uses.
func (r *Router) Close() { r.upstreams.Close() }

// Table returns the current table. It is never nil.
func (r *Router) Table() *route.Table { return r.layout().table }

var noLayout = &snapshot{table: new(route.Table)}

func (r *Router) layout() *snapshot {
	if now := r.current.Load(); now != nil {
		return now
	}
	return noLayout
}

// Match returns a middleware that finds the route of each request and stores it in the exchange,
// for [Requirement] and [Forwarder]. It responds with 404 if there is no route, with 400 to an
// encoded slash that the route does not allow, and with 405 to a method that the route does not
// allow (RFC 9110 §15.5.6). Preflights for [CrossOrigin] pass. The exchange must have the canonical
// path.
func Match(router *Router) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route, err := match(router.layout(), r)
			switch {
			case err != nil:
			case !route.Forwards:
				err = problem.New(http.StatusNotFound, "", nil) // for forward-auth only
			case !route.takesPreflight(r):
				err = route.refuseMethod(r)
			}
			if err != nil {
				problem.Write(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// match stores the route of r in its exchange and returns it, or the error with which r is refused.
func match(now *snapshot, r *http.Request) (*entry, error) {
	x := exchange.From(r.Context())
	i, found := now.table.Find(r.Host, x.Path.Match)
	if found && now.table.Ambiguous(r.Host, x.Path, i) {
		return nil, problem.New(http.StatusBadRequest, "The path belongs to another place by another reading.", nil)
	}
	var route *entry
	if found {
		route = &now.entries[i]
		x.Matched, x.Route, x.Counter = route, route.name, route.counter
	}
	switch {
	case x.Path.EncodedSlash && (!found || !route.AllowEncodedSlash):
		// Before the 404, because which route it would be depends on the reading.
		return nil, problem.New(http.StatusBadRequest, "The path has an encoded slash.", nil)
	case !found:
		return nil, problem.New(http.StatusNotFound, "", nil)
	}
	return route, nil
}

// refuseMethod returns an error if the route does not allow the method of r.
func (p *entry) refuseMethod(r *http.Request) error {
	if p.Allow.Include(r.Method) {
		return nil
	}
	return problem.MethodNotAllowed(string(p.Allow))
}

// matched returns the route that Match found, or nil.
func matched(x *exchange.Exchange) *entry {
	found, _ := x.Matched.(*entry)
	return found
}

// Requirement returns what the route of r requires of a token, and whether it requires one. A
// request without a route requires a token, so that a forgotten [Match] opens nothing.
func Requirement(r *http.Request) (tokens.Requirement, bool) {
	route := matched(exchange.From(r.Context()))
	if route == nil {
		return tokens.Requirement{}, true
	}
	return route.Requirement, !route.Public
}

// Challenge returns a function that says what the response to a request without a good token holds:
// common, unless the route of the request is a protected resource of its own ([route.Resource]).
func Challenge(common problem.Challenge) func(*http.Request) problem.Challenge {
	return func(r *http.Request) problem.Challenge {
		route := matched(exchange.From(r.Context()))
		if route == nil {
			return common
		}
		return challengeOf(common, route.Policy)
	}
}

func challengeOf(common problem.Challenge, policy *route.Policy) problem.Challenge {
	if policy.Resource.Metadata == "" {
		return common
	}
	return problem.Challenge{ResourceMetadata: policy.Resource.Metadata, Scope: policy.Requirement.Scope}
}
