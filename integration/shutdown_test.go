package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/internal/echo"
)

const terminate = syscall.SIGTERM

// slowPath is where the upstream of these tests answers only when it is told to.
const slowPath = "/svc/slow"

// stage is a gateway without a Redis of its own, in front of an upstream that
// echoes and streams, and can be made to wait.
type stage struct {
	*gatewaytest.Gateway
	client   gatewaytest.Credentials
	token    string
	arrived  chan struct{} // one for each request to slowPath
	response chan struct{} // closed when those may be answered
}

func newStage(t *testing.T, env ...string) *stage {
	t.Helper()
	s := &stage{arrived: make(chan struct{}, 100), response: make(chan struct{})}
	inner := echo.Handler("svc")
	upstream := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == slowPath {
			s.arrived <- struct{}{}
			<-s.response
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(upstream.Close)
	t.Cleanup(s.release)
	s.client = gatewaytest.NewClient("worker", "svc")
	s.Gateway = gatewaytest.Start(t, gatewaytest.Options{Env: env, Config: "clients:\n" + s.client.YAML + `
routes:
  - {name: svc, path: /svc, upstreams: [` + upstream.URL + `], scopes: [svc], websocket: true}
`})
	s.token = s.Token(s.client)
	return s
}

// release lets the upstream answer what waits at slowPath.
func (s *stage) release() {
	select {
	case <-s.response:
	default:
		close(s.response)
	}
}

// begin sends a request to slowPath, on a connection of its own, and returns
// when the upstream has it.
func (s *stage) begin(t *testing.T) net.Conn {
	t.Helper()
	conn := dial(t, s)
	write(t, conn, "GET "+slowPath+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.token+"\r\n\r\n")
	select {
	case <-s.arrived:
	case <-time.After(stallTime):
		t.Fatal("the request does not arrive at the upstream")
	}
	return conn
}

// TestNoRequestIsLostByAShutdown: promise e. A request counts as lost if it was
// sent on an accepted connection and got no complete response. A connection that
// is refused ends a client: in a fleet, its next request goes elsewhere.
func TestNoRequestIsLostByAShutdown(t *testing.T) {
	t.Parallel()
	const rounds, clients = 5, 40
	for round := range rounds {
		s := newStage(t, "SNOWGATE_DRAIN=3s", "SNOWGATE_LOG_LEVEL=info", // a busy machine spends one of them before it is noticed
			"SNOWGATE_STORE_TIMEOUT=5s") // and is no fault of Redis
		crowd := newCrowd(s, clients)
		crowd.wait(t, "every client has been served", func() bool { return crowd.served.Load() > 5*clients })
		s.Signal(terminate)
		gatewaytest.Eventually(t, stallTime, "/readyz is 503", func() bool {
			return s.Get("/readyz", "").StatusCode == http.StatusServiceUnavailable
		})
		crowd.draining.Store(true)
		if code := s.Wait(); code != 0 {
			t.Errorf("round %d: exit code %d", round, code)
		}
		crowd.wait(t, "every client is refused", func() bool { return crowd.ended.Load() == clients })
		t.Logf("round %d: %d requests, %d of them while draining, %d connections, %d lost",
			round, crowd.served.Load(), crowd.late.Load(), crowd.dialed.Load(), len(crowd.faults()))
		for _, fault := range crowd.faults() {
			t.Errorf("round %d: %s", round, fault)
		}
		if crowd.late.Load() < clients && cuttest.Current() == cuttest.Whole { // in pieces, each takes longer
			t.Errorf("round %d: only %d requests while draining: the gateway does not accept long enough", round, crowd.late.Load())
		}
	}
}

// crowd is a number of keep-alive clients that ask without end.
type crowd struct {
	stage                       *stage
	draining                    atomic.Bool // every response to what is sent now must close its connection
	served, late, dialed, ended atomic.Int64
	mu                          sync.Mutex
	wrong                       []string
}

func newCrowd(s *stage, clients int) *crowd {
	c := &crowd{stage: s}
	for i := range clients {
		go c.client(i)
	}
	return c
}

func (c *crowd) wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	gatewaytest.Eventually(t, 20*time.Second, what, done)
}

func (c *crowd) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

func (c *crowd) faults() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.wrong...)
}

// client asks on one connection after another until it is refused one.
func (c *crowd) client(number int) {
	defer c.ended.Add(1)
	pace := time.NewTicker(30 * time.Millisecond)
	defer pace.Stop()
	for {
		conn, err := net.Dial("tcp", c.stage.ListenAddr) // which refuses, where a relay would not
		// Reset, too, says that there was no connection: the listener went while
		// the handshake was under way, and nothing has been sent.
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
			return
		}
		if err != nil {
			c.fault("client %d: dial: %v", number, err)
			return
		}
		c.dialed.Add(1)
		conn = cuttest.Writes(conn)
		c.converse(number, conn, pace)
		_ = conn.Close()
		<-pace.C
	}
}

// converse asks on one connection until a response closes it.
func (c *crowd) converse(number int, conn net.Conn, pace *time.Ticker) {
	in := bufio.NewReader(conn)
	for n := 0; ; n++ {
		draining := c.draining.Load()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		status, closing, err := c.exchange(conn, in, n%3)
		if err != nil {
			c.fault("client %d lost request %d of a connection: %v", number, n, err)
			return
		}
		if status != http.StatusOK {
			c.fault("client %d: status %d", number, status)
		}
		c.served.Add(1)
		if draining {
			c.late.Add(1)
			if !closing {
				c.fault("client %d: an answer without Connection: close while draining", number)
			}
		}
		if closing {
			return
		}
		<-pace.C
	}
}

// exchange sends one request, of one of three kinds, and reads the whole response.
func (c *crowd) exchange(conn net.Conn, in *bufio.Reader, kind int) (status int, closing bool, err error) {
	s := c.stage
	var request *http.Request
	switch kind {
	case 0:
		request, err = http.NewRequest(http.MethodGet, s.URL+"/svc/1", nil)
	case 1:
		request, err = http.NewRequest(http.MethodPut, s.URL+"/svc/1", strings.NewReader(strings.Repeat("x", 10<<10)))
	default:
		request, err = http.NewRequest(http.MethodPost, s.URL+"/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	}
	if err != nil {
		return 0, false, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	if kind == 2 {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.SetBasicAuth(s.client.ID, s.client.Secret)
	}
	if err := request.Write(conn); err != nil {
		return 0, false, err
	}
	response, err := http.ReadResponse(in, request)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Close, err
}

// TestShutdownFinishesWhatRuns: what was accepted is answered, however late in
// the drain it came and however long it takes within the shutdown time.
func TestShutdownFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t, "SNOWGATE_DRAIN=500ms", "SNOWGATE_SHUTDOWN_TIMEOUT=15s")
	before := s.begin(t)
	silent := dial(t, s) // connected, and nothing sent yet
	upload := dial(t, s) // half of a request body sent
	write(t, upload, "PUT /svc/upload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+s.token+"\r\nContent-Length: 10\r\n\r\n01234")
	s.Signal(terminate)
	s.WaitLog("snowgate stops: it still accepts requests")
	during := s.begin(t) // a new connection
	write(t, silent, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
	wantResponse(t, "/readyz on a connection from before", silent, http.StatusServiceUnavailable)
	gatewaytest.Eventually(t, 5*time.Second, "the listener is closed", func() bool {
		conn, err := net.Dial("tcp", s.ListenAddr)
		if err == nil {
			_ = conn.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	if !s.Alive() {
		t.Fatal("the gateway has ended with requests under way")
	}
	write(t, upload, "56789")
	wantResponse(t, "an upload that ends after the drain", upload, http.StatusOK)
	s.release()
	wantResponse(t, "a request from before the drain", before, http.StatusOK)
	wantResponse(t, "a request that came while draining", during, http.StatusOK)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func dial(t *testing.T, s *stage) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// wantResponse reads one response, which must be whole and close its connection.
func wantResponse(t *testing.T, what string, conn net.Conn, status int) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != status || !response.Close {
		t.Errorf("%s: %d, close %v, %v; want %d and a closed connection", what, response.StatusCode, response.Close, err, status)
	}
}

// TestShutdownCutsStreams: what would never end by itself ends when the shutdown
// time is over, and not before.
func TestShutdownCutsStreams(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	s := newStage(t, "SNOWGATE_DRAIN=200ms", "SNOWGATE_SHUTDOWN_TIMEOUT=2s")
	ended := make(chan string, 2)
	s.openEvents(t, ended)
	s.openWebSocket(t, ended)
	begin := time.Now()
	s.Signal(terminate)
	for range 2 {
		select {
		case name := <-ended:
			if took := time.Since(begin); took < limit-50*time.Millisecond || took > limit+2*time.Second {
				t.Errorf("the %s ended %v after SIGTERM, want about %v", name, took, limit)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a stream goes on")
		}
	}
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if len(s.Lines("requests that still run are cut")) != 1 {
		t.Error("the log does not say that requests were cut")
	}
}

// openEvents opens a stream of server-sent events and names it to ended when it
// is over.
func (s *stage) openEvents(t *testing.T, ended chan<- string) {
	t.Helper()
	request := s.Request(http.MethodGet, "/svc/events", nil)
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Accept", "text/event-stream")
	response, err := new(http.Transport).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(response.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "event: tick\n" {
		t.Fatalf("the first event is %q, %v", line, err)
	}
	go func() {
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, in)
		ended <- "stream of events"
	}()
}

// openWebSocket does the same with a WebSocket.
func (s *stage) openWebSocket(t *testing.T, ended chan<- string) {
	t.Helper()
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, s.URL+"/svc/socket", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + s.token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := conn.Read(ctx); err != nil || string(text) != "hello" {
		t.Fatalf("the WebSocket echoes %q, %v", text, err)
	}
	go func() {
		defer func() { _ = conn.CloseNow() }()
		if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("the WebSocket ended with %v, want a close frame with status 1001", err)
		}
		ended <- "WebSocket"
	}()
}

// TestSecondSignalEndsAtOnce: an operator who insists need not wait.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, first := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(first.String(), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "SNOWGATE_DRAIN=5s", "SNOWGATE_SHUTDOWN_TIMEOUT=6s")
			s.begin(t)
			s.Signal(first)
			s.WaitLog("snowgate stops: it still accepts requests")
			begin := time.Now()
			s.Signal(terminate)
			if code := s.Wait(); code == 0 {
				t.Error("exit code 0 although requests were dropped")
			}
			if took := time.Since(begin); took > stallTime {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestShutdownBeforeRedisIsThere: a gateway that has never been ready stops like
// any other.
func TestShutdownBeforeRedisIsThere(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config:   "clients: []\n",
		NotReady: true,
		Env:      []string{"SNOWGATE_REDIS_URL=redis://127.0.0.1:1"},
	})
	g.Signal(syscall.SIGTERM)
	if code := g.Wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}
