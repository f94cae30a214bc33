package gatewaytest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/cuttest"
)

// Recorder is an upstream that keeps the exact bytes of every request and answers
// each with the same bytes.
type Recorder struct {
	URL  string // to be put into a route
	Addr string

	t        testing.TB
	listener net.Listener
	response string
	mu       sync.Mutex
	requests []string
}

// DefaultResponse is what a Recorder responds with unless told otherwise.
const DefaultResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// NewRecorder starts an upstream on a free port. response is sent for each
// request, [DefaultResponse] if it is empty.
func NewRecorder(t testing.TB, response string) *Recorder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if response == "" {
		response = DefaultResponse
	}
	r := &Recorder{URL: "http://" + listener.Addr().String(), Addr: listener.Addr().String(), t: t, listener: listener, response: response}
	t.Cleanup(func() { _ = listener.Close() })
	go r.serve()
	return r
}

func (r *Recorder) serve() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		go r.record(cuttest.Writes(conn))
	}
}

// record reads requests off one connection. It keeps the bytes as they came over the wire,
// unparsed.
func (r *Recorder) record(conn net.Conn) {
	defer conn.Close()
	var raw strings.Builder
	in := bufio.NewReader(io.TeeReader(conn, &raw))
	for {
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, request.Body)
		r.mu.Lock()
		r.requests = append(r.requests, raw.String())
		r.mu.Unlock()
		raw.Reset()
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, r.response); err != nil || !strings.HasPrefix(r.response, DefaultResponse) {
			return
		}
	}
}

// Requests returns the raw requests received so far.
func (r *Recorder) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.requests...)
}

// Reset forgets what was received.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// Only returns the one request that was received, and fails the test if there
// were none or several.
func (r *Recorder) Only() string {
	r.t.Helper()
	requests := r.Requests()
	if len(requests) != 1 {
		r.t.Fatalf("the upstream received %d requests, want 1: %q", len(requests), requests)
	}
	return requests[0]
}

// Header returns the values of a header field in a raw request, by its exact
// name but for case.
func Header(raw, name string) []string {
	var values []string
	head, _, _ := strings.Cut(raw, "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\r\n") {
		if field, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(field, name) {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

// Send writes text to the public listener as it is and returns everything that
// comes back until the gateway closes the connection or is silent for quiet.
func (g *Gateway) Send(text string, quiet time.Duration) string {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.Addr)
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "" // it was closed already
	}
	var got strings.Builder
	buffer := make([]byte, 64<<10)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(quiet))
		n, err := conn.Read(buffer)
		got.Write(buffer[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) || err != nil {
			remembered.inspectRaw(got.String())
			return got.String()
		}
	}
}

// Status returns the status code of the first raw answer, 0 if there is none.
func Status(raw string) int {
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}
