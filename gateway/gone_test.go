package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"snowgate/middleware"
	"snowgate/proxy"
	"snowgate/proxy/route"
)

// TestLabelNamesComeAndGo: containers with ever new names of routes leave neither series nor
// memory behind.
func TestLabelNamesComeAndGo(t *testing.T) {
	const names, mostKept, mostPage = 10_000, 2 << 20, 1 << 20
	g, _, _ := startGateway(t, "", url.URL{Scheme: "http", Host: "127.0.0.1:1"})
	matched := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	handler := middleware.Observe(middleware.Observation{Log: zerolog.Nop()})(middleware.Canonical()(proxy.Match(g.routing.router)(matched)))
	round := func(i int) {
		name := fmt.Sprintf("name-%s-%d", strings.Repeat("x", 50), i)
		address := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
		g.routing.setDiscovered([]route.Route{{
			Name: name, Path: "/a", Source: "docker", Owner: "shop/a", Discovered: true,
			Replicas: []route.Replica{{ID: name, Name: name, URL: address}},
		}})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/a", nil))
	}
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	for i := range 300 {
		round(i)
	}
	before := heap()
	for i := range names {
		round(1000 + i)
	}
	page := httptest.NewRecorder()
	g.metrics.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	size, series := page.Body.Len(), strings.Count(page.Body.String(), "snowgate_http_requests_total{")
	if kept := heap() - before; kept > mostKept || size > mostPage || series == 0 || series > 300 {
		t.Errorf("after %d names %d bytes are kept, and the page has %d bytes and %d routes", names, kept, size, series)
	}
	runtime.KeepAlive(g)
}
