package proxy_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"golang.org/x/net/http2"

	"snowgate/integration/cuttest"
	"snowgate/proxy/route"
)

// TestGoAwayBeforeTheRequest: a service over h2c ends its connection and says that it has not looked at
// the request (RFC 9113 §6.8). It is sent again, with its small body, on another connection.
func TestGoAwayBeforeTheRequest(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "a body that comes in pieces is not read ahead, and cannot be sent again")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if n == 0 {
				go endConnection(conn)
				continue
			}
			go new(http2.Server).ServeConn(conn, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				_, _ = w.Write(body)
			})})
		}
	}()
	g := newGateway(t, gatewayOptions{}, route.Route{Name: "one", Path: "/", Public: true,
		Upstreams: []*url.URL{{Scheme: "h2c", Host: listener.Addr().String()}}})
	answer, body := g.ask(t, "POST / HTTP/1.1\r\nHost: g.example\r\nContent-Length: 5\r\n\r\nhello")
	if answer.StatusCode != http.StatusOK || body != "hello" {
		t.Errorf("status %d, body %q, want the echo", answer.StatusCode, body)
	}
}

// endConnection reads a request, and says that it was not looked at.
func endConnection(conn net.Conn) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().Type == http2.FrameData {
			_ = framer.WriteGoAway(0, http2.ErrCodeNo, nil)
			_, _ = io.Copy(io.Discard, conn)
			return
		}
	}
}
