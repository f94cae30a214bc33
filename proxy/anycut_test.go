package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/integration/cuttest"
)

const (
	anyGet     = "GET /public/a?b=c HTTP/1.1\r\nHost: h\r\nX-One: 1\r\n\r\n"
	anyHead    = "HEAD /public HTTP/1.1\r\nHost: h\r\n\r\n"
	anySized   = "POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello\r\nwor\r"
	anyChunked = "POST /public HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" +
		"5\r\nhello\r\n2;x=y\r\n\r\n\r\n0\r\nX-Sum: 7\r\n\r\n"
	anyShake   = "GET /public HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x83\x00\x00\x00\x00abc"
	anyPieces  = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n2;x\r\n\r\n\r\n0\r\nX-Sum: 5\r\n\r\n"
	anyInterim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
)

// conversations are requests in one write, and the response to each of them in another.
var conversations = []struct {
	name, requests, response string
	closes                   bool // the service closes the connection
}{
	{"sized", anyGet, okResponse, false},
	{"in chunks, with a trailer", anyGet, anyPieces, false},
	{"up to the end of the connection", anyGet, "HTTP/1.1 200 OK\r\nX-Two: 2\r\n\r\nuntil\r\n\r\nthe end", true},
	{"interim", anyGet, anyInterim + anyInterim + okResponse, false},
	{"HEAD", anyHead, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false},
	{"not modified", anyGet, "HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", false},
	{"no content", anyGet, "HTTP/1.1 204 No Content\r\nX-Two: 2\r\n\r\n", false},
	{"an upload with a length", anySized, okResponse, false},
	{"an upload in chunks", anyChunked, anyPieces, false},
	{"pipelined", anyGet + anySized + anyGet, okResponse, false},
	{"broken off", anyGet, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", true},
	{"a malformed chunk", anyGet, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokXX0\r\n\r\n", false},
	{"upgraded", anyShake, switched + "\x81\x03def", false},
}

// heardAs is what one side of a conversation has received, in words without what differs each time.
func heardAs(line string, header http.Header, rest ...any) string {
	var text strings.Builder
	fmt.Fprintln(&text, line)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		switch name {
		case "Date", "X-Request-Id", "Traceparent":
		default:
			fmt.Fprintf(&text, "%s: %q\n", name, header[name])
		}
	}
	return text.String() + fmt.Sprintln(rest...)
}

// brokenOff is said of a response without an end. How much of it has come is a matter of time.
const brokenOff = "broken off"

// bodyOf returns a body, how it ended, and the trailer.
func bodyOf(body io.Reader, trailer *http.Header) string {
	text, err := io.ReadAll(body)
	if err != nil {
		return brokenOff
	}
	return fmt.Sprintf("%q %v", text, *trailer)
}

// conversing is a service that gives the same response to each request, cut as mode says.
type conversing struct {
	response string
	closes   bool         // the connection, behind the response
	mode     cuttest.Mode // of the conversation under way
	heard    chan string
}

func (s *conversing) serve(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		words := heardAs(r.Method+" "+r.RequestURI+" "+r.Host, r.Header, r.ContentLength, r.TransferEncoding, bodyOf(r.Body, &r.Trailer))
		_, err = io.WriteString(s.mode.Writes(conn), s.response)
		if r.Header.Get("Upgrade") != "" {
			frame := make([]byte, 9)
			_, err := io.ReadFull(in, frame)
			words += fmt.Sprintf("%q %v", frame, err)
		}
		s.heard <- words
		if err != nil || r.Header.Get("Upgrade") != "" || s.closes {
			return
		}
	}
}

func newConversing(t *testing.T, response string, closes bool) (*conversing, *url.URL) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := &conversing{response: response, closes: closes, heard: make(chan string, 8)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s, &url.URL{Scheme: "http", Host: listener.Addr().String()}
}

// converse sends requests in a write that mode cuts, and returns what both sides have received.
func converse(t *testing.T, g *gateway, s *conversing, requests string, mode cuttest.Mode) (got []string) {
	t.Helper()
	conn, err := net.Dial("tcp", g.address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patienceOfTests))
	go func() { _, _ = io.WriteString(mode.Writes(conn), requests) }()
	in := bufio.NewReader(conn)
	method, _, _ := strings.Cut(requests, " ")
	for range strings.Count(requests, " HTTP/1.1\r\n") {
		got = append(got, nextResponse(in, method)...)
		select {
		case words := <-s.heard:
			got = append(got, words)
		case <-time.After(patienceOfTests):
			t.Fatalf("the service received nothing, the client %q", got)
		}
	}
	return got
}

// nextResponse reads a response and the interim ones before it.
func nextResponse(in *bufio.Reader, method string) (got []string) {
	for {
		response, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return append(got, brokenOff)
		}
		var body string
		if response.StatusCode == http.StatusSwitchingProtocols {
			frame := make([]byte, 5)
			_, err = io.ReadFull(in, frame)
			body = fmt.Sprintf("%q %v", frame, err)
		} else if body = bodyOf(response.Body, &response.Trailer); body == brokenOff {
			return append(got, brokenOff)
		}
		got = append(got, heardAs(response.Status, response.Header, response.ContentLength, response.TransferEncoding, response.Close, body))
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return got
		}
	}
}

// TestAnyCut: what client and service receive does not depend on where the bytes of either are cut.
func TestAnyCut(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "it cuts by itself")
	for _, test := range conversations {
		t.Run(test.name, func(t *testing.T) {
			service, at := newConversing(t, test.response, test.closes)
			route := public(at)
			route.WebSocket = true
			g := newGateway(t, gatewayOptions{}, route)
			want := converse(t, g, service, test.requests, cuttest.Whole)
			for _, mode := range everyCut(test.requests) {
				if diff := cmp.Diff(want, converse(t, g, service, test.requests, mode)); diff != "" {
					t.Fatalf("the client's bytes are cut %v: -whole +cut\n%s", mode, diff)
				}
			}
			for _, service.mode = range everyCut(test.response) {
				if diff := cmp.Diff(want, converse(t, g, service, test.requests, cuttest.Whole)); diff != "" {
					t.Fatalf("the service's bytes are cut %v: -whole +cut\n%s", service.mode, diff)
				}
			}
		})
	}
}

// everyCut returns ways to cut text: at every place, byte by byte, and at random.
func everyCut(text string) []cuttest.Mode {
	modes := []cuttest.Mode{cuttest.Bytes, cuttest.Random(1), cuttest.Random(2)}
	for i := 1; i < len(text); i++ {
		modes = append(modes, cuttest.At(i))
	}
	return modes
}
