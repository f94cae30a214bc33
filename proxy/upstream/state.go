package upstream

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
