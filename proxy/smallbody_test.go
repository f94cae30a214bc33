package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"snowgate/integration/cuttest"
)

// newRepeater returns a gateway in front of a service that responds with the body it received.
func newRepeater(t *testing.T) *gateway {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(service.Close)
	at, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	return newGateway(t, gatewayOptions{}, public(at))
}

// wantRepeated reads a response that repeats body and keeps the connection.
func wantRepeated(t *testing.T, c *connection, body, what string) {
	t.Helper()
	response, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	got, err := io.ReadAll(response.Body)
	if err != nil || string(got) != body || response.StatusCode != http.StatusOK || response.Close {
		t.Errorf("%s = %d with %d bytes, %v, beginning %.16q, close %t; want 200 with %d of %.16q", what, response.StatusCode, len(got), err, got, response.Close, len(body), body)
	}
}

func postOf(body string) string {
	return fmt.Sprintf("POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", len(body))
}

// TestSmallBodies: the service receives each body once and whole, however it was cut on the way.
func TestSmallBodies(t *testing.T) {
	g := newRepeater(t)
	for _, size := range []int{1, 2, 1000, 3000, 4000, 4095, 4096, 4097, 9000} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		head := postOf(body)
		c := dial(t, g.address())
		for _, cut := range []int{0, 10, len(head) - 1, len(head), len(head) + 1, len(head) + size/2, len(head) + size - 1} {
			whole := head + body
			c.send(whole[:cut])
			c.send(whole[cut:])
			wantRepeated(t, c, body, fmt.Sprintf("%d bytes cut %d behind the header", size, cut-len(head)))
		}
		c.send(head + body + head + body) // and the next request begins where the body ends
		wantRepeated(t, c, body, "the first of two")
		wantRepeated(t, c, body, "the second of two")
	}
}

// TestEarlySmallBody: a service may respond before the rest of a small body has come.
func TestEarlySmallBody(t *testing.T) {
	for _, sent := range []string{"", "he"} {
		c := dial(t, newGateway(t, gatewayOptions{}, public(switchesAtOnce(t))).address())
		c.send(postOf("hello") + sent)
		if response, err := http.ReadResponse(c.Reader, nil); err != nil || response.StatusCode != http.StatusOK || !response.Close {
			t.Errorf("after %q of the body: %v, %v, want 200 and the end of the connection", sent, response, err)
		}
	}
}

// TestBodiesAreNotMixed: many clients post at the same time, each its own bytes, on connections
// that are used again. Memory of one request that another one still uses would show here.
func TestBodiesAreNotMixed(t *testing.T) {
	g := newRepeater(t)
	requests := 200
	if cuttest.Current() != cuttest.Whole {
		requests = 20 // each takes much longer
	}
	var posting sync.WaitGroup
	for i := range 16 {
		posting.Go(func() {
			c := dial(t, g.address())
			for k := range requests {
				body := strings.Repeat(fmt.Sprintf("%03d/%03d ", i, k), 1+(i*37+k*11)%600)
				c.send(postOf(body) + body)
				wantRepeated(t, c, body, fmt.Sprintf("client %d, request %d", i, k))
				if t.Failed() {
					return
				}
			}
		})
	}
	posting.Wait()
}
