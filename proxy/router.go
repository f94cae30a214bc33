package proxy

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/problem"
	"snowgate/request/exchange"
	"snowgate/tokens"
)

// Router holds the table of the moment, and what is known of the services behind
// it. The zero value has no routes. It is safe for concurrent use and must not be
// copied.
type Router struct {
	// Resolver looks up the names of services; nil is [net.DefaultResolver]. It
	// must be set before the first table.
	Resolver Resolver
	// Counter, if set, returns what counts the requests of the route of that name. It
	// must be set before the first table.
	Counter func(route string) exchange.Counter
	// Gone, if set, is called with the name of each route that a swap takes out of force. It
	// must be set before the first table.
	Gone func(route string)

	swapping sync.Mutex
	current  atomic.Pointer[layout]
	fleet    fleet
}

// layout is a table with what its routes send their requests to.
type layout struct {
	table  *Table
	places []place     // in the order of the routes
	since  []time.Time // when each of them became what it is
}

// place is a route in force, as requests see it. It fills one line of the processor's cache (64
// bytes), and holds only what a route cannot have in common with others: of ten thousand routes
// that are asked in turn, none is in a cache when its next request comes, and every line that
// belongs to it alone is waited for.
type place struct {
	*terms
	name    string // of the route
	pool    pool
	counter exchange.Counter // nil: nobody counts
}

// Swap makes t the table for every request from now on. Requests under way keep
// the route they have. What is known of services that t names as well, and the
// connections to them, are kept.
func (r *Router) Swap(t *Table) {
	r.swapping.Lock()
	defer r.swapping.Unlock()
	r.fleet.resolver = r.Resolver
	old, before := r.layout(), make(map[string]int)
	for i, route := range old.table.routes {
		before[route.Name] = i
	}
	next := &layout{table: t, places: make([]place, len(t.routes)), since: make([]time.Time, len(t.routes))}
	r.fleet.adopt(t, next.places)
	known := make(termsOf)
	for i, route := range t.routes {
		at := &next.places[i]
		at.terms, at.name = known.of(route), route.Name
		if r.Counter != nil {
			at.counter = r.Counter(route.Name)
		}
		next.since[i] = r.fleet.time()
		if k, was := before[route.Name]; was && old.table.routes[k].says(route) {
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

// Close ends what goes on beside the requests, and closes the connections to
// services that no request is using.
func (r *Router) Close() { r.fleet.close() }

// Table returns the table of the moment, never nil.
func (r *Router) Table() *Table { return r.layout().table }

var noLayout = &layout{table: new(Table)}

func (r *Router) layout() *layout {
	if now := r.current.Load(); now != nil {
		return now
	}
	return noLayout
}

// Match finds the route of each request and leaves it in the exchange for
// [Requirement] and [Forwarder]. It answers 404 if there is none, 400 to an
// encoded slash that the route does not allow, and 405 to a method that it does
// not allow (RFC 9110 §15.5.6), except for preflights to [CrossOrigin]. It needs the canonical path in the exchange.
func Match(router *Router) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route, err := match(router.layout(), r)
			switch {
			case err != nil:
			case !route.forwards:
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

// match leaves the route of r in its exchange, and returns it unless r is to be refused.
func match(now *layout, r *http.Request) (*place, error) {
	x := exchange.From(r.Context())
	i, found := now.table.find(r.Host, x.Path.Match)
	if found && now.table.ambiguous(r.Host, x.Path, i) {
		return nil, problem.New(http.StatusBadRequest, "The path belongs to another place by another reading.", nil)
	}
	var route *place
	if found {
		route = &now.places[i]
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
func (p *place) refuseMethod(r *http.Request) error {
	if p.allow.include(r.Method) {
		return nil
	}
	return problem.MethodNotAllowed(string(p.allow))
}

// matched returns the route that Match found, or nil.
func matched(x *exchange.Exchange) *place {
	found, _ := x.Matched.(*place)
	return found
}

// Requirement tells what the route of r asks of a token, and whether it asks
// for one at all. A request without a route needs a token: who forgets [Match]
// gets no open door.
func Requirement(r *http.Request) (tokens.Requirement, bool) {
	route := matched(exchange.From(r.Context()))
	if route == nil {
		return tokens.Requirement{}, true
	}
	return route.Requirement, !route.Public
}
