package proxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"snowgate/integration/cuttest"
)

// closedPort returns the address of a port where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestServiceResponsesNonsense(t *testing.T) {
	tests := []struct{ response, why string }{
		{"HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n", "a status under 100, which net/http panics on"},
		{"HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n", "no status"},
		{"HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n", "a status that HTTP does not have"},
		{"HTTP/1.1 999 High\r\nContent-Length: 0\r\n\r\n", "the same"},
		{"HTTP/1.1 1000 Long\r\nContent-Length: 0\r\n\r\n", "four digits"},
		{"HTTP/1.1 20 Short\r\nContent-Length: 0\r\n\r\n", "two digits"},
		{"HTTP/1.1 -20 Minus\r\nContent-Length: 0\r\n\r\n", "a sign"},
		{"HTTP/1.1 +20 Plus\r\nContent-Length: 0\r\n\r\n", "a sign that Atoi takes"},
		{"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "another version"},
		{"HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n", "a version nobody knows"},
		{"garbage\r\n\r\n", "not HTTP"},
		{"SSH-2.0-OpenSSH_9.9\r\n", "another protocol"},
		{"\x16\x03\x01\x02\x00\x01", "TLS"},
		{"", "nothing at all"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "two lengths"},
		{"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "a negative length"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "an unknown coding"},
		{"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "a line without a colon"},
		{"HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", "1 MB in one field"},
		{"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Big: xxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", 30_000) + "\r\n", "1 MB in many fields"},
		{"HTTP/1.1 200 OK\r\n" + "X-Big: " + strings.Repeat("x", 66<<10) + "\r\n\r\n", "just over 64 KiB"},
		{"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", "a protocol that was not asked for"},
		{"HTTP/1.1 101 Switching Protocols\r\n\r\n", "a switch to no protocol"},
		{"HTTP/1.1 103 Early Hints\r\n\r\n", "an interim answer and no more"},
	}
	for _, test := range tests {
		service := newUpstream(t, saysAndCloses(test.response))
		g := newGateway(t, gatewayOptions{}, public(service.url))
		c := dial(t, g.address())
		c.send("POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
		response, body := c.answer("POST")
		if response.StatusCode == http.StatusEarlyHints {
			response, body = c.answer("POST")
		}
		if response.StatusCode != http.StatusBadGateway || response.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s = %d %q, want a 502 problem", test.why, response.StatusCode, body)
		}
		if strings.Contains(body, service.url.Host) || strings.Contains(body, "127.0.0.1") {
			t.Errorf("%s: the answer names an internal address: %s", test.why, body)
		}
		access, text := g.log.next(t)
		if access.Status != http.StatusBadGateway || access.Cause == "" || access.Upstream != service.url.String() {
			t.Errorf("%s: access line %.300s, want status 502 with a cause and the service", test.why, text)
		}
		if len(service.requests) != 1 {
			t.Errorf("%s: the service was asked %d times, want once", test.why, len(service.requests))
		}
	}
}

func TestBigHeaderUnderTheLimitPasses(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 200 OK\r\nX-Big: "+strings.Repeat("x", 48<<10)+"\r\nContent-Length: 0\r\n\r\n"))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	if response, _ := g.ask(t, get("/public", "")); response.StatusCode != http.StatusOK {
		t.Errorf("48 KiB of header = %d, want 200", response.StatusCode)
	}
}

func TestServiceUnreachable(t *testing.T) {
	g := newGateway(t, gatewayOptions{}, public(mustParse(t, "http://"+closedPort(t))))
	response, body := g.ask(t, get("/public", ""))
	if response.StatusCode != http.StatusBadGateway || strings.Contains(body, "127.0.0.1") {
		t.Errorf("refused = %d %q, want 502 without an address", response.StatusCode, body)
	}
	if access, text := g.log.next(t); !strings.Contains(access.Cause, "refused") {
		t.Errorf("access line %s, want the cause", text)
	}
}

func TestServiceTooSlow(t *testing.T) {
	for _, request := range []string{
		get("/public", ""),
		"POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
	} {
		gone := make(chan struct{})
		service := newUpstream(t, func(conn net.Conn, _ string) bool {
			_, _ = conn.Read(make([]byte, 1)) // until the gateway hangs up
			close(gone)
			return false
		})
		route := public(service.url)
		route.Timeout = 50 * time.Millisecond
		g := newGateway(t, gatewayOptions{}, route)
		if response, body := g.ask(t, request); response.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("%q = %d %q, want 504", request, response.StatusCode, body)
		}
		waitFor(t, gone, "the service is not hung up on")
	}
}

func waitFor(t testing.TB, done <-chan struct{}, complaint string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patienceOfTests):
		t.Fatal(complaint)
	}
}

// outlast returns after the timeout of the routes of g has passed: it asks for
// what the service never answers.
func outlast(t *testing.T, g *gateway) {
	t.Helper()
	if response, _ := g.ask(t, get("/public/never", "")); response.StatusCode != http.StatusGatewayTimeout {
		t.Fatalf("GET /public/never = %d, want 504", response.StatusCode)
	}
}

// neverOr answers like s, except for /public/never.
func neverOr(s script) script {
	return func(conn net.Conn, request string) bool {
		if strings.HasPrefix(request, "GET /public/never ") {
			_, _ = conn.Read(make([]byte, 1)) // until the gateway hangs up
			return false
		}
		return s(conn, request)
	}
}

func TestTimeoutDoesNotCutStreams(t *testing.T) {
	later := make(chan struct{})
	service := newUpstream(t, neverOr(func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
		<-later
		_, _ = io.WriteString(conn, "cd")
		return true
	}))
	route := public(service.url)
	route.Timeout = 50 * time.Millisecond
	if cuttest.Current() != cuttest.Whole {
		route.Timeout *= 10 // the head comes in many pieces
	}
	g := newGateway(t, gatewayOptions{}, route)
	c := dial(t, g.address())
	c.send(get("/public", ""))
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	outlast(t, g)
	close(later)
	if body, err := io.ReadAll(response.Body); string(body) != "abcd" || err != nil {
		t.Errorf("body = %q, %v, want all of it", body, err)
	}
}

// TestTimeoutDoesNotCountTheClient lets a client take longer for its body than
// the service may take for its response.
func TestTimeoutDoesNotCountTheClient(t *testing.T) {
	service := newUpstream(t, neverOr(says(okResponse)))
	route := public(service.url)
	route.Timeout = 50 * time.Millisecond
	g := newGateway(t, gatewayOptions{}, route)
	c := dial(t, g.address())
	c.send("POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe")
	outlast(t, g)
	outlast(t, g) // because the clock starts anew with what was read of the body
	c.send("llo")
	if response, _ := c.answer("POST"); response.StatusCode != http.StatusOK {
		t.Errorf("a slow upload = %d, want 200", response.StatusCode)
	}
}

func TestBrokenResponsesAreNotEnded(t *testing.T) {
	tests := []struct{ response, why string }{
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", "a short body"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "no last chunk"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "a malformed chunk"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "half a chunk"},
	}
	for _, test := range tests {
		for _, reset := range []bool{false, true} {
			service := newUpstream(t, func(conn net.Conn, _ string) bool {
				_, _ = io.WriteString(conn, test.response)
				if tcp, ok := conn.(interface{ SetLinger(seconds int) error }); ok && reset {
					_ = tcp.SetLinger(0)
				}
				return false
			})
			g := newGateway(t, gatewayOptions{}, public(service.url))
			c := dial(t, g.address())
			c.send(get("/public", ""))
			response, err := http.ReadResponse(c.Reader, nil)
			if err == nil && response.StatusCode == http.StatusOK {
				_, err = io.ReadAll(response.Body)
			}
			if err == nil && response.StatusCode == http.StatusOK {
				t.Errorf("%s (reset %t): the client took it for a whole answer", test.why, reset)
			}
			access, text := g.log.next(t)
			if access.Cause == "" || (access.Status == http.StatusOK && !access.Aborted) {
				t.Errorf("%s (reset %t): access line %s, want it marked as aborted, with a cause", test.why, reset, text)
			}
		}
	}
}

func TestClientGone(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		close(asked)
		_, _ = conn.Read(make([]byte, 1))
		close(gone)
		return false
	})
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send(get("/public", ""))
	waitFor(t, asked, "the service was not asked")
	start := time.Now()
	c.Close()
	waitFor(t, gone, "the service is not hung up on")
	if took := time.Since(start); took > time.Second {
		t.Errorf("the service was hung up on after %v, want within a second", took)
	}
	if access, text := g.log.next(t); access.Status != 499 {
		t.Errorf("access line %s, want status 499", text)
	}
	if err := g.drainer.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestClientGoneWithinAnResponse(t *testing.T) {
	stop := make(chan struct{})
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := conn.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				close(stop)
				return false
			}
		}
	})
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send(get("/public", ""))
	if _, err := io.CopyN(io.Discard, c, 100<<10); err != nil {
		t.Fatal(err)
	}
	c.Close()
	waitFor(t, stop, "the service is not hung up on")
	if access, text := g.log.next(t); !access.Aborted || access.Cause == "" {
		t.Errorf("access line %s, want it marked as aborted, with a cause", text)
	}
}

func TestClientThatTakesNothing(t *testing.T) {
	stop := make(chan struct{})
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := conn.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				close(stop)
				return false
			}
		}
	})
	g := newGateway(t, gatewayOptions{clientIdle: 200 * time.Millisecond}, public(service.url))
	c := dial(t, g.address())
	c.send(get("/public", ""))
	waitFor(t, stop, "a client that takes nothing holds the service for ever")
}

func TestClientThatStopsSending(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{clientIdle: 200 * time.Millisecond}, public(service.url))
	c := dial(t, g.address())
	c.send("POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe")
	if response, _ := c.answer("POST"); response.StatusCode != http.StatusRequestTimeout || !response.Close {
		t.Errorf("half a body and silence = %d, close %t, want 408 and close", response.StatusCode, response.Close)
	}
}

func TestBodyLimit(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	route := public(service.url)
	route.MaxBody = 10
	g := newGateway(t, gatewayOptions{}, route)
	tests := []struct {
		framed string
		status int
		why    string
	}{
		{"Content-Length: 10\r\n\r\n0123456789", 200, "at the limit"},
		{"Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n", 200, "at the limit, in chunks"},
		{"Content-Length: 11\r\n\r\n", 413, "announced, refused before the body"},
		{"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n", 413, "no 100 for a body that is too large"},
		{"Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n", 413, "not announced"},
		{"Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n6\r\n567890\r\n0\r\n\r\n", 413, "not announced, in two chunks"},
	}
	for _, test := range tests {
		response, _ := g.ask(t, "POST /public HTTP/1.1\r\nHost: h\r\n"+test.framed)
		if response.StatusCode != test.status {
			t.Errorf("%s = %d, want %d", test.why, response.StatusCode, test.status)
		}
		if test.status == 413 && !response.Close {
			t.Errorf("%s: the connection stays open", test.why)
		}
	}
	if got := len(service.requests); got != 2 {
		t.Errorf("the service got %d whole requests, want 2", got)
	}
}

func TestMalformedBodies(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "net/http closes behind its 400 without reading on, which resets the connection")
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url), protected(service.url))
	smuggled := get("/svc", "")
	for _, framed := range []string{
		"Content-Length: +5\r\n\r\nhello", "Content-Length: 0x5\r\n\r\nhello", "Content-Length: 5, 6\r\n\r\nhello",
		"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "Content-Length: \r\n\r\n", "Content-Length: 5 5\r\n\r\nhello",
		"Transfer-Encoding: gzip\r\n\r\nhello", "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n",
	} {
		response, _ := g.ask(t, "POST /public HTTP/1.1\r\nHost: h\r\n"+framed+smuggled)
		if response.StatusCode != http.StatusBadRequest && response.StatusCode != http.StatusNotImplemented || !response.Close {
			t.Errorf("%q = %d, close %t, want 400 or 501 and close", framed, response.StatusCode, response.Close)
		}
	}
	service.nothing(t)
	canary(t, g, service)
}

func TestLengthWithCodingClosesTheConnection(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url), protected(service.url))
	c := dial(t, g.address())
	c.send("POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get("/svc", authorized))
	if response, _ := c.answer("POST"); !response.Close {
		t.Errorf("Content-Length with Transfer-Encoding = %d and the connection stays open", response.StatusCode)
	}
	if _, err := c.ReadByte(); !errors.Is(err, io.EOF) && !isReset(err) {
		t.Errorf("after the answer: %v, want the end", err)
	}
	if got := service.received(t); strings.Contains(got, "Content-Length") {
		t.Errorf("the service received %q", got)
	}
	service.nothing(t)
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

func TestPipelinedRequestsAreJudgedEach(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, protected(service.url), public(service.url))
	c := dial(t, g.address())
	c.send(get("/svc/1", authorized) + get("/svc/2", "") + get("/public/3", "") + get("/svc/4", authorized))
	for i, want := range []int{200, 401, 200, 200} {
		if response, _ := c.answer("GET"); response.StatusCode != want {
			t.Errorf("request %d = %d, want %d", i+1, response.StatusCode, want)
		}
	}
	service.received(t)
	if got := service.received(t); len(rawField(got, "X-Snowgate-Client")) != 0 {
		t.Errorf("a request inherited an identity: %q", got)
	}
}

// TestNoRetryOfAPost breaks the kept-alive connection after the second request
// was read.
func TestNoRetryOfAPost(t *testing.T) {
	served := false
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		if served {
			return false
		}
		served = true
		_, err := io.WriteString(conn, okResponse)
		return err == nil
	})
	g := newGateway(t, gatewayOptions{}, public(service.url))
	g.ask(t, get("/public", ""))
	response, _ := g.ask(t, "POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
	if response.StatusCode != http.StatusBadGateway || len(service.requests) != 2 {
		t.Errorf("a POST whose connection broke = %d after %d requests, want 502 after 2", response.StatusCode, len(service.requests))
	}
}

// TestCauseDoesNotRepeatTheToken has a service quote the request in a response
// that ends up in an error.
func TestCauseDoesNotRepeatTheToken(t *testing.T) {
	const other = "sgt_00000000000abc"
	for _, quoted := range []string{goodText, other} {
		service := newUpstream(t, saysAndCloses("HTTP/1.1 <"+quoted+"> garbage\r\n\r\n"))
		g := newGateway(t, gatewayOptions{}, protected(service.url))
		g.ask(t, get("/svc/"+other+"?access_token="+goodText, authorized+"User-Agent: "+goodText+"\r\n"))
		_, text := g.log.next(t)
		if strings.Contains(text, goodText) || strings.Contains(text, other) || !strings.Contains(text, "<[redacted]>") {
			t.Errorf("access line %s, want the cause without the token", text)
		}
	}
}

// TestNoChunkAtAll: what comes behind the header of a response is no chunk. The client gets the header
// and then the end of the connection, whether or not both came together.
func TestNoChunkAtAll(t *testing.T) {
	const header = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, parts := range map[string][]string{"together": {header + "nonsense\r\n"}, "apart": {header, "nonsense\r\n"}, "broken off": {header + "3\r"}} {
		sent := make(chan struct{}, 1)
		service := newUpstream(t, func(conn net.Conn, _ string) bool {
			for i, part := range parts {
				if i > 0 {
					<-sent
				}
				_, _ = io.WriteString(conn, part)
			}
			return false
		})
		g := newGateway(t, gatewayOptions{}, public(service.url))
		conn := dial(t, g.address())
		conn.send("GET /public HTTP/1.1\r\nHost: g.example\r\n\r\n")
		response, err := http.ReadResponse(conn.Reader, nil)
		if err != nil {
			t.Errorf("%s: the header: %v", name, err)
			continue
		}
		sent <- struct{}{}
		if body, err := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || len(body) > 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: status %d, body %q, %v; want 200 that breaks off", name, response.StatusCode, body, err)
		}
	}
}

// TestGarbageOnAKeptConnection: a service that responds with nonsense is to blame, also on a connection
// that had carried requests; one that only closes it may have done so just before.
func TestGarbageOnAKeptConnection(t *testing.T) {
	for garbage, want := range map[string]uint64{"XXXX\r\n\r\n": 1, "": 0} {
		asked := 0
		service := newUpstream(t, func(conn net.Conn, _ string) bool {
			if asked++; asked > 1 {
				_, _ = io.WriteString(conn, garbage)
				return false
			}
			_, err := io.WriteString(conn, okResponse)
			return err == nil
		})
		g := newGateway(t, gatewayOptions{}, public(service.url))
		for _, status := range []int{http.StatusOK, http.StatusBadGateway} {
			if response, _ := g.ask(t, "POST /public HTTP/1.1\r\nHost: g.example\r\nContent-Length: 1\r\n\r\nx"); response.StatusCode != status {
				t.Errorf("%q: status %d, want %d", garbage, response.StatusCode, status)
			}
		}
		if got := g.router.Replicas("public")[0].Failures; got != want {
			t.Errorf("%q: %d failures, want %d", garbage, got, want)
		}
	}
}

// TestNoContentHasNoLength: RFC 9110 §8.6. Clients over HTTP/2 took the length for a body that is missing.
func TestNoContentHasNoLength(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"))
	g := newGateway(t, gatewayOptions{http2: true}, public(service.url))
	response, err := g.Client().Get(g.URL + "/public")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err != nil || response.Header.Get("Content-Length") != "" {
		t.Errorf("body: %v, Content-Length: %q", err, response.Header.Get("Content-Length"))
	}
}
