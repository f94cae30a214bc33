package httpserver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"snowgate/clientconn"
	"snowgate/httpserver"
	"snowgate/nonblock"
)

// patience bounds waits that succeed at once when the code is right.
const patience = 30 * time.Second

// buffer is a log.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// served is a server and the one of net/http behind it, as the gateway has them.
type served struct {
	*httpserver.Server

	address string
	rest    *clientconn.Rest
	others  *http.Server
	log     *buffer
	ends    sync.WaitGroup // of what serves
}

// listener wraps what it accepts.
type listener struct {
	net.Listener

	rest *clientconn.Rest
}

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.rest.Wrap(nonblock.Wrap(conn)), nil
}

// newServed returns servers that serve nothing yet. Those who are not nil change the options.
func newServed(handler http.HandlerFunc, change func(*httpserver.Options)) *served {
	s := &served{log: new(buffer)}
	o := httpserver.Options{
		Handler: handler, BaseContext: context.Background(), FirstTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		RestAfter: time.Minute, WriteTimeout: time.Minute, ErrorLog: log.New(s.log, "", 0),
	}
	if change != nil {
		change(&o)
	}
	s.Server = httpserver.New(o)
	s.others = &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, ConnState: clientconn.ConnState, ErrorLog: o.ErrorLog, Protocols: new(http.Protocols),
		BaseContext: func(net.Listener) context.Context { return o.BaseContext },
	}
	s.others.Protocols.SetHTTP1(true)
	s.others.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// serve starts a server on a socket.
func serve(t testing.TB, handler http.HandlerFunc, change func(*httpserver.Options)) *served {
	t.Helper()
	s := newServed(handler, change)
	s.start(t)
	return s
}

// start has s serve a socket.
func (s *served) start(t testing.TB) {
	t.Helper()
	inner := listen(t)
	s.address, s.rest = inner.Addr().String(), clientconn.NewRest(inner.Addr())
	s.ends.Go(func() { _ = s.Serve(listener{inner, s.rest}) })
	s.ends.Go(func() { _ = s.Serve(s.rest) })
	s.ends.Go(func() { _ = s.others.Serve(s.Others()) })
	t.Cleanup(s.stop)
}

func (s *served) stop() {
	_, _ = s.Close(), s.others.Close()
	s.ends.Wait()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client is a client with one connection.
type client struct {
	net.Conn

	t  testing.TB
	in *bufio.Reader
}

func newClient(t testing.TB, conn net.Conn) *client {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, t, bufio.NewReader(conn)}
}

func dial(t testing.TB, address string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return newClient(t, conn)
}

// get returns a plain request.
func get(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }

// says writes text.
func (c *client) says(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// hears expects an answer with body, and returns it.
func (c *client) hears(body string) *http.Response {
	c.t.Helper()
	answer, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatalf("instead of the answer %q: %v", body, err)
	}
	if got, err := io.ReadAll(answer.Body); err != nil || string(got) != body {
		c.t.Fatalf("the answer is %d %q, %v, want %q", answer.StatusCode, got, err, body)
	}
	return answer
}

// hearsTheEnd expects the connection to be closed.
func (c *client) hearsTheEnd() {
	c.t.Helper()
	if got, err := io.ReadAll(c.in); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("instead of the end: %q, %v", got, err)
	}
}

// happens waits for an event.
func happens[T any](t testing.TB, event <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-event:
	case <-time.After(patience):
		t.Fatalf("it does not happen: %s", what)
	}
	return value
}

// By whom a request was served.
const (
	plainly = "plainly"
	byOther = "by net/http"
)

// who returns it.
func who(r *http.Request) string {
	if r.Context().Value(http.ServerContextKey) != nil {
		return byOther
	}
	return plainly
}

// tell answers with what was asked, and says in a field by whom it was served.
func tell(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	text := r.Method + " " + r.RequestURI + " " + string(body)
	if err != nil {
		text += " " + err.Error()
	}
	w.Header().Set("X-Served", who(r))
	_, _ = io.WriteString(w, text)
}

// pipes is a listener for the other ends of pipes, for tests that run in a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	rest   *clientconn.Rest
	bare   bool // they are not wrapped
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		if p.bare {
			return conn, nil
		}
		return p.rest.Wrap(conn), nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. The server calls it once.
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// servePipes starts a server in a bubble. What it returns connects to it.
func servePipes(t *testing.T, handler http.HandlerFunc, change func(*httpserver.Options)) (s *served, connect func() *client) {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{}), rest: clientconn.NewRest(&net.TCPAddr{})}
	s = newServed(handler, change)
	s.rest = l.rest
	s.ends.Go(func() { _ = s.Serve(l) })
	s.ends.Go(func() { _ = s.others.Serve(s.Others()) })
	return s, func() *client {
		near, far := net.Pipe()
		l.conns <- far
		return newClient(t, near)
	}
}
