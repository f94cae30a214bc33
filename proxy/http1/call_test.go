package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/integration/cuttest"
)

// TestReuse: which connections are kept.
func TestReuse(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "what comes unasked is seen only if it is there before the next request")
	tests := []struct {
		answer string
		kept   bool
		why    string
	}{
		{okResponse, true, "the usual"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true, "no body"},
		{"HTTP/1.1 204 No Content\r\n\r\n", true, "no body"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true, "chunks"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n", true, "a trailer"},
		{"HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\n" + okResponse, true, "only the last head counts"},
		{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", false, "it says so"},
		{"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: a, Close ,b\r\nContent-Length: 2\r\n\r\nok", false, "it says so, in another way"},
		{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false, "HTTP/1.0"},
		{"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", false, "HTTP/1.0 is not asked again"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", false, "a length beside a coding"},
		{okResponse + "H", false, "more than was asked for"},
		{okResponse + okResponse, false, "an answer that nobody asked for"},
		{"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", false, "a body where there is none"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nmore", false, "more after the last chunk"},
	}
	for _, test := range tests {
		s := newServer(t, saysAlways(test.answer))
		for range 2 {
			if got := s.ask(t, get); got.refused || got.broken {
				t.Fatalf("%s: %+v", test.why, got)
			}
		}
		if got := s.accepted.Load() == 1; got != test.kept {
			t.Errorf("%s: kept %t, want %t", test.why, got, test.kept)
		}
	}
}

// TestHeadWithABody: what comes behind the head is no part of the next response.
func TestHeadWithABody(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "what comes unasked is seen only if it is there before the next request")
	s := newServer(t, saysAlways(okResponse))
	for range 2 {
		if got := s.ask(t, &Request{Method: "HEAD", Path: "/", Host: "h"}); got.status != 200 || got.body != "" {
			t.Errorf("HEAD = %+v", got)
		}
	}
	if s.accepted.Load() != 2 {
		t.Error("a connection with the rest of an answer was used again")
	}
}

// TestUnreadBodyClosesTheConnection: the rest of an unread body may have any length.
func TestUnreadBodyClosesTheConnection(t *testing.T) {
	gone := make(chan struct{})
	s := newServer(t, func(c *client) {
		c.next()
		c.says("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		_, _ = c.in.ReadByte()
		close(gone)
	})
	call := s.Call()
	if err := call.Send(t.Context(), get, false); err != nil {
		t.Fatal(err)
	}
	_ = call.Close()
	waitFor(t, gone, "the server is not hung up on")
	if _, err := call.Read(make([]byte, 1)); !errors.Is(err, ErrAborted) {
		t.Errorf("Read after Close = %v", err)
	}
}

// TestNothingIsRepeated: the server reads the second request of a connection and does not respond.
func TestNothingIsRepeated(t *testing.T) {
	s := newServer(t, func(c *client) {
		c.next()
		c.says(okResponse)
		c.next()
	})
	s.wantOK(t, "first")
	call := s.Call()
	if err := call.Send(t.Context(), get, false); err == nil || !call.Reused || call.Heard {
		t.Errorf("Send = %v, reused %t, heard %t", err, call.Reused, call.Heard)
	}
	if len(s.requests) != 2 || s.accepted.Load() != 1 {
		t.Errorf("%d requests on %d connections, want 2 on 1", len(s.requests), s.accepted.Load())
	}
	if err := s.Call().Send(t.Context(), get, true); err != nil || s.accepted.Load() != 2 {
		t.Errorf("a fresh connection: %v", err)
	}
}

// TestAbort: Abort ends a call in every state.
func TestAbort(t *testing.T) {
	asked, gone := make(chan struct{}, 1), make(chan struct{}, 1)
	s := newServer(t, func(c *client) {
		for c.next() {
			asked <- struct{}{}
		}
		gone <- struct{}{}
	})
	call := s.Call()
	failed := make(chan error, 1)
	go func() { failed <- call.Send(context.Background(), get, false) }()
	waitFor(t, asked, "the server was not asked")
	call.Abort()
	if err := <-failed; err == nil {
		t.Error("an aborted call succeeds")
	}
	waitFor(t, gone, "the server is not hung up on")

	early := s.Call()
	early.Abort()
	if err := early.Send(t.Context(), get, false); err == nil || len(s.requests) != 1 {
		t.Errorf("a call that was aborted before: %v, %d requests", err, len(s.requests)-1)
	}
}

// TestAbortWithinABody: Abort ends a Read.
func TestAbortWithinABody(t *testing.T) {
	s := newServer(t, func(c *client) {
		c.next()
		c.says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
		c.next()
	})
	call := s.Call()
	if err := call.Send(t.Context(), get, false); err != nil {
		t.Fatal(err)
	}
	begun := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		_, _ = io.ReadFull(call, make([]byte, 2))
		close(begun)
		_, err := io.ReadAll(call)
		failed <- err
	}()
	waitFor(t, begun, "no body")
	call.Abort()
	if err := <-failed; err == nil {
		t.Error("the body of an aborted call ends well")
	}
	_ = call.Close()
}

// TestLateAbort: Abort does not affect the call that has the connection now.
func TestLateAbort(t *testing.T) {
	s := newServer(t, saysAlways(okResponse))
	first, second := s.Call(), s.Call()
	if err := first.Send(t.Context(), get, false); err != nil {
		t.Fatal(err)
	}
	finish(first)
	if err := second.Send(t.Context(), get, false); err != nil {
		t.Fatal(err)
	}
	first.Abort()
	_ = first.Close()
	if got := finish(second); got.body != "ok" || s.accepted.Load() != 1 {
		t.Errorf("the next call = %+v on connection %d", got, s.accepted.Load())
	}
	if s.wantOK(t, "the call after it"); s.accepted.Load() != 1 {
		t.Error("a call that was over has closed the connection")
	}
}

// TestAbortWhileDialing: Abort does not wait for the connection.
func TestAbortWhileDialing(t *testing.T) {
	s := newServer(t, saysAlways(okResponse))
	dialing := make(chan struct{})
	dialer := net.Dialer{ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		close(dialing)
		<-ctx.Done()
		return ctx.Err()
	}}
	s.DialContext = dialer.DialContext
	call := s.Call()
	failed := make(chan error, 1)
	go func() { failed <- call.Send(context.Background(), get, false) }()
	waitFor(t, dialing, "no connection is made")
	call.Abort()
	select {
	case err := <-failed:
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "dial" {
			t.Errorf("Send = %v, want an error of the dial", err)
		}
	case <-time.After(patience):
		t.Fatal("the call goes on")
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	s := newServer(t, func(c *client) { c.next(); c.next() })
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-s.requests; cancel(errTest) }()
	if _, err := s.Do(ctx, get); !errors.Is(err, errTest) {
		t.Errorf("Do = %v, want the cause", err)
	}
}

func TestTunnel(t *testing.T) {
	s := newServer(t, func(c *client) {
		c.next()
		c.says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello ")
		_, _ = io.Copy(c.Conn, c.in)
	})
	call := s.Call()
	if err := call.Send(t.Context(), get, false); err != nil || call.Status != 101 {
		t.Fatalf("Send = %v, status %d", err, call.Status)
	}
	tunnel := call.Tunnel()
	_, _ = io.WriteString(tunnel, "world")
	if err := tunnel.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(tunnel); string(got) != "hello world" || err != nil {
		t.Errorf("the tunnel = %q, %v", got, err)
	}
	_ = tunnel.Close()
	_ = call.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) > 0 {
		t.Error("a connection that was switched is kept")
	}
}

// TestIdleConnections: idle connections are limited in number and time.
func TestIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &Transport{MaxIdle: 3, IdleTimeout: 30 * time.Second}
		var far []net.Conn
		keep := func() {
			ours, theirs := net.Pipe()
			far = append(far, theirs)
			transport.keep(&conn{net: ours})
		}
		want := func(n int, when string) {
			t.Helper()
			synctest.Wait()
			open := 0
			for _, c := range far {
				_ = c.SetReadDeadline(time.Now().Add(1))
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					open++
				}
			}
			if open != n {
				t.Errorf("%s: %d connections are open, want %d", when, open, n)
			}
		}
		for range 4 {
			keep()
		}
		want(3, "beyond the bound")
		time.Sleep(20 * time.Second)
		for range 3 {
			transport.take()
		}
		if transport.take() != nil {
			t.Error("there is more than was kept")
		}
		keep()
		keep()
		time.Sleep(15 * time.Second)
		keep()
		time.Sleep(15*time.Second + 1)
		want(3+1, "two of the last three were idle for too long") // the first three are in use
		time.Sleep(30 * time.Second)
		want(3, "all were")
		keep()
		transport.CloseIdleConnections()
		want(3, "closed")
		keep()
		want(3, "after that none is kept")
	})
}

// TestPipes: connections that are not sockets work, too, and unexpected bytes on them are noticed.
func TestPipes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed := 0
		transport := &Transport{MaxIdle: 1, IdleTimeout: time.Minute, MaxHeader: 4 << 10}
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			dialed++
			go func() {
				for reader := bufio.NewReader(theirs); ; {
					request, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					_, _ = io.WriteString(theirs, okResponse)
					if request.URL.Path == "/twice" {
						_, _ = io.WriteString(theirs, okResponse)
					}
				}
			}()
			return ours, nil
		}
		for i, path := range []string{"/", "/twice", "/"} {
			call, err := transport.Do(t.Context(), &Request{Method: "GET", Path: path, Host: "h"})
			if err != nil {
				t.Fatal(err)
			}
			if got := finish(call); got.body != "ok" || dialed != 1+i/2 {
				t.Errorf("%s = %+v on connection %d", path, got, dialed)
			}
		}
		transport.CloseIdleConnections()
	})
}

// TestManyCalls: each gets its own response, and the goroutines end.
func TestManyCalls(t *testing.T) {
	before := runtime.NumGoroutine()
	s := newServer(t, func(c *client) {
		for c.next() {
			<-c.server.requests // of any call
			path := make([]byte, 9)
			_, _ = io.ReadFull(c.in, path)
			c.says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + string(path))
		}
	})
	const callers = 16
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			for j := range 100 {
				want := fmt.Sprintf("%04d-%04d", i, j)
				got := s.ask(t, &Request{Method: "POST", Path: "/", Host: "h", Body: strings.NewReader(want), Length: 9})
				if got.body != want {
					t.Errorf("got %+v, want %s", got, want)
				}
			}
		})
	}
	calling.Wait()
	if n := s.accepted.Load(); n > 2*callers {
		t.Errorf("%d callers took %d connections", callers, n)
	}
	s.CloseIdleConnections()
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before+1; { // one: the listener
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestAllocations counts the allocations of a call on a kept connection.
func TestAllocations(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "the harness allocates")
	s := newServer(t, func(c *client) {
		head, answer := make([]byte, 4096), []byte(okResponse)
		for {
			if _, err := c.Read(head); err != nil {
				return
			}
			_, _ = c.Write(answer)
		}
	})
	request := &Request{Method: "GET", Path: "/", Host: "h", Header: []Field{{"Accept", "*/*"}, {"X-Request-Id", "1"}}}
	buffer := make([]byte, 100)
	ctx := t.Context()
	got := testing.AllocsPerRun(200, func() {
		call := s.Call()
		if err := call.Send(ctx, request, false); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := call.Read(buffer); err != nil {
				break
			}
		}
		_ = call.Close()
	})
	if got > 2 { // the call, and the text of the head
		t.Errorf("%v allocations, want 2", got)
	}
}
