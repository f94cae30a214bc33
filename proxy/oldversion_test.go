package proxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// An HTTP/1.0 client gets no interim response (RFC 9110 §15.2).
func TestNoInterimResponseInHTTP10(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"+okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send("GET /public HTTP/1.0\r\nHost: h\r\n\r\n")
	var raw strings.Builder
	if _, err := c.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	if text := raw.String(); !strings.HasPrefix(text, "HTTP/1.0 200 OK\r\n") || strings.Contains(text, "Link") {
		t.Errorf("answer = %q, want the 200 and nothing before it", text)
	}
}

// The connection of an HTTP/1.0 request ends with its response, so that nothing can hide behind a
// Transfer-Encoding that net/http ignores in that version (RFC 9112 §6.1).
func TestHTTP10Closes(t *testing.T) {
	for _, framing := range []string{"", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"} {
		service := newUpstream(t, says(okResponse))
		g := newGateway(t, gatewayOptions{}, public(service.url))
		c := dial(t, g.address())
		c.send("POST /public HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n" + framing + "\r\n" + get("/public", ""))
		var raw strings.Builder
		_, _ = c.WriteTo(&raw) // what was not read may reset the connection
		if n := strings.Count(raw.String(), " 200 OK\r\n"); n != 1 {
			t.Errorf("%q: %d answers, want 1 and the end: %q", framing, n, raw.String())
		}
	}
}

// An HTTP/1.0 request cannot be upgraded (RFC 9110 §7.8), and expects nothing (§10.1.1).
func TestHTTP10NeitherUpgradesNorExpects(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	route := public(service.url)
	route.WebSocket = true
	g := newGateway(t, gatewayOptions{}, route)
	for _, text := range []string{
		"GET /public HTTP/1.0\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"POST /public HTTP/1.0\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
	} {
		c := dial(t, g.address())
		c.send(text)
		if response, _ := c.answer(http.MethodGet); response.StatusCode != http.StatusOK {
			t.Errorf("%q = %d, want 200", text, response.StatusCode)
		}
		got := strings.ToLower(service.received(t))
		if strings.Contains(got, "upgrade") || strings.Contains(got, "expect") {
			t.Errorf("%q reached the service as %q", text, got)
		}
	}
}
