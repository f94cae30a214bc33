package proxy_test

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestSlowServiceIsNoSlowClient: how long a client may take for what is sent to it,
// and the time that the server has for responses of its own, do not count while
// nothing is sent: neither before a response, nor within, nor before its end.
func TestSlowServiceIsNoSlowClient(t *testing.T) {
	const idle = 500 * time.Millisecond
	pause := func() { <-time.After(idle + idle/2) } // the service's own
	says := func(conn net.Conn, text string) { _, _ = io.WriteString(conn, text) }
	tests := map[string]struct {
		script script
		body   string
	}{
		"a late answer without a body": {func(conn net.Conn, _ string) bool {
			pause()
			says(conn, "HTTP/1.1 204 No Content\r\n\r\n")
			return true
		}, ""},
		"a late interim answer": {func(conn net.Conn, _ string) bool {
			pause()
			says(conn, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
			pause()
			says(conn, okResponse)
			return true
		}, "ok"},
		"a stream with a silence": {func(conn net.Conn, _ string) bool {
			says(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
			pause()
			says(conn, "1\r\ny\r\n0\r\n\r\n")
			return true
		}, "xy"},
		"a stream that ends after a silence": {func(conn net.Conn, _ string) bool {
			says(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
			pause()
			says(conn, "0\r\n\r\n")
			return true
		}, "x"},
	}
	for name, test := range tests {
		for _, http2 := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				service := newUpstream(t, test.script)
				g := newGateway(t, gatewayOptions{clientIdle: idle, writeTimeout: idle, http2: http2}, public(service.url))
				response, err := g.Client().Get(g.URL + "/public")
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if err != nil || response.StatusCode >= http.StatusBadRequest || string(body) != test.body {
					t.Errorf("GET in %s = %d %q, %v, want all of it", response.Proto, response.StatusCode, body, err)
				}
			})
		}
	}
}
