package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"snowgate/proxy"
	"snowgate/proxy/route"
)

func TestServerSentEventsAtOnce(t *testing.T) {
	read := make(chan struct{})
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for i := range 3 {
			event := fmt.Sprintf("data: %d\n\n", i)
			fmt.Fprintf(conn, "%x\r\n%s\r\n", len(event), event)
			<-read // the next event only after the client has this one
		}
		_, err := io.WriteString(conn, "0\r\n\r\n")
		return err == nil
	})
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send(get("/public", ""))
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := bufio.NewReader(response.Body)
	for i := range 3 {
		text, err := body.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); text != want || err != nil {
			t.Fatalf("event = %q, %v, want %q", text, err, want)
		}
		if _, err := body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		read <- struct{}{}
	}
	if rest, err := io.ReadAll(body); len(rest) > 0 || err != nil {
		t.Errorf("end of the stream = %q, %v", rest, err)
	}
}

// TestHeaderAtOnce checks that a header does not wait for the first byte of its
// body, with a known length too.
func TestHeaderAtOnce(t *testing.T) {
	seen := make(chan struct{})
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
		<-seen
		_, err := io.WriteString(conn, "ok")
		return err == nil
	})
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send(get("/public", ""))
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	close(seen)
	if body, err := io.ReadAll(response.Body); string(body) != "ok" || err != nil {
		t.Errorf("body = %q, %v", body, err)
	}
}

// TestFullDuplex talks back and forth within one request and one response.
func TestFullDuplex(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = control.Flush()
		buffer := make([]byte, 16)
		for {
			n, err := r.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			_ = control.Flush()
			if err != nil {
				return
			}
		}
	}))
	defer service.Close()
	g := newGateway(t, gatewayOptions{}, public(mustParse(t, service.URL)))
	c := dial(t, g.address())
	c.send("POST /public HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		word := fmt.Sprintf("word%d", i)
		c.send(fmt.Sprintf("%x\r\n%s\r\n", len(word), word))
		echoed := make([]byte, len(word))
		if _, err := io.ReadFull(response.Body, echoed); err != nil || string(echoed) != word {
			t.Fatalf("echo = %q, %v, want %q", echoed, err, word)
		}
	}
	c.send("0\r\n\r\n")
	if rest, err := io.ReadAll(response.Body); len(rest) > 0 || err != nil {
		t.Errorf("end of the answer = %q, %v", rest, err)
	}
	if !response.Close {
		t.Error("an answer that began before its request had ended keeps the connection")
	}
}

// TestEarlyResponse has a service respond before it has read the body.
func TestEarlyResponse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_, _ = io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
		_, _ = io.Copy(io.Discard, conn)
	}()
	g := newGateway(t, gatewayOptions{}, public(mustParse(t, "http://"+listener.Addr().String())))
	c := dial(t, g.address())
	c.send("POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nbegin") // and then silence
	response, body := c.answer("POST")
	if response.StatusCode != http.StatusUnauthorized || body != "no" || !response.Close {
		t.Errorf("answer = %d %q, close %t, want the early 401 and close", response.StatusCode, body, response.Close)
	}
	c.send(get("/public", "")) // the rest of a body, or an attack
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the rest of a body was taken for a request, or the connection stays: %q, %v", rest, err)
	}
}

func TestExpectContinue(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send("POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
	text, err := c.ReadString('\n')
	if err != nil || text != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("interim answer = %q, %v", text, err)
	}
	if _, err := c.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c.send("hello")
	if response, _ := c.answer("POST"); response.StatusCode != http.StatusOK {
		t.Errorf("answer = %d, want 200", response.StatusCode)
	}
}

func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

func webSocketGateway(t *testing.T) *gateway {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(echoWebSocket))
	t.Cleanup(service.Close)
	u := mustParse(t, service.URL)
	open, closed := protected(u), protected(u)
	open.WebSocket = true
	closed.Name, closed.Path = "closed", "/closed"
	return newGateway(t, gatewayOptions{clientIdle: 200 * time.Millisecond}, open, closed)
}

func dialWebSocket(t *testing.T, g *gateway, path string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	t.Cleanup(cancel)
	conn, response, err := websocket.Dial(ctx, "ws://"+g.address()+path,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + goodText}}})
	if err == nil {
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, response, err
}

// outlastIdle returns after a client of g was silent for too long.
func outlastIdle(t *testing.T, g *gateway) {
	t.Helper()
	response, _ := g.ask(t, "POST /closed HTTP/1.1\r\nHost: h\r\n"+authorized+"Content-Length: 5\r\n\r\nhe")
	if response.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("half a body = %d, want 408", response.StatusCode)
	}
	if access, _ := g.log.next(t); access.Status != http.StatusRequestTimeout {
		t.Fatalf("logged status = %d, want 408", access.Status)
	}
}

func TestWebSocket(t *testing.T) {
	g := webSocketGateway(t)
	conn, response, err := dialWebSocket(t, g, "/svc")
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header["X-Request-Id"]; len(got) != 1 {
		t.Errorf("X-Request-Id of the handshake = %q, want one", got)
	}
	for i := range 3 {
		message := fmt.Sprint("message ", i)
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(message)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.Read(t.Context()); string(got) != message || err != nil {
			t.Fatalf("echo = %q, %v, want %q", got, err, message)
		}
		outlastIdle(t, g)
	}
	if got := g.drainer.Running(); got != 1 {
		t.Errorf("%d requests under way, want the WebSocket", got)
	}
	if err := conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	access, text := g.log.next(t)
	if access.Status != http.StatusSwitchingProtocols || access.Aborted || access.Client != "orders-worker" {
		t.Errorf("access line %s, want status 101 of the client", text)
	}
	if err := g.drainer.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWebSocketIsCutWithItsContext(t *testing.T) {
	g := webSocketGateway(t)
	conn, _, err := dialWebSocket(t, g, "/svc")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Read(t.Context()); err != nil { // it is open now
		t.Fatal(err)
	}
	g.cut()
	if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("when the gateway stops: %v, want a close frame with status 1001", err)
	}
	if err := g.drainer.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWebSocketWhereItIsNotAllowed(t *testing.T) {
	g := webSocketGateway(t)
	if _, response, err := dialWebSocket(t, g, "/closed"); err == nil {
		t.Errorf("handshake = %d, want a refusal", response.StatusCode)
	}
}

func TestUpgradesAreDropped(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	open := public(service.url)
	open.WebSocket = true
	closed := public(service.url)
	closed.Name, closed.Path = "closed", "/closed"
	g := newGateway(t, gatewayOptions{}, open, closed)
	tests := []struct{ path, fields, why string }{
		{"/closed", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "not on this route"},
		{"/public", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", "h2c would hide what follows"},
		{"/public", "Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", "the same, badly said"},
		{"/public", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n", "a choice"},
		{"/public", "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n", "a choice"},
		{"/public", "Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n", "two lines"},
		{"/public", "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", "two lines"},
		{"/public", "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n", "another protocol"},
		{"/public", "Upgrade: websocket\r\n", "not named by Connection"},
	}
	for _, test := range tests {
		if response, _ := g.ask(t, get(test.path, test.fields)); response.StatusCode != http.StatusOK {
			t.Errorf("%q = %d, want the answer to a plain request (%s)", test.fields, response.StatusCode, test.why)
			continue
		}
		got := strings.ToLower(service.received(t))
		for _, name := range []string{"\r\nupgrade:", "\r\nconnection:", "\r\nhttp2-settings:"} {
			if strings.Contains(got, name) {
				t.Errorf("%q: the service received %q (%s)", test.fields, got, test.why)
			}
		}
	}
	post := "POST /public HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n"
	g.ask(t, post)
	if got := service.received(t); strings.Contains(got, "Upgrade") {
		t.Errorf("a POST was upgraded: %q", got)
	}
}

// switchesAtOnce is a service that responds to the head of a request, 101 where it can, and does
// not wait for a body. It takes one before it closes the connection, which a reset would end instead:
// whoever still writes then may see that before the response, as net/http's transport does.
func switchesAtOnce(t *testing.T) *url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				reader := textproto.NewReader(bufio.NewReader(conn))
				if _, err := reader.ReadLine(); err != nil {
					return
				}
				head, err := reader.ReadMIMEHeader()
				if err != nil || head.Get("Upgrade") != "" {
					_, _ = io.WriteString(conn, switched)
					_, _ = io.Copy(conn, conn)
					return
				}
				_, _ = io.WriteString(conn, strings.Replace(okResponse, "\r\n", "\r\nConnection: close\r\n", 1))
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}
}

// TestUpgradeWithABody: a handshake has no body (RFC 6455 §4.1). While one is sent on, nobody
// else may read from the client.
func TestUpgradeWithABody(t *testing.T) {
	const handshake = "GET /public HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
	for _, test := range []struct{ fields, body string }{
		{"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", ""},
		{"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", "5\r\nhello\r\n"},
		{"Expect: 100-continue\r\nContent-Length: 5\r\n", ""},
		{"Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n"},
		{"Transfer-Encoding: chunked\r\n", "0\r\n\r\n"},
		{"Content-Length: 5\r\n", "hello"},
		{"Content-Length: 5\r\n", "he"},
	} {
		open := public(switchesAtOnce(t))
		open.WebSocket = true
		g := newGateway(t, gatewayOptions{}, open)
		c := dial(t, g.address())
		c.send(handshake + test.fields + "\r\n" + test.body)
		response, err := http.ReadResponse(c.Reader, nil)
		if err != nil {
			t.Fatalf("%q, %q: %v", test.fields, test.body, err)
		}
		if response.StatusCode == http.StatusContinue {
			response, err = http.ReadResponse(c.Reader, nil)
		}
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%q, %q = %v, %v, want the response to a request without an upgrade", test.fields, test.body, response, err)
		}
		_, _ = io.WriteString(c.Conn, "5\r\nhello\r\n") // the connection may be closed
		_ = c.Close()
		if response, _ := g.ask(t, get("/public", "")); response.StatusCode != http.StatusOK {
			t.Errorf("the next request = %d, want 200", response.StatusCode)
		}
	}
}

func TestUpgradeToAnotherProtocolThanAsked(t *testing.T) {
	for _, answer := range []string{
		"Connection: Upgrade\r\nUpgrade: h2c\r\n", "Upgrade: websocket\r\n", "Connection: Upgrade\r\n", "",
		"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
	} {
		gone := make(chan struct{})
		service := newUpstream(t, func(conn net.Conn, _ string) bool {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+answer+"\r\n")
			_, _ = io.Copy(io.Discard, conn)
			close(gone)
			return false
		})
		open := public(service.url)
		open.WebSocket = true
		g := newGateway(t, gatewayOptions{}, open)
		response, _ := g.ask(t, get("/public", "Connection: Upgrade\r\nUpgrade: websocket\r\n"))
		if response.StatusCode != http.StatusBadGateway {
			t.Errorf("101 with %q = %d, want 502", answer, response.StatusCode)
		}
		waitFor(t, gone, "the connection to the service is left open")
	}
}

func TestSwitchedResponseIsReduced(t *testing.T) {
	service := newUpstream(t, saysAndCloses("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: abc\r\nX-Request-Id: leak\r\nX-Snowgate-Client: leak\r\nKeep-Alive: leak\r\n\r\nraw bytes"))
	open := public(service.url)
	open.WebSocket = true
	g := newGateway(t, gatewayOptions{}, open)
	c := dial(t, g.address())
	c.send(get("/public", "Connection: upgrade\r\nUpgrade: WebSocket\r\n"))
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(raw), "\r\n\r\n")
	if strings.Contains(head, "leak") || strings.Count(head, "X-Request-Id") != 1 || rest != "raw bytes" {
		t.Errorf("the client received %q", raw)
	}
}

func TestDrainingSaysClose(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	service := newUpstream(t, func(conn net.Conn, request string) bool {
		if strings.HasPrefix(request, "GET /public/slow") {
			close(begun)
			<-finish
		}
		_, err := io.WriteString(conn, okResponse)
		return err == nil
	})
	g := newGateway(t, gatewayOptions{}, public(service.url))
	if response, _ := g.ask(t, get("/public", "")); response.Close {
		t.Error("the connection closes before the gateway drains")
	}
	slow := dial(t, g.address())
	slow.send(get("/public/slow", ""))
	waitFor(t, begun, "the service was not asked")
	g.drainer.Start()
	close(finish)
	if response, _ := slow.answer("GET"); !response.Close {
		t.Error("a request that was under way when draining began is not told to close")
	}
	for _, target := range []string{"/public", "/nowhere", "//"} {
		if response, _ := g.ask(t, get(target, "")); !response.Close {
			t.Errorf("GET %s while draining = %d and keeps the connection", target, response.StatusCode)
		}
	}
}

// TestForwarderWithoutAVerdict forgets the middleware that judges.
func TestForwarderWithoutAVerdict(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	table, err := route.NewTable([]route.Route{protected(service.url)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	router := newRouter()
	router.Swap(table)
	handler := proxy.Match(router)(proxy.NewForwarder(proxy.Options{}))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/svc", nil))
	if w.Code == http.StatusOK {
		t.Error("a request without exchange and verdict was forwarded")
	}
	service.nothing(t)
}
