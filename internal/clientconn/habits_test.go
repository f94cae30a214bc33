//go:build !snowgate_plainconn

package clientconn_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The tests of this file test net/http alone, without a Conn. Each tests one habit of [http.Server]
// that Conn and Rest rely on. A Go release that changes a habit fails its test. Until Conn is
// adapted, build with the tag snowgate_plainconn.

// spied is a connection that records what the server does with it. It records a deadline as none,
// past, or the time from now.
type spied struct {
	net.Conn

	empty bool // a Read of one byte returns 0 and nil, as Conn.Read does

	mu     sync.Mutex
	silent bool // every Read returns 0 and nil
	steps  []string
}

func (s *spied) setSilent(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = on
}

func (s *spied) step(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, fmt.Sprintf(format, args...))
}

// take returns the steps since the last call.
func (s *spied) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := s.steps
	s.steps = nil
	return steps
}

func (s *spied) Read(p []byte) (int, error) {
	s.step("read %d", len(p))
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if silent || s.empty && len(p) == 1 {
		return 0, nil
	}
	return s.Conn.Read(p)
}

func (s *spied) Write(p []byte) (int, error) {
	s.step("write")
	return s.Conn.Write(p)
}

func (s *spied) SetReadDeadline(t time.Time) error {
	switch {
	case t.IsZero():
		s.step("deadline none")
	case t.Before(time.Now()):
		s.step("deadline past")
	default:
		s.step("deadline %v", time.Until(t))
	}
	return s.Conn.SetReadDeadline(t)
}

func (s *spied) Close() error {
	s.step("close")
	return s.Conn.Close()
}

// Different timeouts make it possible to tell the server's deadlines apart.
const (
	idleTimeout   = 3 * time.Minute
	headerTimeout = 2 * time.Minute
	bodyTimeout   = 1 * time.Minute
)

// single is a listener of one connection.
type single struct {
	conn chan net.Conn
	done chan struct{}
}

func (l single) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l single) Close() error   { return nil }
func (l single) Addr() net.Addr { return &net.TCPAddr{} }

// observe makes a server of net/http serve conn in a synctest bubble. do is the client at peer.
func observe(t *testing.T, conn *spied, handler http.HandlerFunc, do func(t *testing.T, peer net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, peer := net.Pipe()
		conn.Conn = near
		listener := single{make(chan net.Conn, 1), make(chan struct{})}
		listener.conn <- conn
		server := &http.Server{
			Handler: handler, IdleTimeout: idleTimeout, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout,
			ConnState: func(_ net.Conn, state http.ConnState) { conn.step("state %v", state) },
		}
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(listener) })
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		synctest.Wait()
		do(t, peer)
		_ = peer.Close()
		synctest.Wait()
		close(listener.done)
		serving.Wait()
	})
}

const plainGet = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// handlerTime is the shortest run of a handler, so that the background read begins before it ends.
const handlerTime = time.Second

// say sends text and waits until the server is idle.
func say(t *testing.T, peer net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(peer, text); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * handlerTime)
	synctest.Wait()
}

// expect compares steps with the habit.
func expect(t *testing.T, habit string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("net/http does no longer %s.\ngot  %s\nwant %s\nSee docs/explained/performance.md#what-is-known-of-nethttp",
			habit, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func respond(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(handlerTime)
	_, _ = io.WriteString(w, "hello")
}

// TestHabitIdleThenDeadlineThenRead: at the end of a response, conn.serve calls the ConnState hook
// with StateIdle, sets the read deadline to the idle timeout, and reads (Peek(4)). Rest recognizes
// the wait for the next request by this order.
func TestHabitIdleThenDeadlineThenRead(t *testing.T) {
	conn := &spied{empty: true}
	observe(t, conn, respond, func(t *testing.T, peer net.Conn) {
		for range 2 {
			say(t, peer, plainGet)
			steps := conn.take()
			from := slices.Index(steps, "write")
			expect(t, "wait for a request as conn.serve did", steps[max(0, from):], []string{
				"write", "state idle", "deadline 3m0s", "read 4096",
			})
		}
	})
}

// TestHabitBuffer: newBufioReader makes a buffer of 4 KiB, and a Read for the next request offers
// all of it. From a shorter offer, Rest concludes that a part of a request has been read already.
func TestHabitBuffer(t *testing.T) {
	conn := &spied{empty: true}
	observe(t, conn, respond, func(t *testing.T, peer net.Conn) {
		first := conn.take()
		expect(t, "read the first request into 4 KiB (newBufioReader)", first[len(first)-1:], []string{"read 4096"})
		say(t, peer, plainGet+"GE") // with two bytes of the next request
		steps := conn.take()
		expect(t, "read on behind the bytes that it has (bufio.Reader.fill)", steps[len(steps)-1:], []string{"read 4094"})
	})
}

// TestHabitDeadlineOfARequest: if a part of the next request is in the buffer, conn.serve sets the
// idle timeout and then the header timeout as read deadline. From the second deadline, Rest
// concludes that a request has begun.
func TestHabitDeadlineOfARequest(t *testing.T) {
	conn := &spied{empty: true}
	observe(t, conn, respond, func(t *testing.T, peer net.Conn) {
		say(t, peer, plainGet+plainGet[:10])
		steps := conn.take()
		from := slices.Index(steps, "state idle")
		if from < 0 {
			t.Fatalf("no response: %v", steps)
		}
		expect(t, "set a second deadline for a request that has begun (conn.serve)", steps[from:], []string{
			"state idle", "deadline 3m0s", "deadline 2m0s", "read 4086",
		})
	})
}

// TestHabitActiveBeforeTheBody: the server calls the ConnState hook with StateActive after reading
// the head and before reading the body. Until then, Conn counts the lines it reads as lines of the
// head.
func TestHabitActiveBeforeTheBody(t *testing.T) {
	conn := &spied{empty: true}
	read := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		respond(w, r)
	}
	observe(t, conn, read, func(t *testing.T, peer net.Conn) {
		say(t, peer, "POST / HTTP/1.1\r\nHost: h\r\n")
		if steps := conn.take(); slices.Contains(steps, "state active") {
			t.Errorf("net/http calls a connection active while it reads a head (conn.readRequest): %v", steps)
		}
		say(t, peer, "Content-Length: 10000\r\n\r\n")
		steps := conn.take()
		active := slices.Index(steps, "state active")
		body := slices.IndexFunc(steps, func(s string) bool { return strings.HasPrefix(s, "read ") })
		if active < 0 || body < active {
			t.Errorf("net/http reads a body before it calls the connection active (conn.serve): %v", steps)
		}
		say(t, peer, strings.Repeat("x", 10000))
	})
}

// TestHabitBackgroundRead: while a handler runs, connReader.startBackgroundRead removes the read
// deadline and reads one byte, once. If that read has not returned, connReader.abortPendingRead
// interrupts it with a deadline in the past, and removes that deadline again.
func TestHabitBackgroundRead(t *testing.T) {
	for _, empty := range []bool{false, true} {
		conn := &spied{empty: empty}
		var inHandler []string
		handler := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(handlerTime)
			inHandler = conn.take()
			_, _ = io.WriteString(w, "hello")
		}
		observe(t, conn, handler, func(t *testing.T, peer net.Conn) {
			say(t, peer, plainGet)
			steps := conn.take()
			last := inHandler[max(0, len(inHandler)-2):]
			expect(t, "read one byte in the background (connReader.startBackgroundRead)", last, []string{"deadline none", "read 1"})
			want := []string{"write", "deadline past", "deadline none", "state idle"}
			if empty {
				want = []string{"write", "state idle"}
			}
			expect(t, "interrupt its background read (connReader.abortPendingRead)", steps[:min(len(steps), len(want))], want)
		})
	}
}

// TestHabitEmptyBackgroundRead: the server neither repeats a background read that returns 0 and
// nil, nor treats it as an error. The context of the request and the connection go on
// (connReader.backgroundRead).
func TestHabitEmptyBackgroundRead(t *testing.T) {
	conn := &spied{empty: true}
	var ended error
	handler := func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(handlerTime)
		ended = r.Context().Err()
		_, _ = io.WriteString(w, "hello")
	}
	observe(t, conn, handler, func(t *testing.T, peer net.Conn) {
		for range 2 {
			say(t, peer, plainGet)
			steps := conn.take()
			reads := slices.DeleteFunc(steps, func(s string) bool { return !strings.HasPrefix(s, "read ") })
			expect(t, "take a background read of nothing for a good one", reads[max(0, len(reads)-2):], []string{"read 1", "read 4096"})
			if ended != nil {
				t.Errorf("net/http ends the context of a request after a background read of nothing: %v", ended)
			}
		}
	})
}

// TestHabitSilentEnd: when a Read that waits for a request returns io.EOF, conn.serve closes the
// connection without reading or writing. Rest takes over the connection at that Close.
func TestHabitSilentEnd(t *testing.T) {
	conn := &spied{empty: true}
	observe(t, conn, respond, func(t *testing.T, peer net.Conn) {
		say(t, peer, plainGet)
		conn.take()
		_ = peer.Close() // the pipe returns io.EOF
		synctest.Wait()
		expect(t, "close a connection at its end and do nothing else (conn.serve)", conn.take(), []string{"close", "state closed"})
	})
}

// TestHabitEmptyRead: a Read of the connection that returns 0 and nil reaches the reader of the
// body as 0 and nil, through bufio.Reader and connReader.Read, without a second Read.
// Conn.WithoutWaiting relies on this.
func TestHabitEmptyRead(t *testing.T) {
	conn := &spied{}
	handler := func(w http.ResponseWriter, r *http.Request) {
		conn.take()
		conn.setSilent(true)
		n, err := r.Body.Read(make([]byte, 100))
		conn.setSilent(false)
		expect(t, "pass an empty Read on (bufio.Reader.Read, connReader.Read)",
			append(conn.take(), fmt.Sprint(n, err)), []string{"read 4096", "0 <nil>"})
		rest, err := io.ReadAll(r.Body)
		if string(rest) != "x" || err != nil {
			t.Errorf("the body after an empty Read is %q, %v", rest, err)
		}
		respond(w, r)
	}
	observe(t, conn, handler, func(t *testing.T, peer net.Conn) {
		say(t, peer, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n")
		say(t, peer, "x")
	})
}
