package upstream

import (
	"cmp"
	"slices"
	"time"
)

// ReplicaState is the state of one replica of a service, for operators.
type ReplicaState struct {
	// Upstream is scheme, host and port as in the configuration. Address is what the host resolves
	// to now, with the port. For a discovered replica, Upstream is the source, a colon and its
	// name.
	Upstream, Address string
	// Healthy is true if the replica gets requests. Changed is when that changed last, zero if it
	// never did. Reason is why the replica is not healthy.
	Healthy bool
	Changed time.Time
	Reason  string
	// InFlight is the number of requests that the replica has not finished.
	InFlight int64
	// Failures counts attempts that found no connection, got no valid response in time, or got
	// 502, 503 or 504.
	Failures uint64
	// Ejections counts how often the replica was ejected, by reason.
	Ejections Ejections
}

// Ejections are counters, one for each of [EjectionReasons].
type Ejections [len(EjectionReasons)]uint64

func (s *service) States() []ReplicaState {
	var states []ReplicaState
	for _, m := range s.members {
		states = append(states, m.upstream.states()...)
	}
	return states
}

// States returns the state of every replica, each once, in the order of their upstreams. It waits for
// nothing.
func (f *Set) States() []ReplicaState {
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
			InFlight: r.InFlight.Load(), Failures: r.failures.Load(), Ejections: r.health.timesEjected(),
		}
		one.Healthy, one.Changed, one.Reason = r.health.state()
		states = append(states, one)
	}
	return states
}
