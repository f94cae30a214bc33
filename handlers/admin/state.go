package admin

import (
	"net/http"
	"slices"

	"snowgate/handlers"
)

// Route is a route in force, as an administrator sees it.
type Route struct {
	Name      string   `json:"name"`
	Source    string   `json:"source"`          // file or docker
	Owner     string   `json:"owner,omitempty"` // whose it is there, such as project/service
	Changed   string   `json:"changed"`         // RFC 3339: when it became what it is
	Host      string   `json:"host,omitempty"`
	Path      string   `json:"path"`
	Methods   []string `json:"methods"` // empty: all but CONNECT and TRACE
	Scopes    []string `json:"scopes"`  // all are needed
	Audience  string   `json:"audience,omitempty"`
	Public    bool     `json:"public"`
	WebSocket bool     `json:"websocket"`
	Upstreams []string `json:"upstreams"`
	// Replicas are the addresses that the upstreams stand for, or that were
	// discovered. A name that was not asked yet, or that does not resolve, has none.
	Replicas []Replica `json:"replicas"`
}

// Replica is one address of an upstream.
type Replica struct {
	Upstream string `json:"upstream"`
	Address  string `json:"address"`
	Healthy  bool   `json:"healthy"`           // requests are sent to it
	Changed  string `json:"changed,omitempty"` // RFC 3339: when that was last found; empty: it always was
	Reason   string `json:"reason,omitempty"`  // why it is not healthy
	InFlight int64  `json:"in_flight"`
	Failures uint64 `json:"failures"`
}

// Discovery is what is known of where routes are discovered.
type Discovery struct {
	Source  string `json:"source"` // docker
	Up      bool   `json:"up"`     // it can be reached
	Error   string `json:"error,omitempty"`
	Changed string `json:"changed,omitempty"` // RFC 3339: when that last changed
	Listed  string `json:"listed,omitempty"`  // RFC 3339: when it was last looked at in full
	// Containers are all that ask to be taken in, Refused the routes that are in the
	// way of others and so not in force.
	Containers []Container    `json:"containers"`
	Refused    []RefusedRoute `json:"refused"`
}

// Container is what became of one container.
type Container struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	Route   string `json:"route,omitempty"`
	Address string `json:"address,omitempty"`
	State   string `json:"state"`            // serving, waiting or rejected
	Reason  string `json:"reason,omitempty"` // why it does not serve
}

// RefusedRoute is a route that was discovered and is not in force.
type RefusedRoute struct {
	Name   string `json:"name"`
	Owner  string `json:"owner"`
	Reason string `json:"reason"`
}

// Health is the state of one gateway.
type Health struct {
	handlers.Readiness
	Version string `json:"version"`
	Commit  string `json:"commit"`
	// Redis tells about the store as it was found last.
	Redis RedisHealth `json:"redis"`
	// IDs is the report of the id generator.
	IDs IDHealth `json:"ids"`
	// Revision is that of the shared state this gateway has, Clients and Rules
	// what it holds of it.
	Revision uint64 `json:"revision"`
	Clients  int    `json:"clients"`
	Rules    int    `json:"rules"`
}

// RedisHealth is the state of the store.
type RedisHealth struct {
	Reachable bool `json:"reachable"`
	// RoundTrip is how long the last probe took, in milliseconds.
	RoundTrip float64 `json:"round_trip_ms"`
	// Policy is maxmemory-policy; every other than noeviction throws live tokens
	// away when Redis is full. Empty: not known.
	Policy string `json:"maxmemory_policy,omitempty"`
}

// IDHealth is how the id generator of one gateway is.
type IDHealth struct {
	Healthy bool   `json:"healthy"`          // an id would be issued now
	Reason  string `json:"reason,omitempty"` // why it would not
	// Worker is the number that the gateway holds; nil: none. LastHeartbeat is when its lease was
	// last got or renewed, in RFC 3339; empty: not yet.
	Worker        *int64 `json:"worker,omitempty"`
	LastHeartbeat string `json:"last_heartbeat,omitempty"`
	// Generated ids, Errors of calls and heartbeats, and Rollbacks, the steps back of the clock that
	// were ridden through or counted, are those since the gateway was started.
	Generated int64 `json:"generated"`
	Errors    int64 `json:"errors"`
	Rollbacks int64 `json:"rollbacks"`
}

// listRoutes lists the routes in force.
func (a *API) listRoutes(w http.ResponseWriter, _ *http.Request) error {
	list := slices.Clone(a.RouteTable())
	for i := range list {
		list[i].Methods = present(list[i].Methods)
		list[i].Scopes = present(list[i].Scopes)
		list[i].Upstreams = present(list[i].Upstreams)
		list[i].Replicas = present(list[i].Replicas)
	}
	return handlers.WriteJSON(w, http.StatusOK, struct {
		Routes    []Route    `json:"routes"`
		Discovery *Discovery `json:"discovery,omitempty"`
	}{present(list), a.discovery()})
}

// discovery returns nil if nothing is discovered.
func (a *API) discovery() *Discovery {
	if a.Discovery == nil {
		return nil
	}
	d := a.Discovery()
	d.Containers, d.Refused = present(d.Containers), present(d.Refused)
	return &d
}

// present turns a nil slice into an empty one, which JSON writes as [].
func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// readHealth tells how this gateway is. It is 200 as long as it can answer;
// /readyz is for probes.
func (a *API) readHealth(w http.ResponseWriter, _ *http.Request) error {
	return handlers.WriteJSON(w, http.StatusOK, a.Health())
}
