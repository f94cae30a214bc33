package proxy_test

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// TestStandardRoute: a route can ask for the transport of net/http, beside one to the same service
// that has ours. They differ in what they make of a folded line (RFC 9112 §5.2).
func TestStandardRoute(t *testing.T) {
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\nok")
		return err == nil
	})
	ours, standard := public(service.url), public(service.url)
	standard.Name, standard.Path, standard.Standard = "standard", "/standard", true
	g := newGateway(t, gatewayOptions{}, ours, standard)
	for path, want := range map[string]int{"/public": http.StatusBadGateway, "/standard": http.StatusOK} {
		if response, _ := g.ask(t, get(path, "")); response.StatusCode != want {
			t.Errorf("%s = %d, want %d", path, response.StatusCode, want)
		}
	}
}
