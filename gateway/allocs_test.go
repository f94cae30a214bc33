package gateway

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime/debug"
	"testing"

	"snowgate/internal/request/exchange"
)

// sink is a ResponseWriter that costs nothing itself.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// remoteConn is a connection of which only the other end matters.
type remoteConn struct{ net.Conn }

func (remoteConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1234"))
}

// chain is the way of a request through everything in front of the forwarder,
// access line and metrics included, as a function that goes it once.
func chain(t testing.TB, target string) func() {
	t.Helper()
	g, _, token := startGateway(t, "", url.URL{Scheme: "http", Host: "127.0.0.1:1"})
	handler := g.publicHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		exchange.From(r.Context()).Unshared = true // as the forwarder says of most
	}))
	w := &sink{header: make(http.Header)}
	r := httptest.NewRequestWithContext(connContext(t.Context(), remoteConn{}), http.MethodGet, target, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36")
	return func() {
		clear(w.header)
		w.status = 0
		handler.ServeHTTP(w, r)
		if w.status != http.StatusNoContent {
			t.Fatalf("%s = %d", target, w.status)
		}
	}
}

// The number of allocations of a request before the forwarder. It must be exact, so a change that
// saves one updates it.
func TestAllocationsInFrontOfTheForwarder(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	tests := []struct {
		name, target string
		want         float64
	}{
		// The name of the request, and the list of one with it.
		{"public", "/public/42", 2},
		// The text of the token's id besides.
		{"validated", "/orders/42?limit=10", 3},
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection empties the pools
	for _, test := range tests {
		once := chain(t, test.target)
		once() // fills the cache and the pools
		if got := testing.AllocsPerRun(2000, once); got != test.want {
			t.Errorf("%s: %v allocations, want %v", test.name, got, test.want)
		}
	}
}

// BenchmarkChain is everything in front of the forwarder.
func BenchmarkChain(b *testing.B) {
	for name, target := range map[string]string{"public": "/public/42", "validated": "/orders/42?limit=10"} {
		b.Run(name, func(b *testing.B) {
			once := chain(b, target)
			once()
			b.ReportAllocs()
			for b.Loop() {
				once()
			}
		})
	}
}
