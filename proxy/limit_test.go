package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"snowgate/limit"
	"snowgate/proxy/route"
)

// rates is a limiter whose clock stands still.
type rates struct {
	mu       sync.Mutex
	arrivals map[string]time.Duration
}

func (l *rates) Allow(_ context.Context, key string, rate limit.Rate) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.arrivals == nil {
		l.arrivals = make(map[string]time.Duration)
	}
	var d limit.Decision
	l.arrivals[key], d = rate.Take(l.arrivals[key], 0)
	return d
}

func TestRates(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	spec := protected(service.url)
	spec.ClientRate, spec.Rate = limit.Rate{Count: 2, Per: 10 * time.Second}, limit.Rate{Count: 3, Per: time.Minute}
	other := public(service.url)
	other.Rate = limit.Rate{Count: 1, Per: time.Second}
	limiter := new(rates)
	g := newGateway(t, gatewayOptions{rates: limiter}, spec, other)
	if got := fmt.Sprint(g.statuses(t, 4, get("/svc", authorized))); got != "[200 200 429 429]" {
		t.Errorf("one client: %s", got)
	}
	response, _ := g.ask(t, get("/svc", authorized))
	h := response.Header
	if h.Get("Retry-After") != "5" || h.Get("RateLimit-Policy") != `"client";q=2;w=10` || h.Get("RateLimit") != `"client";r=0;t=5` {
		t.Errorf("refused with %v", h)
	}
	if len(service.requests) != 2 {
		t.Errorf("the service got %d requests, want 2", len(service.requests))
	}
	if len(limiter.arrivals) != 2 {
		t.Errorf("counted under %v, want one key for the route and one for the client", limiter.arrivals)
	}
	for key := range limiter.arrivals {
		if key != "route:protected" && key != "route:protected:orders-worker" {
			t.Errorf("counted under %q", key)
		}
	}
	if limiter.arrivals["route:protected"] != 40*time.Second {
		t.Errorf("the route was charged %v, want two requests: those refused to a client cost the others nothing", limiter.arrivals["route:protected"])
	}

	if got := fmt.Sprint(g.statuses(t, 2, get("/public", ""))); got != "[200 429]" {
		t.Errorf("a public route: %s", got)
	}
	refused, _ := g.ask(t, get("/public", ""))
	if refused.Header.Get("RateLimit-Policy") != `"route";q=1;w=1` {
		t.Errorf("refused with %v", refused.Header)
	}
	if got := g.statuses(t, 1, get("/svc", "")); got[0] != http.StatusUnauthorized {
		t.Errorf("without a token = %v, want 401: nothing is counted", got)
	}
}

func TestClientRateNeedsClients(t *testing.T) {
	spec := public(mustParse(t, "http://orders"))
	spec.ClientRate = limit.Rate{Count: 1, Per: time.Second}
	if _, err := route.NewTable([]route.Route{spec}, nil); err == nil {
		t.Error("a rate per client on a public route was accepted")
	}
}
