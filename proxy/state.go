package proxy

import (
	"time"

	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
)

// RouteState is a route in force with the state of its replicas.
type RouteState struct {
	*route.Route
	// Since is when the route was last changed, its discovered replicas included.
	Since time.Time
	// Now is the state of its replicas. A name that was not looked up yet, or has no address, has
	// none.
	Now []upstream.ReplicaState
}

// States returns the routes in force, in the order of the table. The caller must not modify them.
// It does not block.
func (r *Router) States() []RouteState {
	now := r.layout()
	states := make([]RouteState, len(now.entries))
	for i, route := range now.table.Routes {
		states[i] = RouteState{route, now.since[i], now.entries[i].balancer.States()}
	}
	return states
}

// AllReplicas returns the state of every replica, each once, ordered by upstream. It does not
// block.
func (r *Router) AllReplicas() []upstream.ReplicaState { return r.upstreams.States() }
