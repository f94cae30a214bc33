package proxy_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestHTTP2(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{http2: true}, protected(service.url))
	request, err := http.NewRequestWithContext(t.Context(), "POST", g.URL+"/svc/x?a;b", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+goodText)
	request.Header.Set("X_Snowgate_Client", "forged")
	response, err := g.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
		t.Errorf("answer = %d in %s, want 200 in HTTP/2", response.StatusCode, response.Proto)
	}
	got := service.received(t)
	if !strings.HasPrefix(got, "POST /svc/x?a;b HTTP/1.1\r\n") || !strings.HasSuffix(got, "\r\n\r\nhello") ||
		strings.Contains(got, "forged") || rawField(got, "X-Forwarded-Proto")[0] != "https" {
		t.Errorf("the service received %q", got)
	}
}

// TestHTTP2StreamsOutliveDeadlines lets a stream be silent for longer than a
// client may take for one write. HTTP/2 deadlines reset streams that idle.
func TestHTTP2StreamsOutliveDeadlines(t *testing.T) {
	later := make(chan struct{})
	service := newUpstream(t, neverOr(func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
		<-later
		_, err := io.WriteString(conn, "cd")
		return err == nil
	}))
	route := public(service.url)
	route.Timeout = 100 * time.Millisecond
	g := newGateway(t, gatewayOptions{http2: true, clientIdle: 20 * time.Millisecond}, route)
	fetch := func(path string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), "GET", g.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := g.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	stream := fetch("/public")
	if status := fetch("/public/never").StatusCode; status != http.StatusGatewayTimeout {
		t.Fatalf("GET /public/never = %d, want 504", status)
	}
	close(later)
	if body, err := io.ReadAll(stream.Body); string(body) != "abcd" || err != nil {
		t.Errorf("body = %q, %v, want all of it", body, err)
	}
}
