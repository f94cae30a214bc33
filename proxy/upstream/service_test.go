package upstream

import (
	"net/url"
	"testing"

	"snowgate/proxy/route"
)

// balancersOf returns the balancers of two routes that differ in name and path, and of which the second
// is changed.
func balancersOf(t *testing.T, change func(*route.Route)) *[2]Balancer {
	t.Helper()
	routes := make([]route.Route, 2)
	for i, name := range []string{"a", "b"} {
		routes[i] = route.Route{Name: name, Path: "/" + name, Upstreams: []*url.URL{{Scheme: "http", Host: "192.0.2.1"}}}
	}
	change(&routes[1])
	table, err := route.NewTable(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	set := new(Set)
	t.Cleanup(set.Close)
	pools := new([2]Balancer)
	set.Adopt(table.Routes, func(i int) *Balancer { return &pools[i] })
	return pools
}

// TestEqualRoutesShareAService: of ten thousand routes to the same service, the processor's cache holds
// what is common to them.
func TestEqualRoutesShareAService(t *testing.T) {
	pools := balancersOf(t, func(*route.Route) {})
	if pools[0].service != pools[1].service {
		t.Error("two routes to the same have a service of their own")
	}
	if pools[0].inFlight == pools[1].inFlight {
		t.Error("two routes count what is in flight together")
	}
	for name, change := range map[string]func(*route.Route){
		"upstream":  func(r *route.Route) { r.Upstreams = []*url.URL{{Scheme: "http", Host: "192.0.2.2"}} },
		"path":      func(r *route.Route) { r.Upstreams = []*url.URL{{Scheme: "http", Host: "192.0.2.1", Path: "/x"}} },
		"upstreams": func(r *route.Route) { r.Upstreams = append(r.Upstreams, &url.URL{Scheme: "http", Host: "192.0.2.2"}) },
		"balance":   func(r *route.Route) { r.Balance = route.LeastInFlight },
		"in flight": func(r *route.Route) { r.MaxInFlight = 1 },
	} {
		if pools := balancersOf(t, change); pools[0].service == pools[1].service {
			t.Errorf("%s: one service for both", name)
		}
	}
}
