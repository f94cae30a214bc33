package proxy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"snowgate/proxy/route"
)

// TestTrailersApart: a request with a trailer does not share its connection to a service over h2c,
// which the service may end because of the trailer. The connection ends with the request.
func TestTrailersApart(t *testing.T) {
	ended := make(chan string, 8)
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Peer", r.RemoteAddr)
		w.Header().Set("X-Got", r.Trailer.Get("X-Late"))
	}))
	service.Config.Protocols = new(http.Protocols)
	service.Config.Protocols.SetUnencryptedHTTP2(true)
	service.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			ended <- c.RemoteAddr().String()
		}
	}
	service.Start()
	t.Cleanup(service.Close)
	g := newGateway(t, gatewayOptions{}, route.Route{Name: "one", Path: "/", Public: true,
		Upstreams: []*url.URL{{Scheme: "h2c", Host: service.Listener.Addr().String()}}})
	ask := func(raw string) http.Header {
		response, _ := g.ask(t, raw)
		if response.StatusCode != http.StatusOK {
			t.Fatalf("status %d", response.StatusCode)
		}
		return response.Header
	}
	const plain = "POST / HTTP/1.1\r\nHost: g.example\r\nContent-Length: 1\r\n\r\nx"
	first := ask(plain).Get("X-Peer")
	late := ask("POST / HTTP/1.1\r\nHost: g.example\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\n\r\n1\r\nx\r\n0\r\nX-Late: 1\r\n\r\n")
	if late.Get("X-Got") != "1" || late.Get("X-Peer") == first {
		t.Errorf("the request with a trailer: trailer %q, on the connection of others: %t", late.Get("X-Got"), late.Get("X-Peer") == first)
	}
	if closed := <-ended; closed != late.Get("X-Peer") {
		t.Errorf("the connection that ended is %s, want %s", closed, late.Get("X-Peer"))
	}
	if again := ask(plain).Get("X-Peer"); again != first {
		t.Errorf("a request without a trailer came on another connection: %s, before %s", again, first)
	}
}
