package proxy

import (
	"cmp"
	"slices"
	"time"
)

// ReplicaState tells how one replica of a service does.
type ReplicaState struct {
	// Upstream is scheme, host and port as the routes name them, Address what the
	// host stands for now, with the port. Of a replica that was discovered, Upstream
	// is where, a colon and its name.
	Upstream, Address string
	// Healthy tells that requests are sent to it. Changed is when that last
	// changed, zero if it never has, and Reason why it is not.
	Healthy bool
	Changed time.Time
	Reason  string
	// InFlight is the number of requests that it has not answered to the end.
	InFlight int64
	// Failures is how often it could not be reached, gave no valid answer in time,
	// or answered 502, 503 or 504.
	Failures uint64
	// Ejections is how often it was taken out.
	Ejections Ejections
}

// Ejections are numbers, one for each of [EjectionReasons].
type Ejections [len(EjectionReasons)]uint64

// RouteState is a route in force, with what its requests are sent to.
type RouteState struct {
	*Route
	// Since is when the route became what it is, replicas that were discovered
	// included.
	Since time.Time
	// Now is the state of its replicas. A name that was not asked yet, or has no
	// address, has none.
	Now []ReplicaState
}

// States returns the routes in force, in the order of the table. They must not be
// modified. It waits for nothing.
func (r *Router) States() []RouteState {
	now := r.layout()
	states := make([]RouteState, len(now.places))
	for i, route := range now.table.routes {
		states[i] = RouteState{route, now.since[i], now.places[i].pool.states()}
	}
	return states
}

// Replicas returns the state of what the route of the given name sends its
// requests to, nil if there is no such route. A name that was not asked yet, or
// has no address, has no replicas. It waits for nothing.
func (r *Router) Replicas(route string) []ReplicaState {
	now := r.layout()
	for i := range now.places {
		if now.places[i].name == route {
			return now.places[i].pool.states()
		}
	}
	return nil
}

func (s *service) states() []ReplicaState {
	var states []ReplicaState
	for _, m := range s.members {
		states = append(states, m.upstream.states()...)
	}
	return states
}

// AllReplicas returns the state of every replica of every route, each once, in
// the order of their upstreams. It waits for nothing.
func (r *Router) AllReplicas() []ReplicaState { return r.fleet.states() }

func (f *fleet) states() []ReplicaState {
	f.mu.Lock()
	var states []ReplicaState
	for _, u := range f.upstreams {
		states = append(states, u.states()...)
	}
	f.mu.Unlock()
	slices.SortFunc(states, func(a, b ReplicaState) int {
		return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Address, b.Address))
	})
	return states
}

func (u *upstream) states() []ReplicaState {
	list := u.list.Load()
	if list == nil {
		return nil
	}
	states := make([]ReplicaState, 0, len(list.all))
	for _, r := range list.all {
		one := ReplicaState{
			Upstream: u.name(), Address: r.address,
			InFlight: r.inFlight.Load(), Failures: r.failures.Load(), Ejections: r.health.ejected(),
		}
		one.Healthy, one.Changed, one.Reason = r.health.state()
		states = append(states, one)
	}
	return states
}
