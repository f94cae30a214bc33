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
	"sync/atomic"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// says is a service that answers every request with the same bytes and closes.
func says(t *testing.T, response string) *gatewaytest.Service {
	t.Helper()
	return gatewaytest.NewService(t, func(conn net.Conn, _ io.Reader, _ *http.Request) bool {
		_, _ = io.WriteString(conn, response)
		return false
	})
}

// badResponses are responses of services that are none: 502, and nothing of them is
// repeated.
var badResponses = []struct{ response, why string }{
	{"", "it hangs up"},
	{"HTTP/1.1 099 Odd\r\nContent-Length: 6\r\n\r\nsecret", "a status below 100, which panics net/http"},
	{"HTTP/1.1 000 Zero\r\nContent-Length: 6\r\n\r\nsecret", "zero"},
	{"HTTP/1.1 1000 Large\r\nContent-Length: 6\r\n\r\nsecret", "a status above 999"},
	{"HTTP/1.1 600 Odd\r\nContent-Length: 6\r\n\r\nsecret", "no class of RFC 9110 §15"},
	{"HTTP/1.1 999 Odd\r\nContent-Length: 6\r\n\r\nsecret", "no class of RFC 9110 §15"},
	{"HTTP/1.1 -200 Minus\r\n\r\nsecret", "a negative status"},
	{"HTTP/1.1 +200 Plus\r\n\r\nsecret", "a sign"},
	{"HTTP/1.1 20 Short\r\n\r\nsecret", "two digits"},
	{"HTTP/1.1 2xx Word\r\n\r\nsecret", "no number"},
	{"HTTP/1.1\r\n\r\nsecret", "no status"},
	{"HTTP/1.1 200 OK", "no end"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n", "a header without end"},
	{"HTTP/1.1 200 OK\r\nNo colon here\r\n\r\nsecret", "a field without colon"},
	{"HTTP/1.1 200 OK\r\n: x\r\n\r\nsecret", "no name"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nsecret", "two lengths"},
	{"HTTP/1.1 200 OK\r\nContent-Length: -6\r\n\r\nsecret", "a negative length"},
	{"HTTP/1.1 200 OK\r\nContent-Length: six\r\n\r\nsecret", "a length in words"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 0x6\r\n\r\nsecret", "a hexadecimal length"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nsecret", "an unknown coding"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "chunked twice"},
	{"HTTP/2.0 200 OK\r\nContent-Length: 6\r\n\r\nsecret", "another version"},
	{"HTTP/3.0 200 OK\r\nContent-Length: 6\r\n\r\nsecret", "yet another"},
	{"HTTP/0.9 200 OK\r\nContent-Length: 6\r\n\r\nsecret", "an old one"},
	{"ICY 200 OK\r\nContent-Length: 6\r\n\r\nsecret", "another protocol"},
	{"SSH-2.0-OpenSSH_9.9 secret\r\n", "yet another"},
	{"secret", "a body alone"},
	{strings.Repeat("secret\x00\xff", 1000), "garbage"},
	{strings.Repeat("secret\r\n\r\n", 1000), "many line ends"},
	{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("secret", 1<<18) + "\r\nContent-Length: 0\r\n\r\n", "a field of 1.5 MB"},
	{"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: secret\r\n", 100_000) + "\r\n", "1.1 MB of fields"},
	{"HTTP/1.1 200 " + strings.Repeat("secret", 1<<18) + "\r\n\r\n", "a reason of 1.5 MB"},
	{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nsecret", "an upgrade that nobody asked for"},
	{strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: secret\r\n\r\n", 100), "interim answers alone"},
	{strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 10_000)+"\r\n\r\n", 200), "2 MB of interim answers"},
}

func TestSecurityBadResponses(t *testing.T) {
	routes := fmt.Sprintf(`
  - {name: refused, host: up.test, path: /refused, upstreams: [%s], scopes: [svc.use]}`, gatewaytest.ClosedPort(t))
	services := make([]*gatewaytest.Service, len(badResponses))
	for i, test := range badResponses {
		services[i] = says(t, test.response)
		routes += fmt.Sprintf(`
  - {name: bad-%[1]d, host: up.test, path: /bad/%[1]d, upstreams: [%[2]s], scopes: [svc.use]}`, i, services[i].URL)
	}
	s := newSite(t, routes+"\n")
	wantBadGateway := func(what string, got gatewaytest.Response) {
		t.Helper()
		if got.StatusCode != http.StatusBadGateway || got.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s = %d %s %.200s, want 502", what, got.StatusCode, got.Header.Get("Content-Type"), got.Body)
		}
		if strings.Contains(got.Body, "secret") || strings.Contains(got.Body, "127.0.0.1") {
			t.Errorf("%s: the answer repeats what it should not: %.200s", what, got.Body)
		}
		s.untouched(t, what)
	}
	wantBadGateway("nobody there", s.Exchange(rawGet("up.test", "/refused", bearer(s.token))))
	for i, test := range badResponses {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			before := services[i].Requests()
			text := rawRequest(method, "up.test", fmt.Sprintf("/bad/%d", i), []string{bearer(s.token), "Connection: close"}, "")
			wantBadGateway(fmt.Sprintf("%s of a service that answers %.40q (%s)", method, test.response, test.why), s.Exchange(text))
			if n := services[i].Requests() - before; n != 1 {
				t.Errorf("%s of a service that answers %.40q: asked %d times, want once", method, test.response, n)
			}
		}
		if got := s.Exchange(rawGet("up.test", fmt.Sprintf("/bad/%d", i))); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a token = %d, want 401", got.StatusCode)
		}
	}
}

// TestSecurityBrokenBodies lets services break off their responses. What the caller
// gets never ends like a whole response.
func TestSecurityBrokenBodies(t *testing.T) {
	reset := func(conn net.Conn) { _ = conn.(interface{ SetLinger(seconds int) error }).SetLinger(0) } // close sends RST
	tests := []struct {
		response string
		end      func(net.Conn)
		why      string
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", nil, "shorter than its length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", reset, "reset within its length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", nil, "nothing of it"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 500_000), nil, "half of a large one"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", nil, "without the last chunk"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", reset, "reset before the last chunk"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", nil, "within a chunk"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", nil, "within the end"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", nil, "a size that is none"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n", nil, "bare line feeds"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello", nil, "two framings"},
		{"HTTP/1.1 200 OK\r\n\r\nhello", reset, "reset where the end of the connection is the end of the body"},
	}
	var routes string
	for i, test := range tests {
		service := gatewaytest.NewService(t, func(conn net.Conn, _ io.Reader, _ *http.Request) bool {
			_, _ = io.WriteString(conn, test.response)
			if test.end != nil {
				test.end(conn)
			}
			return false
		})
		routes += fmt.Sprintf(`
  - {name: broken-%[1]d, host: 127.0.0.1, path: /broken/%[1]d, upstreams: [%[2]s], scopes: [svc.use]}`, i, service.URL)
	}
	s := newSite(t, routes+"\n")
	for i, test := range tests {
		request := s.Request(http.MethodGet, fmt.Sprintf("/broken/%d", i), nil)
		request.Header.Set("Authorization", "Bearer "+s.token)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		got, err := gatewaytest.Do(request.WithContext(ctx))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an answer that is %s does not end", test.why)
		}
		// 502 if nothing had been sent on yet, else a break.
		if err == nil && got.StatusCode != http.StatusBadGateway {
			t.Errorf("an answer that is %s = %d with %d whole bytes, want a break", test.why, got.StatusCode, len(got.Body))
		}
		s.untouched(t, test.why)
	}
}

// TestSecuritySilentServices lets services take too long for their header. The
// caller gets 504 when the time of the route is over, and they are given up.
func TestSecuritySilentServices(t *testing.T) {
	const timeout, late = 300 * time.Millisecond, 5 * time.Second
	var gone atomic.Int64
	// drip sends a piece at a time until the gateway hangs up.
	drip := func(begin, piece string) *gatewaytest.Service {
		return gatewaytest.NewService(t, func(conn net.Conn, in io.Reader, _ *http.Request) bool {
			_, _ = io.WriteString(conn, begin)
			buffer := make([]byte, 1)
			for {
				_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if _, err := in.Read(buffer); err != nil && !isTimeout(err) {
					gone.Add(1)
					return false
				}
				_, _ = io.WriteString(conn, piece)
			}
		})
	}
	tests := []struct {
		name    string
		service *gatewaytest.Service
	}{
		{"nothing", drip("", "")},
		{"half a status line", drip("HTTP/1.1 20", "")},
		{"half a header", drip("HTTP/1.1 200 OK\r\nX: y\r\n", "")},
		{"a header field by field", drip("HTTP/1.1 200 OK\r\n", "X: y\r\n")},
		{"a field letter by letter", drip("HTTP/1.1 200 OK\r\nX: ", "y")},
		{"interim answers without end", drip("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")},
		{"100 Continue without end", drip("", "HTTP/1.1 100 Continue\r\n\r\n")},
	}
	var routes string
	for i, test := range tests {
		routes += fmt.Sprintf(`
  - {name: silent-%[1]d, host: 127.0.0.1, path: /silent/%[1]d, upstreams: [%[2]s], scopes: [svc.use], timeout: %[3]s}`, i, test.service.URL, timeout)
	}
	s := newSite(t, routes+"\n")
	for i, test := range tests {
		got := s.Exchange(rawGet("127.0.0.1", fmt.Sprintf("/silent/%d", i), bearer(s.token)))
		if got.StatusCode != http.StatusGatewayTimeout || got.Duration < timeout || got.Duration > late {
			t.Errorf("a service that sends %s = %d after %v, want 504 after %v", test.name, got.StatusCode, got.Duration, timeout)
		}
		gatewaytest.Eventually(t, time.Second, "the service is given up that sends "+test.name, func() bool {
			return gone.Load() == int64(i+1)
		})
		if n := test.service.Requests(); n != 1 {
			t.Errorf("a service that sends %s was asked %d times, want once", test.name, n)
		}
		s.untouched(t, test.name)
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// TestSecurityClientGone lets clients leave at every stage. The service learns of
// it within a second, and nothing is left of the request.
func TestSecurityClientGone(t *testing.T) {
	arrived, cancelled := make(chan struct{}, 1), make(chan time.Time, 1)
	service := func(begin string) *gatewaytest.Service {
		return gatewaytest.NewService(t, func(conn net.Conn, in io.Reader, _ *http.Request) bool {
			_, _ = io.WriteString(conn, begin)
			arrived <- struct{}{}
			_, _ = io.Copy(io.Discard, in) // until the gateway hangs up
			cancelled <- time.Now()
			return false
		})
	}
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	tests := []struct {
		begin, body string
		fields      []string
		why         string
	}{
		{"", "", nil, "before the answer"},
		{head + "\r\ndata: x\n\n", "", nil, "within a stream"},
		{head + "Content-Length: 1000\r\n\r\nhello", "", nil, "within an answer of known length"},
		{"", "hello", []string{"Content-Length: 1000"}, "within its own body"},
		{"", "5\r\nhello\r\n", []string{"Transfer-Encoding: chunked"}, "within its own chunks"},
		{"", "hello", []string{"Content-Length: 5"}, "behind its own body"},
		{head + "\r\ndata: x\n\n", "hello", []string{"Content-Length: 1000"}, "within both"},
		{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "", []string{"Upgrade: websocket", "Connection: Upgrade"}, "within a WebSocket"},
	}
	var routes string
	for i, test := range tests {
		routes += fmt.Sprintf(`
  - {name: gone-%[1]d, host: gone.test, path: /gone/%[1]d, upstreams: [%[2]s], scopes: [svc.use], websocket: true}`, i, service(test.begin).URL)
	}
	s := newSite(t, routes+"\n")
	s.settle(t, "the start")
	before := s.Metrics().Sum("go_goroutines")
	for i, test := range tests {
		method := http.MethodGet
		if test.body != "" {
			method = http.MethodPost
		}
		conn := s.Dial()
		ask := rawRequest(method, "gone.test", fmt.Sprintf("/gone/%d", i), append([]string{bearer(s.token)}, test.fields...), test.body)
		if _, err := io.WriteString(conn, ask); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the request that ends "+test.why, arrived)
		if test.begin != "" { // its response is under way
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := conn.Read(make([]byte, 100)); err != nil {
				t.Errorf("%s: %v", test.why, err)
			}
		}
		left := time.Now()
		_ = conn.Close()
		if noticed := waitFor(t, "the end of the request that ends "+test.why, cancelled).Sub(left); noticed > time.Second {
			t.Errorf("a client that leaves %s: the service learns of it after %v, want 1 s at most", test.why, noticed)
		}
		s.untouched(t, test.why)
	}
	gatewaytest.Eventually(t, 5*time.Second, "the goroutines end", func() bool {
		return s.Metrics().Sum("go_goroutines") <= before+4 // connections kept open to the services and to this test
	})
}

// waitFor receives from c.
func waitFor[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: not within 10 s", what)
		panic("unreachable")
	}
}

// TestSecurityRetries lets a service hang up in ways that clients like to answer
// with another attempt. What may change something is sent once.
func TestSecurityRetries(t *testing.T) {
	// It serves the first request of a connection and takes the second without a
	// response, so that the gateway cannot tell whether it was carried out.
	flaky := func() *gatewaytest.Service {
		return gatewaytest.NewService(t, func(conn net.Conn, _ io.Reader, request *http.Request) bool {
			_, _ = io.Copy(io.Discard, request.Body)
			if request.Header.Get("X-Last") != "" {
				return false
			}
			_, _ = io.WriteString(conn, gatewaytest.DefaultResponse)
			return true
		})
	}
	tests := []struct {
		method, body string
		fields       []string
		why          string
	}{
		{http.MethodPost, "", []string{"Content-Length: 0"}, "without a body"},
		{http.MethodPost, "hello", []string{"Content-Length: 5"}, "with a body"},
		{http.MethodPost, "5\r\nhello\r\n0\r\n\r\n", []string{"Transfer-Encoding: chunked"}, "with chunks"},
		{http.MethodPut, "hello", []string{"Content-Length: 5"}, "whose body is gone"},
		{http.MethodPatch, "hello", []string{"Content-Length: 5"}, "which is not idempotent"},
		{http.MethodDelete, "", nil, "whose second answer differs from the first"},
	}
	var routes string
	services := make([]*gatewaytest.Service, len(tests))
	for i := range tests {
		services[i] = flaky()
		routes += fmt.Sprintf(`
  - {name: flaky-%[1]d, host: flaky.test, path: /flaky/%[1]d, upstreams: [%[2]s], scopes: [svc.use]}`, i, services[i].URL)
	}
	s := newSite(t, routes+"\n")
	for i, test := range tests {
		path := fmt.Sprintf("/flaky/%d", i)
		for range 3 {
			if got := s.Exchange(rawGet("flaky.test", path, bearer(s.token))); got.StatusCode != http.StatusOK {
				t.Errorf("GET %s = %d, want 200", path, got.StatusCode)
			}
		}
		if n := services[i].Connections(); n != 1 {
			t.Errorf("three requests took %d connections, want 1", n)
		}
		before := services[i].Requests()
		fields := append([]string{bearer(s.token), "X-Last: 1", "Connection: close"}, test.fields...)
		got := s.Exchange(rawRequest(test.method, "flaky.test", path, fields, test.body))
		if n := services[i].Requests() - before; got.StatusCode != http.StatusBadGateway || n != 1 {
			t.Errorf("%s %s = %d after %d attempts, want 502 after one", test.method, test.why, got.StatusCode, n)
		}
		s.untouched(t, test.method+" "+test.why)
	}
}

// TestSecurityEarlyResponses lets a service respond before it has read the body. The
// caller gets the response, and the rest of the body is no request.
func TestSecurityEarlyResponses(t *testing.T) {
	early := says(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
	s := newSite(t, `
  - {name: early, host: early.test, path: /svc, upstreams: [`+early.URL+`], scopes: [svc.use], max_body: 0}
`)
	for _, size := range []int{len(smuggled), 100_000, 5_000_000} {
		body := strings.Repeat(smuggled, size/len(smuggled))
		fields := []string{bearer(s.token), fmt.Sprintf("Content-Length: %d", len(body))}
		responses, closed := s.Conversation(rawRequest(http.MethodPost, "early.test", "/svc/x", fields, body)+smuggled, 3)
		what := fmt.Sprintf("an early answer to %d bytes", len(body))
		// The service closes with unread bytes, so its response may be lost on the way: 502.
		if !closed || len(responses) > 0 && responses[0].StatusCode != http.StatusForbidden && responses[0].StatusCode != http.StatusBadGateway {
			t.Errorf("%s = %v, closed = %v; want 403", what, statuses(responses), closed)
		}
		if len(responses) > 2 || len(responses) == 2 && responses[1].StatusCode != http.StatusUnauthorized {
			t.Errorf("%s = %v, want 401 for the next request, if it is served", what, statuses(responses))
		}
		s.wantNotSmuggled(t, what, responses)
	}
}

// TestSecurityInterim looks at interim responses that are in order: they arrive, and
// the response behind them is whole.
func TestSecurityInterim(t *testing.T) {
	service := says(t, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: X-Request-Id\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	s := newSite(t, `
  - {name: interim, host: interim.test, path: /svc, upstreams: [`+service.URL+`], scopes: [svc.use]}
`)
	conn := s.Dial()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, rawGet("interim.test", "/svc/x", bearer(s.token))); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\r\n\r\n")
	if !strings.HasPrefix(first, "HTTP/1.1 103 ") || !strings.Contains(first, "Link: </a>") ||
		strings.Contains(first, "Transfer-Encoding") || strings.Contains(first, "Connection") {
		t.Errorf("the interim answer = %q", first)
	}
	if !strings.HasPrefix(second, "HTTP/1.1 200 ") || !strings.HasSuffix(second, "\r\n\r\nok") || !strings.Contains(second, "\r\nX-Request-Id: ") {
		t.Errorf("the answer behind it = %q", second)
	}
	s.settle(t, "interim answers")
}
