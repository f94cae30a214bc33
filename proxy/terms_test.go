package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"
	"time"

	"snowgate/limit"
	"snowgate/request/canonical"
	"snowgate/request/exchange"
	"snowgate/tokens"
)

// alike returns places of routes that differ in name and path, and are changed by changes.
func alike(t *testing.T, router *Router, changes ...func(*Route)) []place {
	t.Helper()
	routes := make([]Route, len(changes))
	for i, change := range changes {
		name := string(rune('a' + i))
		routes[i] = Route{
			Name: name, Path: "/" + name, Upstreams: []*url.URL{{Scheme: "http", Host: "192.0.2.1"}},
			Requirement: tokens.Requirement{Scope: "orders.read"}, Methods: []string{"GET", "HEAD"},
		}
		change(&routes[i])
	}
	table, err := NewTable(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	router.Swap(table)
	t.Cleanup(router.Close)
	return router.layout().places
}

func nothing(*Route) {}

// TestPlaceIsSmall: of ten thousand routes, none is in a cache of the processor.
func TestPlaceIsSmall(t *testing.T) {
	if size := reflect.TypeFor[place]().Size(); size > 64 {
		t.Errorf("a place takes %d bytes, want no more than a line of the cache", size)
	}
}

func TestEqualRoutesHaveTermsAndServiceInCommon(t *testing.T) {
	places := alike(t, new(Router), nothing, nothing)
	if a, b := &places[0], &places[1]; a.terms != b.terms || a.pool.service != b.pool.service {
		t.Error("two routes that differ in name and path have terms or a service of their own")
	}
	if places[0].pool.inFlight == places[1].pool.inFlight {
		t.Error("two routes count what is in flight together")
	}
}

// TestDifferentRoutesHaveTheirOwn also looks whether the terms say what the route says.
func TestDifferentRoutesHaveTheirOwn(t *testing.T) {
	rate := limit.Rate{Count: 1, Per: time.Second}
	for name, test := range map[string]struct {
		change func(*Route)
		said   func(*terms) bool
	}{
		"scope":        {func(r *Route) { r.Requirement.Scope = "x" }, func(t *terms) bool { return t.Requirement.Scope == "x" }},
		"audience":     {func(r *Route) { r.Requirement.Audience = "x" }, func(t *terms) bool { return t.Requirement.Audience == "x" }},
		"public":       {func(r *Route) { r.Requirement, r.Public = tokens.Requirement{}, true }, func(t *terms) bool { return t.Public }},
		"websocket":    {func(r *Route) { r.WebSocket = true }, func(t *terms) bool { return t.WebSocket }},
		"token":        {func(r *Route) { r.PassToken = true }, func(t *terms) bool { return t.PassToken }},
		"slash":        {func(r *Route) { r.AllowEncodedSlash = true }, func(t *terms) bool { return t.AllowEncodedSlash }},
		"strip":        {func(r *Route) { r.StripPrefix = true }, func(t *terms) bool { return t.StripPrefix }},
		"segments":     {func(r *Route) { r.Path = "/x/y/z" }, func(t *terms) bool { return t.segments == 3 }},
		"methods":      {func(r *Route) { r.Methods = nil }, func(t *terms) bool { return t.allow.include("PUT") }},
		"timeout":      {func(r *Route) { r.Timeout = time.Hour }, func(t *terms) bool { return t.Timeout == time.Hour }},
		"body":         {func(r *Route) { r.MaxBody = 7 }, func(t *terms) bool { return t.MaxBody == 7 }},
		"rate":         {func(r *Route) { r.Rate = rate }, func(t *terms) bool { return t.Rate == rate }},
		"client rate":  {func(r *Route) { r.ClientRate = rate }, func(t *terms) bool { return t.ClientRate == rate }},
		"prefix":       {func(r *Route) { r.AddPrefix = "/x" }, func(t *terms) bool { return t.AddPrefix == "/x" }},
		"host":         {func(r *Route) { r.HostHeader = "x" }, func(t *terms) bool { return t.HostHeader == "x" }},
		"its host":     {func(r *Route) { r.UpstreamHost = true }, func(t *terms) bool { return t.UpstreamHost }},
		"edit":         {func(r *Route) { r.EditRequest.Remove = []string{"X"} }, func(t *terms) bool { return !t.EditRequest.none() }},
		"answer":       {func(r *Route) { r.EditAnswer.Remove = []string{"X"} }, func(t *terms) bool { return !t.EditAnswer.none() }},
		"cors":         {func(r *Route) { r.CORS = &CORS{Origins: []string{"*"}} }, func(t *terms) bool { return t.CORS != nil && t.cors != nil }},
		"no upstreams": {func(r *Route) { r.Upstreams = nil }, func(t *terms) bool { return !t.forwards }},
	} {
		places := alike(t, new(Router), nothing, test.change)
		if places[0].terms == places[1].terms || !test.said(places[1].terms) || test.said(places[0].terms) {
			t.Errorf("%s: terms %+v beside %+v", name, places[0].terms, places[1].terms)
		}
	}
	for name, change := range map[string]func(*Route){
		"upstream":  func(r *Route) { r.Upstreams = []*url.URL{{Scheme: "http", Host: "192.0.2.2"}} },
		"path":      func(r *Route) { r.Upstreams = []*url.URL{{Scheme: "http", Host: "192.0.2.1", Path: "/x"}} },
		"upstreams": func(r *Route) { r.Upstreams = append(r.Upstreams, &url.URL{Scheme: "http", Host: "192.0.2.2"}) },
		"balance":   func(r *Route) { r.Balance = LeastInFlight },
		"in flight": func(r *Route) { r.MaxInFlight = 1 },
	} {
		places := alike(t, new(Router), nothing, change)
		if places[0].pool.service == places[1].pool.service {
			t.Errorf("%s: one service for both", name)
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
