package http1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"snowgate/integration/cuttest"
)

// The expectations of a test of a response.
const (
	whole   = "whole"   // as net/http reads it
	cut     = "cut"     // the body breaks off, for net/http too
	refused = "refused" // there is no response, and none for net/http
	strict  = "strict"  // refused or cut here, though not by net/http
)

var answers = []struct{ raw, want, why string }{
	{okResponse, whole, "the usual"},
	{"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", whole, "no reason"},
	{"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", whole, "an empty reason"},
	{"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", whole, "three digits are a status; what to make of it others decide"},
	{"HTTP/1.0 200 OK\r\n\r\nuntil the end", whole, "the end of the connection ends the body"},
	{"HTTP/1.1 200 OK\r\n\r\nuntil the end", whole, "in 1.1 too"},
	{"HTTP/1.1 204 No Content\r\n\r\n", whole, "no body"},
	{"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", whole, "no body, whatever it says"},
	{"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", whole, "no body"},
	{"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", whole, "bare LF in a head"},
	{"HTTP/1.1 200 OK\r\ncontent-LENGTH:2\r\nx-y:  a b\t \r\nX-Y: c\r\nX-Empty:\r\n\r\nok", whole, "case and space"},
	{"HTTP/1.1 200 OK\r\nX: \xff\xc3\xa4\r\nContent-Length: 2\r\n\r\nok", whole, "bytes over 127"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", whole, "the same length twice"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", whole, "the coding wins"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nok\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n", whole, "chunks"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2  \r\nok\r\n0\r\n\r\n", whole, "old servers pad sizes"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-No\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\nX-More: 2\r\n\r\n", whole, "a trailer"},
	{"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + okResponse, whole, "interim answers"},
	{strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100) + okResponse, whole, "many of them"},
	{"HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 60<<10) + "\r\nContent-Length: 2\r\n\r\nok", whole, "a large head"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), whole, "a large body"},

	{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", cut, "a short body"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", cut, "no body at all"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", cut, "no chunk"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", cut, "no last chunk"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", cut, "half a chunk"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n", cut, "a chunk without an end"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", cut, "a bare LF after a size"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n", cut, "a bare LF after a chunk"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", cut, "a sign"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", cut, "a prefix"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n", cut, "more than 64 bits"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n", cut, "no size"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n", cut, "half a trailer"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n\r\n", cut, "a malformed trailer"},

	{"", refused, "nothing"},
	{"garbage\r\n\r\n", refused, "not HTTP"},
	{"SSH-2.0-OpenSSH_9.9\r\n", refused, "another protocol"},
	{"\x16\x03\x01\x02\x00\x01", refused, "TLS"},
	{"HTTP/1.1 20", refused, "half a status line"},
	{"HTTP/1.1 200 OK\r\nContent-Le", refused, "half a head"},
	{"\r\nHTTP/1.1 200 OK\r\n\r\n", refused, "an empty line first"},
	{"HTTP/1.1 1000 Long\r\n\r\n", refused, "four digits"},
	{"HTTP/1.1 20 Short\r\n\r\n", refused, "two digits"},
	{"HTTP/1.1 -20 Minus\r\n\r\n", refused, "a sign"},
	{"HTTP/1.1 2x0 Hex\r\n\r\n", refused, "not a digit"},
	{"HTTP/1.1\t200 OK\r\n\r\n", refused, "a tab"},
	{"http/1.1 200 OK\r\n\r\n", refused, "lower case"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", refused, "two lengths"},
	{"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", refused, "a sign"},
	{"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", refused, "a negative length"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello", refused, "a prefix"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", refused, "a list"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 5 5\r\n\r\nhello", refused, "a space"},
	{"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello", refused, "more than 63 bits"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", refused, "another coding"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", refused, "two codings"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", refused, "two lines"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", refused, "an unknown coding"},
	{"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", refused, "no colon"},
	{"HTTP/1.1 200 OK\r\n: empty\r\n\r\n", refused, "no name"},
	{"HTTP/1.1 200 OK\r\nA(b): c\r\n\r\n", refused, "not a token"},
	{"HTTP/1.1 200 OK\r\n X: y\r\n\r\n", refused, "a first line that goes on"},
	{"HTTP/1.1 103 Early Hints\r\n\r\n", refused, "an interim answer and no more"},
	{"HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 65<<10) + "\r\n\r\n", refused, "too large a field"},
	{"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Big: xxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", 3_000) + "\r\n", refused, "too many fields"},

	{"HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n", strict, "no such class"},
	{"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", strict, "another version"},
	{"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n", strict, "a version nobody knows"},
	{"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", strict, "RFC 9112 §5.1: space before the colon"},
	{"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok", strict, "RFC 9112 §5.2: a folded line"},
	{"HTTP/1.1 200 OK\r\nX: a\x00b\r\nContent-Length: 2\r\n\r\nok", refused, "RFC 9110 §5.5: NUL"},
	{"HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nok", refused, "RFC 9110 §5.5: a bare CR"},
	{"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", strict, "RFC 9112 §6.1: 1.0 has no codings"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("x", 2000) + "\r\nok\r\n0\r\n\r\n", strict, "a long extension"},
	{strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 200) + okResponse, strict, "interim answers without end"},
}

// pairs makes connections for the two sides of a comparison.
func pairs(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// readByUs returns what this package makes of a response.
func readByUs(t testing.TB, listener net.Listener, method, raw string) result {
	t.Helper()
	ours, theirs := socketPair(t, listener)
	defer ours.Close()
	go saysOnce(theirs, raw)
	conn, err := newConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	transport := &Transport{MaxHeader: 64 << 10}
	call := &Call{transport: transport, conn: conn}
	if _, err := call.sendOn(conn, &Request{Method: method, Path: "/", Host: "h"}); err != nil {
		call.hangUp()
		return result{refused: true}
	}
	return finish(call)
}

// readByThem returns how net/http reads the response.
func readByThem(t testing.TB, listener net.Listener, method, raw string) result {
	t.Helper()
	ours, theirs := socketPair(t, listener)
	go saysOnce(theirs, raw)
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return ours, nil },
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true, DisableKeepAlives: true,
	}
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil }, // any number of them
	})
	request, err := http.NewRequestWithContext(ctx, method, "http://h/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return result{refused: true}
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return result{status: response.StatusCode}
	}
	body, err := io.ReadAll(response.Body)
	return result{
		status: response.StatusCode, header: withoutFraming(response.Header), body: string(body), broken: err != nil,
		trailer: withoutFraming(response.Trailer),
	}
}

// compare returns how ours differs from theirs in a way that it may not. It may be
// stricter: refuse a response, or end its body sooner, but never with a clean end.
func compare(ours, theirs result) string {
	switch {
	case ours.refused:
		return ""
	case theirs.refused:
		return "net/http refuses it"
	case ours.status == http.StatusSwitchingProtocols && theirs.status == ours.status:
		return ""
	case ours.broken:
		ours.broken, theirs.broken, ours.trailer, theirs.trailer = false, false, nil, nil
		if strings.HasPrefix(theirs.body, ours.body) || strings.HasPrefix(ours.body, theirs.body) {
			ours.body = theirs.body
		}
	}
	if _, said := ours.header["Content-Length"]; !said {
		delete(theirs.header, "Content-Length") // which net/http leaves to a response to HEAD with a coding
	}
	if len(ours.trailer) == 0 && len(theirs.trailer) == 0 {
		ours.trailer, theirs.trailer = nil, nil
	}
	return cmp.Diff(theirs, ours, cmp.AllowUnexported(result{}))
}

func TestResponses(t *testing.T) {
	listener := pairs(t)
	for _, test := range answers {
		for _, method := range []string{"GET", "HEAD"} {
			ours, theirs := readByUs(t, listener, method, test.raw), readByThem(t, listener, method, test.raw)
			if diff := compare(ours, theirs); diff != "" {
				t.Errorf("%s %.100q (%s): -net/http +ours\n%s", method, test.raw, test.why, diff)
			}
			if method == "HEAD" {
				continue
			}
			got := whole
			switch {
			case (ours.refused || ours.broken) && !theirs.refused && !theirs.broken:
				got = strict
			case ours.refused:
				got = refused
			case ours.broken:
				got = cut
			}
			if got != test.want {
				t.Errorf("%.100q (%s) is %s, want %s: %+.200v", test.raw, test.why, got, test.want, ours)
			}
		}
	}
}

// FuzzResponse compares what this package and net/http make of any response.
func FuzzResponse(f *testing.F) {
	for _, test := range answers {
		f.Add([]byte(test.raw), false)
		f.Add([]byte(test.raw), true)
	}
	listener := pairs(f)
	f.Fuzz(func(t *testing.T, raw []byte, head bool) {
		method := "GET"
		if head {
			method = "HEAD"
		}
		ours, theirs := readByUs(t, listener, method, string(raw)), readByThem(t, listener, method, string(raw))
		if diff := compare(ours, theirs); diff != "" {
			t.Errorf("%s %q: -net/http +ours\n%s", method, raw, diff)
		}
	})
}

// TestErrorsOfResponses: callers tell them apart.
func TestErrorsOfResponses(t *testing.T) {
	tests := []struct {
		raw  string
		want error
	}{
		{"garbage\r\n\r\n", ErrResponse},
		{"HTTP/1.1 2", ErrResponse},
		{"", io.ErrUnexpectedEOF},
		{"HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 65<<10) + "\r\n\r\n", ErrHeaderSize},
	}
	for _, test := range tests {
		s := newServer(t, func(c *client) {
			if c.next() {
				c.says(test.raw)
			}
		})
		call := s.Call()
		err := call.Send(t.Context(), get, false)
		if !errors.Is(err, test.want) || call.Heard != (test.raw != "") || call.Reused {
			t.Errorf("%.50q: %v, heard %t, reused %t, want %v", test.raw, err, call.Heard, call.Reused, test.want)
		}
		if text := fmt.Sprint(err); len(text) > 200 {
			t.Errorf("%.50q: an error of %d bytes", test.raw, len(text))
		}
	}
}

func TestInterimResponses(t *testing.T) {
	s := newServer(t, saysAlways("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"+okResponse))
	var got []string
	request := *get
	request.Interim = func(status int, header []Field) error {
		got = append(got, fmt.Sprint(status, header))
		return nil
	}
	if answer := s.ask(t, &request); answer.body != "ok" || len(answer.header["Link"]) > 0 {
		t.Errorf("the answer proper = %+v", answer)
	}
	if want := "[103 [{Link </a>}] 102 []]"; fmt.Sprint(got) != want {
		t.Errorf("interim answers %v, want %s", got, want)
	}
	request.Interim = func(int, []Field) error { return errTest }
	if err := s.Call().Send(t.Context(), &request, false); !errors.Is(err, errTest) {
		t.Errorf("an interim answer that cannot be passed on: %v", err)
	}
}

// TestChunksAtOnce: Read returns all bytes that have arrived, and waits for none that have not.
func TestChunksAtOnce(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "it asks what one read has brought")
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	tests := []struct {
		now   string // sent at once; nothing follows
		want  string
		ready bool
		end   bool
	}{
		{"2\r\nok\r\n0\r\n\r\n", "ok", true, true},
		{"2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", "ok!", true, true},
		{"2\r\nok\r\n0\r\nX: y\r\n\r\n", "ok", true, true},
		{"2\r\nok\r\n0\r\nX: y\r\n", "ok", false, false},
		{"2\r\nok\r\n0\r\n", "ok", false, false},
		{"2\r\nok\r\n0", "ok", false, false},
		{"2\r\nok\r\n", "ok", false, false},
		{"2\r\nok\r", "ok", false, false},
		{"2\r\nok", "ok", false, false},
		{"3\r\nok", "ok", false, false},
		{"2\r\nok\r\n5\r\n", "ok", false, false},
		{"2\r\nok\r\n5\r\nhe", "okhe", false, false},
	}
	for _, test := range tests {
		s := newServer(t, func(c *client) {
			if c.next() {
				c.says(head + test.now)
				_, _ = c.in.ReadByte() // until the client hangs up
			}
		})
		call := s.Call()
		if err := call.Send(t.Context(), get, false); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 100)
		n, err := call.Read(buffer)
		if string(buffer[:n]) != test.want || errors.Is(err, io.EOF) != test.end || call.Ready() != test.ready {
			t.Errorf("%q: Read = %q, %v, then ready %t; want %q, end %t, ready %t",
				test.now, buffer[:n], err, call.Ready(), test.want, test.end, test.ready)
		}
		_ = call.Close()
	}
}
