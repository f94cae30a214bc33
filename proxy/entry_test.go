package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"
	"time"

	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
	"snowgate/limit"
	"snowgate/proxy/route"
	"snowgate/tokens"
)

// alike returns places of routes that differ in name and path, and are changed by changes.
func alike(t *testing.T, router *Router, changes ...func(*route.Route)) []entry {
	t.Helper()
	routes := make([]route.Route, len(changes))
	for i, change := range changes {
		name := string(rune('a' + i))
		routes[i] = route.Route{
			Name: name, Path: "/" + name, Upstreams: []*url.URL{{Scheme: "http", Host: "192.0.2.1"}},
			Requirement: tokens.Requirement{Scope: "orders.read"}, Methods: []string{"GET", "HEAD"},
		}
		change(&routes[i])
	}
	table, err := route.NewTable(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	router.Swap(table)
	t.Cleanup(router.Close)
	return router.layout().entries
}

func nothing(*route.Route) {}

// TestPlaceIsSmall: of ten thousand routes, none is in a cache of the processor.
func TestPlaceIsSmall(t *testing.T) {
	if size := reflect.TypeFor[entry]().Size(); size > 64 {
		t.Errorf("a place takes %d bytes, want no more than a line of the cache", size)
	}
}

func TestEqualRoutesHaveAPolicyInCommon(t *testing.T) {
	places := alike(t, new(Router), nothing, nothing)
	if a, b := &places[0], &places[1]; a.Policy != b.Policy {
		t.Error("two routes that differ in name and path have a policy of their own")
	}
}

// TestDifferentRoutesHaveTheirOwn also looks whether the terms say what the route says.
func TestDifferentRoutesHaveTheirOwn(t *testing.T) {
	rate := limit.Rate{Count: 1, Per: time.Second}
	for name, test := range map[string]struct {
		change func(*route.Route)
		said   func(*route.Policy) bool
	}{
		"scope":        {func(r *route.Route) { r.Requirement.Scope = "x" }, func(t *route.Policy) bool { return t.Requirement.Scope == "x" }},
		"audience":     {func(r *route.Route) { r.Requirement.Audience = "x" }, func(t *route.Policy) bool { return t.Requirement.Audience == "x" }},
		"public":       {func(r *route.Route) { r.Requirement, r.Public = tokens.Requirement{}, true }, func(t *route.Policy) bool { return t.Public }},
		"websocket":    {func(r *route.Route) { r.WebSocket = true }, func(t *route.Policy) bool { return t.WebSocket }},
		"token":        {func(r *route.Route) { r.PassToken = true }, func(t *route.Policy) bool { return t.PassToken }},
		"slash":        {func(r *route.Route) { r.AllowEncodedSlash = true }, func(t *route.Policy) bool { return t.AllowEncodedSlash }},
		"strip":        {func(r *route.Route) { r.StripPrefix = true }, func(t *route.Policy) bool { return t.StripPrefix }},
		"segments":     {func(r *route.Route) { r.Path = "/x/y/z" }, func(t *route.Policy) bool { return t.Segments == 3 }},
		"methods":      {func(r *route.Route) { r.Methods = nil }, func(t *route.Policy) bool { return t.Allow.Include("PUT") }},
		"timeout":      {func(r *route.Route) { r.Timeout = time.Hour }, func(t *route.Policy) bool { return t.Timeout == time.Hour }},
		"body":         {func(r *route.Route) { r.MaxBody = 7 }, func(t *route.Policy) bool { return t.MaxBody == 7 }},
		"rate":         {func(r *route.Route) { r.Rate = rate }, func(t *route.Policy) bool { return t.Rate == rate }},
		"client rate":  {func(r *route.Route) { r.ClientRate = rate }, func(t *route.Policy) bool { return t.ClientRate == rate }},
		"prefix":       {func(r *route.Route) { r.AddPrefix = "/x" }, func(t *route.Policy) bool { return t.AddPrefix == "/x" }},
		"host":         {func(r *route.Route) { r.HostHeader = "x" }, func(t *route.Policy) bool { return t.HostHeader == "x" }},
		"its host":     {func(r *route.Route) { r.UpstreamHost = true }, func(t *route.Policy) bool { return t.UpstreamHost }},
		"edit":         {func(r *route.Route) { r.EditRequest.Remove = []string{"X"} }, func(t *route.Policy) bool { return !t.EditRequest.None() }},
		"answer":       {func(r *route.Route) { r.EditResponse.Remove = []string{"X"} }, func(t *route.Policy) bool { return !t.EditResponse.None() }},
		"cors":         {func(r *route.Route) { r.CORS = &route.CORS{Origins: []string{"*"}} }, func(t *route.Policy) bool { return t.CORS != nil && t.Cors != nil }},
		"no upstreams": {func(r *route.Route) { r.Upstreams = nil }, func(t *route.Policy) bool { return !t.Forwards }},
	} {
		places := alike(t, new(Router), nothing, test.change)
		if places[0].Policy == places[1].Policy || !test.said(places[1].Policy) || test.said(places[0].Policy) {
			t.Errorf("%s: terms %+v beside %+v", name, places[0].Policy, places[1].Policy)
		}
	}
}

// counted counts requests of one route.
type counted struct{ route string }

func (*counted) Count(string, int, time.Duration) {}

// TestMatchBringsTheCounter of the route, also after the table has changed.
func TestMatchBringsTheCounter(t *testing.T) {
	router := &Router{Counter: func(route string) exchange.Counter { return &counted{route} }}
	for range 2 {
		alike(t, router, nothing, nothing)
		x := &exchange.Exchange{Path: canonical.Path{Raw: "/b/1", Match: "/b/1"}}
		r := httptest.NewRequest(http.MethodGet, "/b/1", nil)
		Match(router)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r.WithContext(exchange.NewContext(r.Context(), x)))
		if c, ok := x.Counter.(*counted); !ok || c.route != "b" || x.Route != "b" {
			t.Errorf("the request is counted by %+v for route %q, want both of b", x.Counter, x.Route)
		}
	}
}
