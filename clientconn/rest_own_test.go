package clientconn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"snowgate/clientconn"
	"snowgate/nonblock"
)

// restable returns a connection that may go to rest, and its peer.
func restable(t *testing.T) (rest *clientconn.Rest, conn *clientconn.Conn, peer net.Conn) {
	t.Helper()
	inner, peer := sockets(t)
	rest = clientconn.NewRest(inner.LocalAddr())
	t.Cleanup(func() { _ = rest.Close() })
	return rest, rest.Wrap(nonblock.Wrap(inner)), peer
}

// isWhole expects that what the peer sends can be read from conn, and the other way round.
func isWhole(t *testing.T, conn, peer net.Conn) {
	t.Helper()
	for _, way := range [][2]net.Conn{{peer, conn}, {conn, peer}} {
		if _, err := io.WriteString(way[0], "hello"); err != nil {
			t.Fatal(err)
		}
		readWhole(t, way[1], "hello")
	}
}

// woken returns the connection that the rest gives back.
func woken(t *testing.T, rest *clientconn.Rest) *clientconn.Conn {
	t.Helper()
	impatient := time.AfterFunc(20*time.Second, func() { _ = rest.Close() })
	defer impatient.Stop()
	accepted, err := rest.Accept()
	if err != nil {
		t.Fatalf("Accept = %v, want a connection", err)
	}
	conn, ok := accepted.(*clientconn.Conn)
	if !ok {
		t.Fatalf("Accept = %T, want a Conn", accepted)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// retires expects that the rest holds no connection any more.
func retires(t *testing.T, rest *clientconn.Rest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	rest.Retire(ctx)
	if ctx.Err() != nil {
		t.Error("Retire does not return, though nothing rests")
	}
}

// A connection that goes to rest is the server's no more, whatever that does with it, and
// comes back with the first byte, as new. That may happen any number of times.
func TestConnGoesToRestAndComesBack(t *testing.T) {
	for name, until := range map[string]func() time.Time{
		"until some time": func() time.Time { return time.Now().Add(time.Minute) },
		"for ever":        func() time.Time { return time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			rest, conn, peer := restable(t)
			for i := range 3 {
				ctx := conn.Context(t.Context())
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				isWhole(t, conn, peer)
				conn.Watch()
				_ = conn.SetDeadline(time.Now().Add(-time.Second))
				if err := read(conn); !isTimeout(err) {
					t.Fatalf("Read = %v, want that nothing has come", err)
				}
				if _, err := conn.Write([]byte("x")); !isTimeout(err) {
					t.Fatalf("Write = %v, want that its time has passed", err)
				}
				if ctx.Err() != nil {
					t.Error("the context has ended before the rest")
				}
				if !conn.Rest(until()) {
					t.Fatal("the connection does not go to rest")
				}
				if ctx.Err() == nil {
					t.Error("the context has not ended with the rest")
				}
				for range 2 {
					if err := conn.Close(); err != nil {
						t.Errorf("Close of a connection that rests = %v", err)
					}
				}
				if err := read(conn); !errors.Is(err, io.EOF) {
					t.Errorf("Read of a connection that rests = %v, want io.EOF", err)
				}
				conn.Watch() // does nothing
				if got := rest.Count(); got != uint64(i+1) {
					t.Errorf("connections have gone to rest %d times, want %d", got, i+1)
				}
				_, _ = io.WriteString(peer, "request")
				conn = woken(t, rest)
				readWhole(t, conn, "request")
				isWhole(t, conn, peer)
			}
			_ = conn.Close()
			if err := readByte(peer); !errors.Is(err, io.EOF) {
				t.Errorf("the peer of a closed connection reads %v, want the end", err)
			}
			retires(t, rest)
		})
	}
}

// The rest lasts until the time that was said, and then the connection is closed.
func TestRestOfConnEndsInTime(t *testing.T) {
	for _, lasts := range []time.Duration{-time.Second, 0, 100 * time.Millisecond} {
		rest, conn, peer := restable(t)
		begin := time.Now()
		_ = conn.SetReadDeadline(begin.Add(time.Hour)) // does not count any more
		if !conn.Rest(begin.Add(lasts)) {
			t.Fatal("the connection does not go to rest")
		}
		if err := readByte(peer); !errors.Is(err, io.EOF) {
			t.Errorf("%v: the peer reads %v, want the end", lasts, err)
		}
		if took := time.Since(begin); took < lasts {
			t.Errorf("the rest has ended after %v, want %v", took, lasts)
		}
		retires(t, rest)
		if rest.Len() != 0 {
			t.Errorf("%v: %d connections rest", lasts, rest.Len())
		}
	}
}

// What cannot rest stays with its server, and can be used as before.
func TestConnThatDoesNotRest(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, rest *clientconn.Rest, conn *clientconn.Conn, peer net.Conn) *clientconn.Conn
		ahead   string
		closed  bool
	}{
		"closed": {prepare: func(_ *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) *clientconn.Conn {
			_ = conn.Close()
			return conn
		}, closed: true},
		"something was put back": {prepare: func(_ *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) *clientconn.Conn {
			conn.Unread([]byte("x"))
			return conn
		}, ahead: "x"},
		"a look has found something": {prepare: func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, peer net.Conn) *clientconn.Conn {
			conn.Context(t.Context())
			conn.Watch()
			_, _ = io.WriteString(peer, "x")
			look := time.NewTicker(time.Millisecond)
			defer look.Stop()
			for conn.Ahead() == 0 {
				<-look.C
			}
			return conn
		}, ahead: "x"},
		"retired": {prepare: func(t *testing.T, rest *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) *clientconn.Conn {
			rest.Retire(t.Context())
			return conn
		}},
		"the rest is closed": {prepare: func(_ *testing.T, rest *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) *clientconn.Conn {
			_ = rest.Close()
			return conn
		}},
		"wrapped without a rest": {prepare: func(_ *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) *clientconn.Conn {
			return clientconn.Wrap(conn.Conn, new(clientconn.Waiters))
		}},
		"no socket": {prepare: func(_ *testing.T, rest *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) *clientconn.Conn {
			return rest.Wrap(struct{ net.Conn }{conn.Conn})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rest, conn, peer := restable(t)
			conn = test.prepare(t, rest, conn, peer)
			if conn.Rest(time.Now().Add(time.Minute)) {
				t.Error("it goes to rest")
			}
			if got := rest.Count(); got != 0 {
				t.Errorf("connections have gone to rest %d times, want none", got)
			}
			if test.closed {
				if err := readByte(peer); !errors.Is(err, io.EOF) {
					t.Errorf("the peer reads %v, want the end", err)
				}
			} else {
				readWhole(t, conn, test.ahead)
				isWhole(t, conn, peer)
			}
			retires(t, rest)
		})
	}
}

// Retire gives back what a server of our own has had rest, and Close closes it.
func TestEndOfTheRestOfConns(t *testing.T) {
	rest, conn, peer := restable(t)
	if !conn.Rest(time.Now().Add(time.Minute)) {
		t.Fatal("the connection does not go to rest")
	}
	retired := make(chan struct{})
	go func() {
		defer close(retired)
		rest.Retire(t.Context())
	}()
	conn = woken(t, rest)
	<-retired
	isWhole(t, conn, peer)
	if _, err := rest.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Retire = %v, want net.ErrClosed", err)
	}

	rest, conn, peer = restable(t)
	if !conn.Rest(time.Now().Add(time.Minute)) {
		t.Fatal("the connection does not go to rest")
	}
	_ = rest.Close()
	if err := readByte(peer); !errors.Is(err, io.EOF) {
		t.Errorf("the peer reads %v after Close, want the end", err)
	}
	if _, err := rest.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close = %v, want net.ErrClosed", err)
	}
	retires(t, rest)
}

// Retire waits no longer than its context for who does not call Accept.
func TestRetireEndsWithItsContext(t *testing.T) {
	rest, conn, _ := restable(t)
	if !conn.Rest(time.Now().Add(time.Minute)) {
		t.Fatal("the connection does not go to rest")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	impatient := time.AfterFunc(20*time.Second, func() {
		t.Error("Retire goes on after its context")
		_ = rest.Close()
	})
	defer impatient.Stop()
	rest.Retire(ctx)
}

// asNetHTTP does what net/http does with a connection until it waits for the next request,
// with a buffer of that size, and returns the error that it gets then, or nil if it has
// to wait.
func asNetHTTP(t *testing.T, conn *clientconn.Conn, request string, buffer int) error {
	t.Helper()
	clientconn.ConnState(conn, http.StateNew)
	p := make([]byte, buffer)
	n, err := conn.Read(p)
	if err != nil || string(p[:n]) != request {
		t.Fatalf("%q, %v was read, want %q", p[:n], err, request)
	}
	clientconn.ConnState(conn, http.StateActive)
	clientconn.ConnState(conn, http.StateIdle)
	return waits(conn, buffer)
}

// waits returns the error of a Read, or nil if that has to wait.
func waits(conn *clientconn.Conn, buffer int) error {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	return goesOn(conn, buffer)
}

// goesOn is waits with the deadline that there is.
func goesOn(conn *clientconn.Conn, buffer int) error {
	_, err := conn.Read(make([]byte, buffer))
	if isTimeout(err) {
		return nil
	}
	return err
}

// A server of our own leaves a connection to net/http with what it has read. That is told that
// the client has gone when it waits for the next request, and nobody else is.
func TestConnOfOthersGoesToRest(t *testing.T) {
	rest, conn, peer := restable(t)
	ctx := conn.Context(t.Context())
	_, _ = io.WriteString(peer, "GET")
	readWhole(t, conn, "GET")
	conn.Watch()
	conn.Unread([]byte("GET"))
	if err := asNetHTTP(t, conn, "GET", 4096); !errors.Is(err, io.EOF) {
		t.Fatalf("Read = %v, want io.EOF", err)
	}
	if ctx.Err() != nil || rest.Count() != 0 {
		t.Error("the connection rests before the server has closed it")
	}
	_ = conn.Close()
	if ctx.Err() == nil {
		t.Error("the context has not ended with the rest")
	}
	if rest.Count() != 1 {
		t.Errorf("connections have gone to rest %d times, want 1", rest.Count())
	}
	go func() { _, _ = io.WriteString(peer, "request") }()
	conn = woken(t, rest)
	readWhole(t, conn, "request")
	isWhole(t, conn, peer)
}

// Between what net/http is told and what it does, the rest may end. Then the connection is
// given back at once, or closed.
func TestRestEndsBeforeItBegins(t *testing.T) {
	for _, closed := range []bool{false, true} {
		rest, conn, peer := restable(t)
		_, _ = io.WriteString(peer, "GET")
		if err := asNetHTTP(t, conn, "GET", 4096); !errors.Is(err, io.EOF) {
			t.Fatalf("Read = %v, want io.EOF", err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Hour))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		rest.Retire(ended)
		if closed {
			_ = rest.Close()
		}
		_ = conn.Close()
		if closed {
			if err := readByte(peer); !errors.Is(err, io.EOF) {
				t.Errorf("the peer reads %v after Close, want the end", err)
			}
		} else {
			isWhole(t, woken(t, rest), peer)
		}
		retires(t, rest)
	}
}

// In all of this, net/http goes on waiting for the next request.
func TestConnOfOthersThatDoesNotRest(t *testing.T) {
	const request, size = "GET", 4096
	for name, do := range map[string]func(t *testing.T, rest *clientconn.Rest, conn *clientconn.Conn, peer net.Conn) error{
		"a larger buffer": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) error {
			return asNetHTTP(t, conn, request, 2*size)
		},
		"something is left in the buffer": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) error {
			return asNetHTTP(t, conn, request, size-1)
		},
		"retired": func(t *testing.T, rest *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) error {
			rest.Retire(t.Context())
			return asNetHTTP(t, conn, request, size)
		},
		"wrapped without a rest": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) error {
			return asNetHTTP(t, clientconn.Wrap(conn.Conn, new(clientconn.Waiters)), request, size)
		},
		"HTTP/2": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, peer net.Conn) error {
			readWhole(t, conn, request)
			fresh := clientconn.NewRest(conn.LocalAddr()).Wrap(conn.Conn)
			_, _ = io.WriteString(peer, http2.ClientPreface)
			return asNetHTTP(t, fresh, http2.ClientPreface, size)
		},
		"the answer is not finished": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) error {
			readWhole(t, conn, request)
			clientconn.ConnState(conn, http.StateActive)
			return waits(conn, size)
		},
		"some of the next request was read": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, peer net.Conn) error {
			readWhole(t, conn, request)
			clientconn.ConnState(conn, http.StateIdle)
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = io.WriteString(peer, "G")
			readWhole(t, conn, "G")
			return goesOn(conn, size)
		},
		"some of the next request was put back": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) error {
			readWhole(t, conn, request)
			conn.Unread([]byte("T"))
			clientconn.ConnState(conn, http.StateIdle)
			_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			readWhole(t, conn, "T")
			return goesOn(conn, size)
		},
		"the next request came with the last one": func(t *testing.T, _ *clientconn.Rest, conn *clientconn.Conn, _ net.Conn) error {
			readWhole(t, conn, request)
			clientconn.ConnState(conn, http.StateIdle)
			_ = conn.SetReadDeadline(time.Now().Add(time.Hour)) // for the wait, which is over at once
			return waits(conn, size)
		},
	} {
		t.Run(name, func(t *testing.T) {
			rest, conn, peer := restable(t)
			_, _ = io.WriteString(peer, request)
			if err := do(t, rest, conn, peer); err != nil {
				t.Errorf("Read = %v, want that it waits", err)
			}
			_ = conn.Close()
			if err := readByte(peer); !errors.Is(err, io.EOF) {
				t.Errorf("the peer of a closed connection reads %v, want the end", err)
			}
			if rest.Count() != 0 {
				t.Errorf("connections have gone to rest %d times, want none", rest.Count())
			}
			retires(t, rest)
		})
	}
}

// A closed connection is not one that rests, though its server waits for a request.
func TestClosedConnOfOthers(t *testing.T) {
	rest, conn, peer := restable(t)
	_, _ = io.WriteString(peer, "GET")
	readWhole(t, conn, "GET")
	clientconn.ConnState(conn, http.StateIdle)
	_ = conn.Close()
	if err := waits(conn, 4096); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read = %v, want net.ErrClosed", err)
	}
	if rest.Count() != 0 {
		t.Errorf("connections have gone to rest %d times, want none", rest.Count())
	}
	retires(t, rest)
}

// net/http knows nothing of the connection under TLS, and keeps it.
func TestTLSDoesNotRest(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	rest := clientconn.NewRest(server.Listener.Addr())
	server.Listener = restingListener{server.Listener, rest}
	server.Config.ConnState = clientconn.ConnState
	server.StartTLS()
	defer server.Close()
	for range 3 {
		get(t, server)
	}
	if rest.Count() != 0 {
		t.Errorf("connections have gone to rest %d times, want none", rest.Count())
	}
}
