package gatewaytest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Dial opens a connection to the public listener. It is closed when the test
// ends, if not before.
func (g *Gateway) Dial() net.Conn {
	g.t.Helper()
	conn, err := new(net.Dialer).DialContext(g.t.Context(), "tcp", g.Addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Exchange writes text as it is on a connection of its own and returns the first
// response that is not interim. The zero Response says that the gateway closed the
// connection without one.
func (g *Gateway) Exchange(text string) Response {
	g.t.Helper()
	responses, _ := g.Conversation(text, 1)
	if len(responses) == 0 {
		return Response{}
	}
	return responses[0]
}

// Conversation writes text, which may hold several requests, on a connection of
// its own and returns the responses that come back, at most so many, without the
// interim ones. closed tells that the gateway closed the connection after them;
// it is looked at only if there were fewer answers than that.
func (g *Gateway) Conversation(text string, most int) (responses []Response, closed bool) {
	g.t.Helper()
	conn := g.Dial()
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }() // it may be refused half-way
	begin := time.Now()
	_ = conn.SetReadDeadline(begin.Add(patience))
	in := bufio.NewReader(conn)
	method, _, _ := strings.Cut(text, " ")
	for len(responses) < most {
		response, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return responses, !errors.Is(err, os.ErrDeadlineExceeded)
		}
		if response.StatusCode < http.StatusOK {
			continue
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		remembered.inspect(response.StatusCode, response.Header, string(body))
		responses = append(responses, Response{response.StatusCode, response.Header, string(body), time.Since(begin)})
		if err != nil {
			return responses, !errors.Is(err, os.ErrDeadlineExceeded)
		}
		method = http.MethodGet
	}
	return responses, false
}
