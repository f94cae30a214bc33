package proxy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	service.Config.Protocols = new(http.Protocols)
	service.Config.Protocols.SetUnencryptedHTTP2(true)
	service.Listener = &endingFirst{Listener: service.Listener}
	service.Start()
	t.Cleanup(service.Close)
	g := newGateway(t, gatewayOptions{}, route.Route{Name: "one", Path: "/", Public: true,
		Upstreams: []*url.URL{{Scheme: "h2c", Host: service.Listener.Addr().String()}}})
	response, body := g.ask(t, "POST / HTTP/1.1\r\nHost: g.example\r\nContent-Length: 5\r\n\r\nhello")
	if response.StatusCode != http.StatusOK || body != "hello" {
		t.Errorf("status %d, body %q, want the echo", response.StatusCode, body)
	}
}

// endingFirst is a listener whose first connection ends without the request being looked at.
type endingFirst struct {
	net.Listener
	ended bool
}

// Accept implements [net.Listener].
func (l *endingFirst) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || l.ended {
		return conn, err
	}
	l.ended = true
	go endConnection(conn)
	return l.Listener.Accept()
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
