package proxy

import (
	"time"

	"snowgate/proxy/route"
	"snowgate/proxy/transport"
	"snowgate/proxy/upstream"
)

// SetClock has r tell the time by now. It must be called before the first table.
func SetClock(r *Router, now func() time.Time) { r.upstreams.Now = now }

// SetDial has connections to replicas opened by dial. It must be called before the
// first table.
func SetDial(r *Router, dial transport.Dialer) { r.upstreams.Dial = dial }

// HastyDial is how long a connection may take to be made while there are other
// replicas.
const HastyDial = transport.FailoverDialTimeout

// LookAgain is how old the addresses of a name may be.
const LookAgain = upstream.ResolveEvery

// UseStandard has services that speak HTTP/1.1 without TLS asked by way of net/http too. It must be
// called before the first table.
func UseStandard(r *Router) { r.upstreams.Standard = true }

// KeepTurns has replicas chosen in the order of the route, as clients cannot know it. It must be called
// before the first table.
func KeepTurns(r *Router) { r.upstreams.Starts = func(uint64) uint64 { return 0 } }

// Replicas returns the state of the replicas of a route, nil if there is no route of that name. It
// does not block.
func (r *Router) Replicas(route string) []upstream.ReplicaState {
	now := r.layout()
	for i := range now.entries {
		if now.entries[i].name == route {
			return now.entries[i].balancer.States()
		}
	}
	return nil
}

// Lookup returns the route that table.Find finds, nil if it finds none.
func Lookup(table *route.Table, host, match string) *route.Route {
	if i, found := table.Find(host, match); found {
		return table.Routes[i]
	}
	return nil
}
