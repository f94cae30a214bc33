package admin

import (
	"net/http"
	"slices"

	"snowgate/handlers"
)

// Route is a route in force, as the API shows it.
type Route struct {
	Name      string   `json:"name"`
	Source    string   `json:"source"`          // file or docker
	Owner     string   `json:"owner,omitempty"` // the owner at the source, such as project/service
	Changed   string   `json:"changed"`         // RFC 3339: when the route last changed
	Host      string   `json:"host,omitempty"`
	Path      string   `json:"path"`
	Methods   []string `json:"methods"` // empty: all except CONNECT and TRACE
	Scopes    []string `json:"scopes"`  // all are required
	Audience  string   `json:"audience,omitempty"`
	Public    bool     `json:"public"`
	WebSocket bool     `json:"websocket"`
	Upstreams []string `json:"upstreams"`
	// Replicas are the resolved or discovered addresses of the upstreams. A name that was not
	// resolved yet, or does not resolve, has none.
	Replicas []Replica `json:"replicas"`
}

// Replica is one address of an upstream.
type Replica struct {
	Upstream string `json:"upstream"`
	Address  string `json:"address"`
	Healthy  bool   `json:"healthy"`           // whether it gets requests
	Changed  string `json:"changed,omitempty"` // RFC 3339: when Healthy last changed; empty: never
	Reason   string `json:"reason,omitempty"`  // why it is not healthy
	InFlight int64  `json:"in_flight"`
	Failures uint64 `json:"failures"`
}

// Discovery is the state of the source of discovered routes.
type Discovery struct {
	Source  string `json:"source"` // docker
	Up      bool   `json:"up"`     // the source can be reached
	Error   string `json:"error,omitempty"`
	Changed string `json:"changed,omitempty"` // RFC 3339: when Up last changed
	Listed  string `json:"listed,omitempty"`  // RFC 3339: when the source was last listed in full
	// Containers are all containers that ask for a route. Refused are the routes that conflict with
	// others and are not in force.
	Containers []Container    `json:"containers"`
	Refused    []RefusedRoute `json:"refused"`
}

// Container is the result for one container.
type Container struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Owner   string `json:"owner"`
	Route   string `json:"route,omitempty"`
	Address string `json:"address,omitempty"`
	State   string `json:"state"`            // serving, waiting or rejected
	Reason  string `json:"reason,omitempty"` // why it does not serve
}

// RefusedRoute is a discovered route that is not in force.
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
	// Redis is the last known state of the store.
	Redis RedisHealth `json:"redis"`
	// IDs is the state of the id generator.
	IDs IDHealth `json:"ids"`
	// Revision is the revision of the shared state that this gateway has. Clients and Rules are the
	// numbers of clients and rules in it.
	Revision uint64 `json:"revision"`
	Clients  int    `json:"clients"`
	Rules    int    `json:"rules"`
}

// RedisHealth is the state of the store.
type RedisHealth struct {
	Reachable bool `json:"reachable"`
	// RoundTrip is the duration of the last probe, in milliseconds.
	RoundTrip float64 `json:"round_trip_ms"`
	// Policy is maxmemory-policy. Every policy except noeviction drops live tokens when Redis is
	// full. Empty: unknown.
	Policy string `json:"maxmemory_policy,omitempty"`
	// Remarks name settings of Redis that an operator should change.
	Remarks []string `json:"remarks,omitempty"`
}

// IDHealth is the state of a gateway's id generator.
type IDHealth struct {
	Healthy bool   `json:"healthy"`          // the generator can issue ids now
	Reason  string `json:"reason,omitempty"` // why it cannot
	// Worker is the worker number that the gateway holds; nil: none. LastHeartbeat is the time of
	// the last renewal of its lease, in RFC 3339; empty: never.
	Worker        *int64 `json:"worker,omitempty"`
	LastHeartbeat string `json:"last_heartbeat,omitempty"`
	// These count since the gateway started: Generated ids, Errors of calls and heartbeats, and
	// Rollbacks, the backward steps of the clock that the generator handled.
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

// discovery returns nil if routes are not discovered.
func (a *API) discovery() *Discovery {
	if a.Discovery == nil {
		return nil
	}
	d := a.Discovery()
	d.Containers, d.Refused = present(d.Containers), present(d.Refused)
	return &d
}

// present turns a nil slice into an empty one, which JSON encodes as [].
func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// readHealth shows the state of this gateway. It responds with 200 whatever the state; /readyz is
// for probes.
func (a *API) readHealth(w http.ResponseWriter, _ *http.Request) error {
	return handlers.WriteJSON(w, http.StatusOK, a.Health())
}
