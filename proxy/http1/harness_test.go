package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/integration/cuttest"
)

// patience limits waits that end at once if the code is right.
const patience = 10 * time.Second

// server is a server whose connections are under the control of the test.
type server struct {
	*Transport
	accepted atomic.Int64
	requests chan string // the heads of the requests
}

// newServer starts a server that runs serve on every connection.
func newServer(t testing.TB, serve func(c *client)) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{
		Transport: &Transport{
			Address: listener.Addr().String(), DialContext: cuttest.Dialer(new(net.Dialer).DialContext), MaxIdle: 64, IdleTimeout: time.Minute,
			MaxHeader: 64 << 10, ContinueTimeout: patience,
		},
		requests: make(chan string, 1024),
	}
	var serving sync.WaitGroup
	var open sync.Map
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			conn = cuttest.Writes(conn)
			open.Store(conn, true)
			serving.Go(func() {
				defer conn.Close()
				serve(&client{conn, bufio.NewReader(conn), s})
			})
		}
	})
	t.Cleanup(func() {
		s.CloseIdleConnections()
		listener.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		serving.Wait()
	})
	return s
}

// client is a connection from the server's point of view.
type client struct {
	net.Conn
	in     *bufio.Reader
	server *server
}

// next reads the head of the next request. It returns false if there is none.
func (c *client) next() bool {
	var head strings.Builder
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return false
		}
		head.WriteString(line)
		if line == "\r\n" {
			c.server.requests <- head.String()
			return true
		}
	}
}

// says sends text.
func (c *client) says(text string) { _, _ = io.WriteString(c.Conn, text) }

// saysAlways answers every request with the same text.
func saysAlways(text string) func(*client) {
	return func(c *client) {
		for c.next() {
			c.says(text)
		}
	}
}

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

var get = &Request{Method: "GET", Path: "/", Host: "h"}

// result is the outcome of a request.
type result struct {
	refused bool // there is no response
	status  int
	header  http.Header
	body    string
	broken  bool // the body was cut off
	trailer http.Header
}

// headerOf returns list as a map without the fields about the connection.
func headerOf(list []Field) http.Header {
	h := http.Header{}
	for _, f := range list {
		h[f.Name] = append(h[f.Name], f.Value)
	}
	return withoutFraming(h)
}

func withoutFraming(h http.Header) http.Header {
	for name, values := range h {
		if len(values) == 0 || name == "Transfer-Encoding" || name == "Trailer" {
			delete(h, name)
		}
	}
	return h
}

// finish reads the response of call.
func finish(call *Call) result {
	body, err := io.ReadAll(call)
	got := result{status: call.Status, header: headerOf(call.Header), body: string(body), broken: err != nil, trailer: headerOf(call.Trailer())}
	_ = call.Close()
	return got
}

// ask sends r and reads the response.
func (s *server) ask(t testing.TB, r *Request) result {
	t.Helper()
	call := s.Call()
	if err := call.Send(t.Context(), r, false); err != nil {
		return result{refused: true}
	}
	return finish(call)
}

func (s *server) wantOK(t testing.TB, when string) {
	t.Helper()
	if got := s.ask(t, get); got.status != 200 || got.body != "ok" {
		t.Errorf("%s: %+v, want 200 ok", when, got)
	}
}

func waitFor(t testing.TB, done <-chan struct{}, complaint string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal(complaint)
	}
}

// socketPair returns the two ends of a connection that needs no port.
func socketPair(t testing.TB, listener net.Listener) (ours, theirs net.Conn) {
	t.Helper()
	ours, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// saysOnce reads a request on conn, sends text, and hangs up.
func saysOnce(conn net.Conn, text string) {
	reader := bufio.NewReader(conn)
	for {
		line, err := reader.ReadString('\n')
		if err != nil || line == "\r\n" {
			break
		}
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

var errTest = errors.New("an error of the test")
