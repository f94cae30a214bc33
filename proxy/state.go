package proxy

import (
	"time"

	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
)

// RouteState is a route in force, with what its requests are sent to.
type RouteState struct {
	*route.Route
	// Since is when the route became what it is, replicas that were discovered
	// included.
	Since time.Time
	// Now is the state of its replicas. A name that was not asked yet, or has no
	// address, has none.
	Now []upstream.ReplicaState
}

// States returns the routes in force, in the order of the table. They must not be
// modified. It waits for nothing.
func (r *Router) States() []RouteState {
	now := r.layout()
	states := make([]RouteState, len(now.entries))
	for i, route := range now.table.Routes {
		states[i] = RouteState{route, now.since[i], now.entries[i].balancer.States()}
	}
	return states
}

// Replicas returns the state of what the route of the given name sends its
// requests to, nil if there is no such route. A name that was not asked yet, or
// has no address, has no replicas. It waits for nothing.
func (r *Router) Replicas(route string) []upstream.ReplicaState {
	now := r.layout()
	for i := range now.entries {
		if now.entries[i].name == route {
			return now.entries[i].balancer.States()
		}
	}
	return nil
}

// AllReplicas returns the state of every replica of every route, each once, in
// the order of their upstreams. It waits for nothing.
func (r *Router) AllReplicas() []upstream.ReplicaState { return r.upstreams.States() }
