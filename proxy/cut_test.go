package proxy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"snowgate/internal/scope"
	"snowgate/tokens"
)

// watcher is a proxy.Watch that cuts when a test says so.
type watcher struct {
	dead    error            // with this, every exchange is cut as soon as it is watched
	watched chan func(error) // the cut of each exchange
	stopped chan struct{}    // one for each watch that ended
	tokens  chan *tokens.Token
	asked   chan tokens.Requirement
}

func newWatcher() *watcher {
	return &watcher{
		watched: make(chan func(error), 16), stopped: make(chan struct{}, 16),
		tokens: make(chan *tokens.Token, 16), asked: make(chan tokens.Requirement, 16),
	}
}

func (w *watcher) watch(token *tokens.Token, req tokens.Requirement, cut func(error)) func() {
	if token.IsZero() {
		panic("an exchange without a token is watched")
	}
	w.tokens <- token
	w.asked <- req
	w.watched <- cut
	if w.dead != nil {
		cut(w.dead)
	}
	return func() { w.stopped <- struct{}{} }
}

// next returns the cut of the exchange that is watched next.
func (w *watcher) next(t testing.TB) func(error) {
	t.Helper()
	select {
	case cut := <-w.watched:
		return cut
	case <-time.After(patienceOfTests):
		t.Fatal("no exchange is watched")
		return nil
	}
}

// wantStopped checks that as many watches ended as began.
func (w *watcher) wantStopped(t testing.TB, want int) {
	t.Helper()
	for range want {
		waitFor(t, w.stopped, "a watch goes on after its exchange")
	}
	if more := len(w.stopped) + len(w.watched); more > 0 {
		t.Errorf("%d watches too many", more)
	}
}

// wantCause checks the access line of an exchange that was cut.
func wantCause(t testing.TB, g *gateway, status int, cause string) {
	t.Helper()
	access, text := g.log.next(t)
	if access.Status != status || !strings.Contains(access.Cause, cause) {
		t.Errorf("access line %s, want status %d and the cause %q", text, status, cause)
	}
}

// wantIdle checks that nothing of a request is left.
func wantIdle(t testing.TB, g *gateway) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patienceOfTests)
	defer cancel()
	if err := g.drainer.Wait(ctx); err != nil {
		t.Errorf("a request that was cut goes on: %v", err)
	}
}

// newCutGateway starts a gateway before serve, with routes that need a token, and WebSockets.
func newCutGateway(t *testing.T, o gatewayOptions, serve http.HandlerFunc) (*gateway, *watcher) {
	t.Helper()
	service := httptest.NewServer(serve)
	t.Cleanup(service.Close)
	return newCutGatewayAt(t, o, service.URL)
}

func newCutGatewayAt(t *testing.T, o gatewayOptions, address string) (*gateway, *watcher) {
	t.Helper()
	w := newWatcher()
	o.watch = w.watch
	route := protected(mustParse(t, address))
	route.WebSocket = true
	open := public(mustParse(t, address))
	open.WebSocket = true
	return newGateway(t, o, route, open), w
}

func TestWebSocketIsCut(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason error
		code   websocket.StatusCode
		cause  string
	}{
		{tokens.ErrExpired, websocket.StatusPolicyViolation, "expired"},
		{tokens.ErrUnknown, websocket.StatusPolicyViolation, "unknown"},
		{&tokens.InsufficientScopeError{Required: scope.List("a")}, websocket.StatusPolicyViolation, "lacks a scope"},
		{tokens.ErrUnavailable, websocket.StatusTryAgainLater, "cannot decide"},
	}
	for _, test := range tests {
		t.Run(test.cause, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			g, watch := newCutGateway(t, gatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
				echoWebSocket(w, r)
				close(gone)
			})
			conn, _, err := dialWebSocket(t, g, "/svc")
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			if _, got, err := conn.Read(t.Context()); string(got) != "hello" || err != nil {
				t.Fatalf("echo = %q, %v", got, err)
			}
			watch.next(t)(test.reason)
			_, _, err = conn.Read(t.Context())
			if got := websocket.CloseStatus(err); got != test.code {
				t.Errorf("Read() = %v, want a close frame with status %d", err, test.code)
			}
			waitFor(t, gone, "the service is not hung up on")
			wantIdle(t, g)
			watch.wantStopped(t, 1)
			wantCause(t, g, http.StatusSwitchingProtocols, test.cause)
			if token, req := <-watch.tokens, <-watch.asked; token.ID != tokenID || req.Scope != "orders.read" {
				t.Errorf("watched token %v for %+v, want that of the request and the requirement of its route", token.ID, req)
			}
		})
	}
}

// TestWebSocketOfADeadToken has the token end before the tunnel is open.
func TestWebSocketOfADeadToken(t *testing.T) {
	t.Parallel()
	g, watch := newCutGateway(t, gatewayOptions{}, echoWebSocket)
	watch.dead = tokens.ErrExpired
	conn, _, err := dialWebSocket(t, g, "/svc")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("Read() = %v, want a close frame", err)
	}
	wantIdle(t, g)
	watch.next(t)
	watch.wantStopped(t, 1)
}

func TestWebSocketThatEndsInOrder(t *testing.T) {
	t.Parallel()
	g, watch := newCutGateway(t, gatewayOptions{}, echoWebSocket)
	conn, _, err := dialWebSocket(t, g, "/svc")
	if err != nil {
		t.Fatal(err)
	}
	cut := watch.next(t)
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	wantIdle(t, g)
	watch.wantStopped(t, 1)
	cut(tokens.ErrExpired) // too late
	if access, text := g.log.next(t); access.Cause != "" {
		t.Errorf("access line %s, want no cause", text)
	}
}

const switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// rawFrame returns an unmasked binary frame.
func rawFrame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0x82, 126}, uint16(len(payload))), payload...)
}

// rawSocket is a WebSocket of which the test holds both ends, down to the bytes.
type rawSocket struct {
	gateway *gateway
	watch   *watcher
	cut     func(error)
	client  *connection
	service net.Conn
	gone    chan struct{} // closed when the service is hung up on
}

// newRawSocket opens one. first is sent by the service together with its response.
func newRawSocket(t *testing.T, first []byte) *rawSocket {
	t.Helper()
	s := &rawSocket{gone: make(chan struct{})}
	conns := make(chan net.Conn, 1)
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, _ = conn.Write(append([]byte(switched), first...))
		conns <- conn
		_, _ = io.Copy(io.Discard, conn)
		close(s.gone)
		return false
	})
	s.gateway, s.watch = newCutGatewayAt(t, gatewayOptions{}, service.url.String())
	s.client = dial(t, s.gateway.address())
	s.client.send(get("/svc", authorized+"Connection: Upgrade\r\nUpgrade: websocket\r\n"))
	s.cut, s.service = s.watch.next(t), <-conns
	response, err := http.ReadResponse(s.client.Reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake = %v, %v", response, err)
	}
	return s
}

// want reads exactly these bytes.
func (s *rawSocket) want(t *testing.T, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(s.client, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the client received %d bytes, %v, equal %t; want %d", n, err, bytes.Equal(got, want), len(want))
	}
}

// wantEnd reads the rest, which must be the close frame of the gateway or, with
// no frame, nothing.
func (s *rawSocket) wantEnd(t *testing.T, frame bool) {
	t.Helper()
	rest, err := io.ReadAll(s.client)
	if err != nil {
		t.Errorf("the end of the connection: %v", err)
	}
	if got := len(rest) >= 4 && rest[0] == 0x88 && int(rest[1]) == len(rest)-2 && binary.BigEndian.Uint16(rest[2:]) == 1008; got != frame || !frame && len(rest) > 0 {
		t.Errorf("the end of the connection is %q, want a close frame: %t", rest, frame)
	}
	_ = s.client.Close()
	waitFor(t, s.gone, "the service is not hung up on")
	wantIdle(t, s.gateway)
	s.watch.wantStopped(t, 1)
	wantCause(t, s.gateway, http.StatusSwitchingProtocols, "expired")
}

// TestCloseFrameWaitsForItsTurn cuts in the middle of a frame of the service.
func TestCloseFrameWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	frame := rawFrame(bytes.Repeat([]byte("x"), 10_000))
	for _, at := range []int{1, 3, 5, 9_000, len(frame) - 1} { // in the header, and after it
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			s := newRawSocket(t, frame[:at])
			s.want(t, frame[:at])
			s.cut(tokens.ErrExpired)
			if _, err := s.service.Write(frame[at:]); err != nil {
				t.Fatal(err)
			}
			s.want(t, frame[at:])
			s.wantEnd(t, true)
		})
	}
}

// TestFrameThatNeverEnds: a service that does not finish its frame does not keep
// the connection open, and nothing is put into the frame.
func TestFrameThatNeverEnds(t *testing.T) {
	t.Parallel()
	frame := rawFrame(make([]byte, 100))
	s := newRawSocket(t, frame[:50])
	s.want(t, frame[:50])
	s.cut(tokens.ErrExpired)
	s.wantEnd(t, false)
}

// TestNothingAfterACloseFrame: after a close frame of the service there is none of
// the gateway.
func TestNothingAfterACloseFrame(t *testing.T) {
	t.Parallel()
	goodbye := []byte{0x88, 2, 0x03, 0xe8}
	s := newRawSocket(t, goodbye)
	s.want(t, goodbye)
	s.cut(tokens.ErrExpired)
	s.wantEnd(t, false)
}

// TestClientThatDoesNotRead is cut although what it was sent fills every buffer.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	s := newRawSocket(t, nil)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		frame := rawFrame(make([]byte, 60_000))
		for {
			_ = s.service.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := s.service.Write(frame); err != nil {
				return
			}
		}
	}()
	waitFor(t, wrote, "there is no end to the buffers")
	s.cut(tokens.ErrExpired)
	waitFor(t, s.gone, "the service is not hung up on")
	wantIdle(t, s.gateway)
	s.watch.wantStopped(t, 1)
}

// TestCloseFrameGetsThrough although the client has sent what nobody reads:
// closing at once would reset the connection.
func TestCloseFrameGetsThrough(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, switched)
		<-stuck // it reads nothing
		return false
	})
	g, watch := newCutGatewayAt(t, gatewayOptions{}, service.url.String())
	c := dial(t, g.address())
	c.send(get("/svc", authorized+"Connection: Upgrade\r\nUpgrade: websocket\r\n"))
	cut := watch.next(t)
	if response, err := http.ReadResponse(c.Reader, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake = %v, %v", response, err)
	}
	for piece := make([]byte, 64<<10); ; {
		_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := c.Conn.Write(piece); err != nil {
			break
		}
	}
	cut(tokens.ErrExpired)
	if rest, err := io.ReadAll(c); err != nil || len(rest) < 4 || rest[0] != 0x88 {
		t.Errorf("the end of the connection is %q, %v, want a close frame", rest, err)
	}
	wantIdle(t, g)
	watch.wantStopped(t, 1)
	close(stuck)
}

// stream answers with a first piece at once and then as the test says.
func stream(length string, wait <-chan struct{}, gone chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if length != "" {
			w.Header().Set("Content-Length", length)
		} else {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			close(gone)
		case <-wait:
		}
	}
}

// TestStreamsAreCut: the connection of a response that is cut breaks off, and the
// service is hung up on.
func TestStreamsAreCut(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]string{"chunked": "", "of known length": "100"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			g, watch := newCutGateway(t, gatewayOptions{}, stream(length, nil, gone))
			c := dial(t, g.address())
			c.send(get("/svc", authorized))
			response, err := http.ReadResponse(c.Reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			watch.next(t)(tokens.ErrExpired)
			body, err := io.ReadAll(response.Body)
			if string(body) != "data: 1\n\n" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("body = %q, %v, want an end in the middle", body, err)
			}
			waitFor(t, gone, "the service is not hung up on")
			wantIdle(t, g)
			watch.wantStopped(t, 1)
			access, text := g.log.next(t)
			if !access.Aborted || !strings.Contains(access.Cause, "expired") {
				t.Errorf("access line %s, want aborted with the cause", text)
			}
		})
	}
}

// TestSlowDownloadIsCut: a client that takes nothing more is not waited for.
func TestSlowDownloadIsCut(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2 ", http2), func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			g, watch := newCutGateway(t, gatewayOptions{http2: http2}, func(w http.ResponseWriter, r *http.Request) {
				piece := make([]byte, 64<<10)
				for r.Context().Err() == nil {
					if _, err := w.Write(piece); err != nil {
						break
					}
				}
				close(gone)
			})
			response := fetch(t, g, http.MethodGet, "/svc", nil)
			watch.next(t)(tokens.ErrExpired)
			waitFor(t, gone, "the service is not hung up on")
			wantIdle(t, g)
			watch.wantStopped(t, 1)
			if _, err := io.Copy(io.Discard, response.Body); err == nil {
				t.Error("the body ends as if it were whole")
			}
			wantCause(t, g, http.StatusOK, "expired")
		})
	}
}

// fetch sends a request with the client of g, which speaks HTTP/2 if g does.
func fetch(t *testing.T, g *gateway, method, path string, body io.Reader) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, g.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+goodText)
	response, err := g.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// TestHTTP2StreamIsCut resets one stream and leaves the others of its connection.
func TestHTTP2StreamIsCut(t *testing.T) {
	t.Parallel()
	gone, wait := make(chan struct{}), make(chan struct{})
	g, watch := newCutGateway(t, gatewayOptions{http2: true}, stream("", wait, gone))
	first, second := fetch(t, g, http.MethodGet, "/svc", nil), fetch(t, g, http.MethodGet, "/public", nil)
	watch.next(t)(tokens.ErrExpired)
	if body, err := io.ReadAll(first.Body); err == nil || string(body) != "data: 1\n\n" {
		t.Errorf("the stream that is cut = %q, %v", body, err)
	}
	waitFor(t, gone, "the service is not hung up on")
	close(wait)
	if body, err := io.ReadAll(second.Body); err != nil || string(body) != "data: 1\n\n" {
		t.Errorf("the stream beside it = %q, %v", body, err)
	}
	wantIdle(t, g)
	watch.wantStopped(t, 1) // that of a public route is not watched
}

// TestRequestIsCutBeforeItsResponse: as long as nothing was answered, the response
// is that of any request with such a token.
func TestRequestIsCutBeforeItsResponse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, raw string
		reason    error
		status    int
		challenge string
	}{
		{"a service that thinks", get("/svc", authorized), tokens.ErrExpired, http.StatusUnauthorized, `error="invalid_token"`},
		{
			"an upload", "POST /svc HTTP/1.1\r\nHost: h\r\n" + authorized + "Content-Length: 1000\r\n\r\nbegin",
			tokens.ErrExpired, http.StatusUnauthorized, `error="invalid_token"`,
		},
		{
			"a chunked upload", "POST /svc HTTP/1.1\r\nHost: h\r\n" + authorized + "Transfer-Encoding: chunked\r\n\r\n5\r\nbegin",
			tokens.ErrExpired, http.StatusUnauthorized, `error="invalid_token"`,
		},
		{
			"a scope taken away", get("/svc", authorized), &tokens.InsufficientScopeError{Required: scope.List("a")},
			http.StatusForbidden, `error="insufficient_scope"`,
		},
		{"nobody knows", get("/svc", authorized), tokens.ErrUnavailable, http.StatusServiceUnavailable, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			gone := make(chan struct{})
			g, watch := newCutGateway(t, gatewayOptions{}, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				close(gone)
			})
			c := dial(t, g.address())
			c.send(test.raw)
			watch.next(t)(test.reason)
			response, _ := c.answer("POST")
			if got := response.Header.Get("Www-Authenticate"); response.StatusCode != test.status || !strings.Contains(got, test.challenge) {
				t.Errorf("answer = %d, WWW-Authenticate %q, want %d, %q", response.StatusCode, got, test.status, test.challenge)
			}
			if upload := strings.HasPrefix(test.raw, "POST"); response.Close != upload {
				t.Errorf("close = %t, want %t", response.Close, upload)
			}
			waitFor(t, gone, "the service is not hung up on")
			wantIdle(t, g)
			watch.wantStopped(t, 1)
			wantCause(t, g, test.status, strings.TrimPrefix(test.reason.Error(), "tokens: "))
		})
	}
}

// TestFullDuplexIsCut cuts an upload that is being answered already.
func TestFullDuplexIsCut(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	g, watch := newCutGateway(t, gatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		_ = control.Flush()
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		close(gone)
	})
	c := dial(t, g.address())
	c.send("POST /svc HTTP/1.1\r\nHost: h\r\n" + authorized + "Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n")
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	watch.next(t)(tokens.ErrExpired)
	if body, err := io.ReadAll(response.Body); err == nil || len(body) > 0 {
		t.Errorf("body = %q, %v, want an end in the middle", body, err)
	}
	waitFor(t, gone, "the service is not hung up on")
	wantIdle(t, g)
	watch.wantStopped(t, 1)
	wantCause(t, g, http.StatusOK, "expired")
}

// TestShortExchangesAreNotWatched, nor those without a token, however long.
func TestShortExchangesAreNotWatched(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2 ", http2), func(t *testing.T) {
			t.Parallel()
			testShortExchanges(t, http2)
		})
	}
}

func testShortExchanges(t *testing.T, http2 bool) {
	wait := make(chan struct{})
	g, watch := newCutGateway(t, gatewayOptions{http2: http2}, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/long") {
			stream("", wait, make(chan struct{}, 1))(w, r)
		}
	})
	open := fetch(t, g, http.MethodGet, "/public/long", nil)
	slow := 0 // on a busy machine
	for range 20 {
		begin := time.Now()
		if status := fetch(t, g, http.MethodPost, "/svc", strings.NewReader("body")).StatusCode; status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		if time.Since(begin) > 400*time.Millisecond {
			slow++
		}
	}
	watched := len(watch.watched)
	if watched > slow {
		t.Errorf("%d exchanges are watched, %d were not short", watched, slow)
	}
	for range watched {
		watch.next(t)
	}
	long := fetch(t, g, http.MethodGet, "/svc/long", nil)
	cut := watch.next(t) // the public one has lasted for longer
	close(wait)
	for _, response := range []*http.Response{open, long} {
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Errorf("a stream that nobody cut: %v", err)
		}
	}
	wantIdle(t, g)
	watch.wantStopped(t, watched+1)
	cut(tokens.ErrExpired) // too late
}
