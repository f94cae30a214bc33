package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"snowgate/idgen"
	"snowgate/integration/cuttest"
	"snowgate/internal/clientconn"
	"snowgate/internal/problem"
	"snowgate/internal/scope"
	"snowgate/middleware"
	"snowgate/proxy"
	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
	"snowgate/tokens"
)

// patienceOfTests bounds waits that succeed at once when the code is right.
const patienceOfTests = 10 * time.Second

const (
	tokenID  = idgen.ID(1234567890123456789)
	goodText = "good-token-of-the-tests"
)

var expires = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// judge is a validator that knows one token.
type judge struct{}

func (judge) ValidateFrom(_ context.Context, text string, _ netip.Addr) (tokens.Token, error) {
	switch text {
	case goodText:
		return tokens.Token{ID: tokenID, Client: "orders-worker", Scope: "orders.read orders.write", ExpiresAt: expires}, nil
	case "unavailable":
		return tokens.Token{}, tokens.ErrUnavailable
	default:
		return tokens.Token{}, tokens.ErrUnknown
	}
}

// line is an access line.
type line struct {
	Path, Route, Upstream, Cause, Client string
	Status                               int
	Aborted                              bool
}

// lines is where a gateway logs to. Nobody has to read it.
type lines struct {
	mu      sync.Mutex
	written [][]byte
	more    chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.written = append(l.written, bytes.Clone(b))
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (l *lines) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.written) == 0 {
		return nil
	}
	first := l.written[0]
	l.written = l.written[1:]
	return first
}

// next returns the next access line and its text.
func (l *lines) next(t testing.TB) (parsed line, text string) {
	t.Helper()
	for deadline := time.After(patienceOfTests); ; {
		if b := l.take(); b != nil {
			if err := json.Unmarshal(b, &parsed); err != nil {
				t.Fatalf("access line %q: %v", b, err)
			}
			return parsed, string(b)
		}
		select {
		case <-l.more:
		case <-deadline:
			t.Fatal("no access line")
		}
	}
}

// gateway is a running gateway with nothing but routes.
type gateway struct {
	*httptest.Server
	router  *proxy.Router
	drainer *middleware.Drainer
	log     *lines
	cut     context.CancelFunc // cuts every request
}

// wrapping is a listener whose connections are those of the real gateway.
type wrapping struct {
	net.Listener
	waiters clientconn.Waiters
	wrap    func(net.Conn) net.Conn // what was accepted; nil: as it is
}

func (l *wrapping) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.wrap != nil {
		conn = l.wrap(conn)
	}
	return clientconn.Wrap(cuttest.Reads(conn), &l.waiters), nil
}

type gatewayOptions struct {
	trusted    string
	clientIdle time.Duration
	// writeTimeout is that of the server, which is not for proxied answers.
	writeTimeout time.Duration
	headerBytes  int // as MaxHeaderBytes of the server
	http2        bool
	watch        proxy.Watch
	resolver     upstream.Resolver
	rates        proxy.RateLimiter
	now          func() time.Time // of the health of replicas
	dial         func(ctx context.Context, network, address string) (net.Conn, error)
	client       func(net.Conn) net.Conn // wraps the connections of clients
}

func newGateway(t testing.TB, o gatewayOptions, routes ...route.Route) *gateway {
	t.Helper()
	table, err := route.NewTable(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{router: newRouter(), drainer: middleware.NewDrainer(), log: &lines{more: make(chan struct{}, 1)}}
	g.router.Resolver = o.resolver
	proxy.SetClock(g.router, o.now)
	if o.dial != nil {
		proxy.SetDial(g.router, o.dial)
	}
	g.router.Swap(table)
	observation := middleware.Observation{Log: zerolog.New(g.log)}
	if o.trusted != "" {
		observation.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(o.trusted)}
	}
	forwarder := proxy.NewForwarder(proxy.Options{
		ClientIdle: o.clientIdle, Watch: o.watch, Rates: o.rates, Challenge: problem.Challenge{ResourceMetadata: "https://g.example/metadata"},
	})
	t.Cleanup(g.router.Close)

	var handler http.Handler = forwarder
	handler = middleware.Authenticate(judge{}, proxy.Challenge(problem.Challenge{}), proxy.Requirement)(handler)
	handler = proxy.CrossOrigin()(handler)
	handler = proxy.Match(g.router)(handler)
	handler = middleware.Canonical()(handler)
	handler = middleware.Framing()(handler)
	handler = middleware.Drain(g.drainer)(handler)
	handler = middleware.Recover()(handler)
	handler = middleware.Observe(observation)(handler)

	base, cancel := context.WithCancelCause(context.Background())
	cut := func() { cancel(proxy.ErrStopping) }
	g.cut = cut
	g.Server = httptest.NewUnstartedServer(handler)
	g.Listener = &wrapping{Listener: g.Listener, wrap: o.client}
	g.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return middleware.ConnContext(clientconn.ConnContext(ctx, c), c)
	}
	g.Config.ConnState = clientconn.ConnState
	g.Config.MaxHeaderBytes = o.headerBytes
	g.Config.DisableGeneralOptionsHandler = true
	g.Config.WriteTimeout = o.writeTimeout
	g.Config.BaseContext = func(net.Listener) context.Context { return base }
	if g.EnableHTTP2 = o.http2; o.http2 {
		g.StartTLS()
	} else {
		g.Start()
	}
	t.Cleanup(func() { cut(); g.Close() })
	return g
}

func (g *gateway) address() string { return g.Listener.Addr().String() }

// connection is a client that speaks bytes.
type connection struct {
	t testing.TB
	net.Conn
	*bufio.Reader
}

// Read reads what was not parsed yet.
func (c *connection) Read(p []byte) (int, error) { return c.Reader.Read(p) }

func dial(t testing.TB, address string) *connection {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patienceOfTests)); err != nil {
		t.Fatal(err)
	}
	return &connection{t, cuttest.Writes(conn), bufio.NewReader(conn)}
}

func (c *connection) send(raw string) {
	c.t.Helper()
	_, err := io.WriteString(c.Conn, raw)
	if gone := errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET); gone && cuttest.Current() != cuttest.Whole {
		return // the gateway has answered the first pieces and closed the connection
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// answer reads one response with its body. method is that of the request.
func (c *connection) answer(method string) (*http.Response, string) {
	c.t.Helper()
	response, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatalf("the body of the answer breaks off: %v", err)
	}
	return response, string(body)
}

// ask sends one raw request on a connection of its own and reads the response.
func (g *gateway) ask(t testing.TB, raw string) (*http.Response, string) {
	t.Helper()
	c := dial(t, g.address())
	defer c.Close()
	c.send(raw)
	method, _, _ := strings.Cut(raw, " ")
	return c.answer(method)
}

// testService is a service that records the exact bytes it receives and answers
// with a script.
type testService struct {
	url      *url.URL
	requests chan string
	listener net.Listener

	mu          sync.Mutex
	connections int
	current     map[net.Conn]bool
}

// open returns how many connections there are.
func (u *testService) open() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.current)
}

// hangUp closes all connections.
func (u *testService) hangUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for conn := range u.current {
		conn.Close()
	}
}

const okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"

// script answers one request. It returns false to close the connection.
type script func(conn net.Conn, request string) bool

func says(response string) script {
	return func(conn net.Conn, _ string) bool {
		_, err := io.WriteString(conn, response)
		return err == nil
	}
}

func saysAndCloses(response string) script {
	return func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, response)
		return false
	}
}

func newUpstream(t testing.TB, s script) *testService {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveUpstream(t, listener, s)
}

// serveUpstream is newUpstream on a given listener.
func serveUpstream(t testing.TB, listener net.Listener, s script) *testService {
	t.Helper()
	u := &testService{
		url:      &url.URL{Scheme: "http", Host: listener.Addr().String()},
		requests: make(chan string, 64), listener: listener, current: make(map[net.Conn]bool),
	}
	var serving sync.WaitGroup
	conns := make(chan net.Conn, 1024)
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn = cuttest.Writes(conn)
			conns <- conn
			u.mu.Lock()
			u.connections++
			u.current[conn] = true
			u.mu.Unlock()
			serving.Go(func() { u.serve(conn, s) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		for len(conns) > 0 {
			(<-conns).Close()
		}
		serving.Wait()
	})
	return u
}

func (u *testService) serve(conn net.Conn, s script) {
	defer func() {
		conn.Close()
		u.mu.Lock()
		delete(u.current, conn)
		u.mu.Unlock()
	}()
	for reader := bufio.NewReader(conn); ; {
		request, err := readRaw(reader)
		if err != nil {
			return
		}
		u.requests <- request
		if !s(conn, request) {
			return
		}
	}
}

// readRaw reads one request to the end of its body and returns its bytes.
func readRaw(reader *bufio.Reader) (string, error) {
	var raw strings.Builder
	length, chunked := 0, false
	for {
		text, err := reader.ReadString('\n')
		raw.WriteString(text)
		if err != nil {
			return "", err
		}
		name, value, _ := strings.Cut(strings.TrimSpace(text), ":")
		switch strings.ToLower(name) {
		case "content-length":
			length = atoi(strings.TrimSpace(value))
		case "transfer-encoding":
			chunked = true
		}
		if text == "\r\n" {
			break
		}
	}
	if !chunked {
		_, err := io.CopyN(&raw, reader, int64(length))
		return raw.String(), err
	}
	for !strings.HasSuffix(raw.String(), "\r\n0\r\n\r\n") {
		c, err := reader.ReadByte()
		if err != nil {
			return "", err
		}
		raw.WriteByte(c)
	}
	return raw.String(), nil
}

func atoi(text string) (n int) {
	for _, c := range text {
		n = n*10 + int(c-'0')
	}
	return n
}

// received returns the next request the service got.
func (u *testService) received(t testing.TB) string {
	t.Helper()
	select {
	case request := <-u.requests:
		return request
	case <-time.After(patienceOfTests):
		t.Fatal("the service received nothing")
		return ""
	}
}

// nothing checks that the service got no request.
func (u *testService) nothing(t testing.TB) {
	t.Helper()
	select {
	case request := <-u.requests:
		t.Errorf("the service received %q", request)
	default:
	}
}

// rawField returns the values of a field, compared byte by byte, in raw bytes.
func rawField(request, name string) (values []string) {
	head, _, _ := strings.Cut(request, "\r\n\r\n")
	for _, text := range strings.Split(head, "\r\n")[1:] {
		if got, value, _ := strings.Cut(text, ":"); got == name {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// rawNames returns the names of all fields in raw bytes.
func rawNames(request string) (names []string) {
	head, _, _ := strings.Cut(request, "\r\n\r\n")
	for _, text := range strings.Split(head, "\r\n")[1:] {
		name, _, _ := strings.Cut(text, ":")
		names = append(names, name)
	}
	return names
}

func mustParse(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// protected returns a route at /svc that needs a token, and public one at
// /public that needs none.
func protected(u *url.URL) route.Route {
	return route.Route{
		Name: "protected", Path: "/svc", Upstreams: []*url.URL{u},
		Requirement: tokens.Requirement{Scope: scope.List("orders.read")},
	}
}

func public(u *url.URL) route.Route {
	return route.Route{Name: "public", Path: "/public", Upstreams: []*url.URL{u}, Public: true}
}
