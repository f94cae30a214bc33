package http1

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestRequests(t *testing.T) {
	body := func() io.Reader { return strings.NewReader("hello") }
	tests := []struct {
		request Request
		want    string
	}{
		{Request{Method: "GET", Path: "/"}, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{Request{Method: "GET", Path: "/a%20b", Query: "x=;%zz", HasQuery: true}, "GET /a%20b?x=;%zz HTTP/1.1\r\nHost: h\r\n\r\n"},
		{Request{Method: "GET", Path: "/", HasQuery: true}, "GET /? HTTP/1.1\r\nHost: h\r\n\r\n"},
		{
			Request{Method: "GET", Path: "/", Header: []Field{{"B", "1"}, {"A", ""}, {"B", "\xff\t2"}}},
			"GET / HTTP/1.1\r\nHost: h\r\nB: 1\r\nA: \r\nB: \xff\t2\r\n\r\n",
		},
		{Request{Method: "DELETE", Path: "/"}, "DELETE / HTTP/1.1\r\nHost: h\r\n\r\n"},
		{Request{Method: "POST", Path: "/"}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"},
		{Request{Method: "POST", Path: "/", Body: body(), Length: 5}, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"},
		{
			Request{Method: "PUT", Path: "/", Body: body(), Length: -1},
			"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		},
		{
			Request{Method: "PUT", Path: "/", Body: iotest.DataErrReader(body()), Length: -1},
			"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		},
		{
			Request{Method: "PUT", Path: "/", Body: strings.NewReader(strings.Repeat("x", uploadBuffer+1)), Length: -1},
			"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n8000\r\n" + strings.Repeat("x", uploadBuffer) + "\r\n1\r\nx\r\n0\r\n\r\n",
		},
	}
	for _, test := range tests {
		got := make(chan string, 1)
		s := newServer(t, func(c *client) {
			received := make([]byte, len(test.want))
			_, _ = io.ReadFull(c.Conn, received)
			got <- string(received)
			c.says(okResponse)
		})
		test.request.Host = "h"
		s.ask(t, &test.request)
		if received := <-got; received != test.want {
			t.Errorf("%s %s: the server received %.200q, want %.200q", test.request.Method, test.request.Path, received, test.want)
		}
	}
}

// TestRequestsThatWouldBeOthers: requests with characters that would turn them into other requests
// are refused before anything is sent.
func TestRequestsThatWouldBeOthers(t *testing.T) {
	s := newServer(t, saysAlways(okResponse))
	for _, request := range []Request{
		{Method: "", Path: "/", Host: "h"},
		{Method: "GE T", Path: "/", Host: "h"},
		{Method: "GET", Path: "", Host: "h"},
		{Method: "GET", Path: "/ HTTP/1.1\r\n", Host: "h"},
		{Method: "GET", Path: "/a b", Host: "h"},
		{Method: "GET", Path: "/", Query: "a b", Host: "h"},
		{Method: "GET", Path: "/", Query: "a\nb", Host: "h"},
		{Method: "GET", Path: "/", Host: "h\r\nX: y"},
		{Method: "GET", Path: "/", Host: "h", Header: []Field{{"", "y"}}},
		{Method: "GET", Path: "/", Host: "h", Header: []Field{{"X Y", "y"}}},
		{Method: "GET", Path: "/", Host: "h", Header: []Field{{"X:", "y"}}},
		{Method: "GET", Path: "/", Host: "h", Header: []Field{{"X", "a\r\nEvil: b"}}},
		{Method: "GET", Path: "/", Host: "h", Header: []Field{{"X", "a\x00b"}}},
		{Method: "GET", Path: "/", Host: "h", Header: []Field{{"X", "a\x7fb"}}},
	} {
		if err := s.Call().Send(t.Context(), &request, false); !errors.Is(err, ErrRequest) {
			t.Errorf("%+v: %v, want it refused", request, err)
		}
	}
	if len(s.requests) > 0 {
		t.Errorf("the server received %q", <-s.requests)
	}
	s.wantOK(t, "after that")
}

// TestResponseAheadOfTheBody: the response does not wait for the request.
func TestResponseAheadOfTheBody(t *testing.T) {
	gone := make(chan struct{})
	s := newServer(t, func(c *client) {
		c.next()
		c.says(okResponse)
		_, _ = io.Copy(io.Discard, c.in)
		close(gone)
	})
	body, end := io.Pipe()
	call := s.Call()
	if err := call.Send(t.Context(), &Request{Method: "POST", Path: "/", Host: "h", Body: body, Length: 5}, false); err != nil {
		t.Fatal(err)
	}
	if got := finish(call); got.body != "ok" {
		t.Errorf("the early answer = %+v", got)
	}
	waitFor(t, gone, "a connection with half a request is kept")
	_ = end.Close()
	call.Wait()
}

// TestBodiesThatFail: if reading the body fails, the server sees a request that is cut off, not one
// that has ended.
func TestBodiesThatFail(t *testing.T) {
	for _, request := range []Request{
		{Body: io.MultiReader(strings.NewReader("he"), iotest.ErrReader(errTest)), Length: 5},
		{Body: io.MultiReader(strings.NewReader("he"), iotest.ErrReader(errTest)), Length: -1},
		{Body: strings.NewReader("short"), Length: 6},
		{Body: strings.NewReader("longer"), Length: 5},
	} {
		received := make(chan []byte, 1)
		s := newServer(t, func(c *client) {
			c.next()
			rest, _ := io.ReadAll(c.in)
			received <- rest
		})
		request.Method, request.Path, request.Host = "POST", "/", "h"
		call := s.Call()
		if err := call.Send(t.Context(), &request, false); err == nil {
			t.Error("a request whose body fails succeeds")
		}
		call.Wait()
		got := <-received
		if bytes.HasSuffix(got, []byte(lastChunk)) || int64(len(got)) == request.Length {
			t.Errorf("the server received %q, which looks whole", got)
		}
	}
}

// TestExpect: the body is held back until the server asks for it or stays silent.
func TestExpect(t *testing.T) {
	tests := []struct {
		interim string
		final   string
		patient time.Duration
		sent    bool
		why     string
	}{
		{"HTTP/1.1 100 Continue\r\n\r\n", okResponse, time.Hour, true, "asked for"},
		{"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", okResponse, time.Hour, true, "asked for, after something else"},
		{"", okResponse, time.Millisecond, true, "silence"},
		{"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n", "", time.Hour, false, "refused"},
	}
	for _, test := range tests {
		received := make(chan string, 1)
		s := newServer(t, func(c *client) {
			c.next()
			c.says(test.interim)
			if test.final == "" {
				rest, _ := io.ReadAll(c.in)
				received <- string(rest)
				return
			}
			body := make([]byte, 5)
			_, _ = io.ReadFull(c.in, body)
			received <- string(body)
			c.says(test.final)
		})
		s.ContinueTimeout = test.patient
		call := s.Call()
		if err := call.Send(t.Context(), &Request{
			Method: "POST", Path: "/", Host: "h", Header: []Field{{"Expect", "100-continue"}},
			Body: strings.NewReader("hello"), Length: 5, Expect: true,
		}, false); err != nil {
			t.Fatal(err)
		}
		finish(call)
		call.Wait()
		if got := <-received; (got == "hello") != test.sent {
			t.Errorf("%s: the server received %q", test.why, got)
		}
	}
}
