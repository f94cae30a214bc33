package integration_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzSecurityRequests looks for a request that gets to the protected service
// without a verdict, or to the public one with something that only the gateway
// may say. Each input is one request of any shape, or several in one.
//
// For a longer look: go test ./integration -run '^$' -fuzz FuzzSecurityRequests -fuzztime 2m -parallel 2
func FuzzSecurityRequests(f *testing.F) {
	for _, test := range refusedTargets {
		f.Add(http.MethodGet, test.target, "below.test", "", false)
	}
	for _, lines := range []string{
		"X-Snowgate-Client: evil", "X_Snowgate_Client: evil\r\nConnection: X-Snowgate-Client", "Connection:\r\nConnection: X-Request-Id",
		"X-Forwarded-For: evil\r\nForwarded: for=evil", "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Snowgate-Client: evil\r\n\r\n" + smuggled,
		"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, "Content-Length: 5\r\n\r\nhello" + smuggled,
		"Upgrade: websocket\r\nConnection: Upgrade", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x",
		"Host: beside.test", "Authorization: Bearer x", "Authorization: Bearer\r\n x", "X-Original-Url: /svc/x", "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
		" folded", "A : b", "Trailer: X-Snowgate-Client", "TE: trailers", "X-A: b\nX-Snowgate-Scope: evil", "Connection: close, Host",
	} {
		for _, target := range []string{"/svc/x", "/public/x", "http://below.test/svc/x"} {
			f.Add(http.MethodPost, target, "below.test", lines, true)
			f.Add(http.MethodGet, target, "slash.test", lines, false)
		}
	}
	for _, host := range []string{"BELOW.test.", "below.test:80", "evil@below.test", "below.test, slash.test", "", "[::1]", "slash.test\r\nHost: below.test"} {
		f.Add(http.MethodGet, "/svc%2fx", host, "", true)
	}
	s := newSite(f, `
  - {name: slash-svc, host: slash.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use], allow_encoded_slash: true, websocket: true}
  - {name: slash-all, host: slash.test, path: /, upstreams: [$PUBLIC], public: true, allow_encoded_slash: true, websocket: true}
`)
	f.Cleanup(func() { s.settle(f, "the end") })
	f.Fuzz(func(t *testing.T, method, target, host, lines string, authorized bool) {
		if len(target)+len(lines) > 8<<10 {
			t.Skip("longer than it is worth")
		}
		text := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n"
		if authorized {
			text += bearer(s.token) + "\r\n"
		}
		if lines != "" {
			text += lines + "\r\n"
		}
		probe(t, s.Addr, text+"\r\n")
		s.wantClean(t, text)
	})
}

// probe sends text and reads what comes back for a moment.
func probe(t *testing.T, address, text string) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("the gateway is gone: %v", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := io.WriteString(conn, text); err != nil {
		return
	}
	in := bufio.NewReader(conn)
	for range 4 { // as many responses as there are requests in it, or nearly so
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return
		}
		if response.StatusCode >= http.StatusOK {
			_, _ = io.Copy(io.Discard, response.Body)
		}
		_ = response.Body.Close()
		if response.Close || response.StatusCode >= http.StatusOK && strings.Count(text, "\r\n\r\n") <= 1 {
			return
		}
	}
}

// wantClean looks at what the services received so far. It is [site.settle] for
// fuzzing, which must not call the methods of the test around it.
func (s *site) wantClean(t *testing.T, text string) {
	t.Helper()
	protected, public := s.protected.Requests(), s.public.Requests()
	s.protected.Reset()
	s.public.Reset()
	for _, raw := range protected {
		if fault := s.unjudged(raw); fault != "" {
			t.Errorf("after %q the protected service received a request with %s: %q", text, fault, raw)
		}
	}
	for _, raw := range public {
		if fault := claims(raw); fault != "" {
			t.Errorf("after %q the public service received a request with %s: %q", text, fault, raw)
		}
	}
}
