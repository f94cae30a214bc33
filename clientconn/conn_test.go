package clientconn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/clientconn"
)

// counted counts what reaches the connection itself.
type counted struct {
	net.Conn

	mu                          sync.Mutex
	reads, writes, rDead, wDead int
	got                         int // reads that have returned something
}

func (c *counted) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *counted) Read(p []byte) (int, error) {
	c.count(&c.reads)
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.count(&c.got)
	}
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	c.count(&c.writes)
	return c.Conn.Write(p)
}

func (c *counted) SetReadDeadline(t time.Time) error {
	c.count(&c.rDead)
	return c.Conn.SetReadDeadline(t)
}

func (c *counted) SetWriteDeadline(t time.Time) error {
	c.count(&c.wDead)
	return c.Conn.SetWriteDeadline(t)
}

func (c *counted) counts() (reads, writes, rDead, wDead int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads, c.writes, c.rDead, c.wDead
}

func (c *counted) gotten() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}

// pipe returns a wrapped connection, what counts its calls, and its peer.
func pipe(t *testing.T) (*clientconn.Conn, *counted, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	inner := &counted{Conn: near}
	conn := clientconn.Wrap(inner, new(clientconn.Waiters))
	t.Cleanup(func() { _, _ = conn.Close(), far.Close() })
	return conn, inner, far
}

// Every step is done to a plain connection, to a wrapped one, and to one whose client is
// looked for unless it is read, and must come to the same end after the same time.
func TestDeadlinesAreThoseOfThePlainConnection(t *testing.T) {
	const second = time.Second
	in := func(c net.Conn, d time.Duration) error { return c.SetReadDeadline(time.Now().Add(d)) }
	tests := []struct {
		name string
		do   func(c, peer net.Conn) error
	}{
		{"none was ever set: data ends the wait", func(c, peer net.Conn) error {
			time.AfterFunc(second, func() { _, _ = peer.Write([]byte("x")) })
			return read(c)
		}},
		{"it fires", func(c, _ net.Conn) error { _ = in(c, second); return read(c) }},
		{"in the past, though there is data", func(c, peer net.Conn) error {
			go func() { _, _ = peer.Write([]byte("x")) }()
			synctest.Wait()
			_ = in(c, -second)
			return read(c)
		}},
		{"later, while armed", func(c, _ net.Conn) error { _, _ = in(c, second), in(c, 3*second); return read(c) }},
		{"later, after the first has fired", func(c, _ net.Conn) error {
			_ = in(c, second)
			err := read(c)
			_ = in(c, 2*second)
			return errors.Join(err, read(c))
		}},
		{"later, during the read", func(c, _ net.Conn) error {
			_ = in(c, second)
			time.AfterFunc(second/2, func() { _ = in(c, 5*second) })
			return read(c)
		}},
		{"later by far, armed and unarmed again and again", func(c, _ net.Conn) error {
			for range 20 {
				_ = in(c, second)
				time.AfterFunc(second/2, func() { _ = in(c, 2*second) })
				if err := read(c); !errors.Is(err, os.ErrDeadlineExceeded) {
					return err
				}
			}
			return nil
		}},
		{"earlier, during the read", func(c, _ net.Conn) error {
			_ = in(c, 10*second)
			time.AfterFunc(second, func() { _ = in(c, second) })
			return read(c)
		}},
		{"taken away during the read", func(c, peer net.Conn) error {
			_ = in(c, second)
			time.AfterFunc(second/2, func() { _ = c.SetReadDeadline(time.Time{}) })
			time.AfterFunc(time.Minute, func() { _, _ = peer.Write([]byte("x")) })
			return read(c)
		}},
		{"taken away and set again", func(c, _ net.Conn) error {
			_, _, _ = in(c, second), c.SetReadDeadline(time.Time{}), in(c, 2*second)
			return read(c)
		}},
		{"the past interrupts", func(c, _ net.Conn) error {
			time.AfterFunc(second, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
			return read(c)
		}},
		{"SetDeadline: the past interrupts, and a later one is in force again", func(c, _ net.Conn) error {
			time.AfterFunc(second, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
			err := read(c)
			_ = c.SetDeadline(time.Now().Add(second))
			return errors.Join(err, read(c))
		}},
		{"without a monotonic reading", func(c, _ net.Conn) error {
			_ = c.SetReadDeadline(time.Now().Add(second).Round(0))
			return read(c)
		}},
		{"closed during the read", func(c, _ net.Conn) error {
			time.AfterFunc(second, func() { _ = c.Close() })
			return read(c)
		}},
		{"closed before", func(c, _ net.Conn) error { _ = c.Close(); return read(c) }},
		{"it is set during the read", func(c, _ net.Conn) error {
			time.AfterFunc(second/100, func() { _ = in(c, second) })
			return read(c)
		}},
		{"the past comes first, and goes again", func(c, peer net.Conn) error {
			_ = c.SetReadDeadline(time.Unix(1, 0))
			err := read(c)
			_ = c.SetReadDeadline(time.Time{})
			time.AfterFunc(second, func() { _, _ = peer.Write([]byte("x")) })
			return errors.Join(err, read(c))
		}},
		{"the past interrupts, and goes again, as often as net/http likes", func(c, peer net.Conn) error {
			for range 10 {
				time.AfterFunc(second, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
				if err := readByte(c); !errors.Is(err, os.ErrDeadlineExceeded) {
					return err
				}
				_ = c.SetReadDeadline(time.Time{})
			}
			time.AfterFunc(second, func() { _, _ = peer.Write([]byte("x")) })
			return readByte(c)
		}},
		{"the peer leaves", func(c, peer net.Conn) error {
			time.AfterFunc(second, func() { _ = peer.Close() })
			return read(c)
		}},
		{"a write: it fires", func(c, _ net.Conn) error {
			_ = c.SetWriteDeadline(time.Now().Add(second))
			_, err := c.Write([]byte("x"))
			return err
		}},
		{"a write: later, during it", func(c, _ net.Conn) error {
			_ = c.SetWriteDeadline(time.Now().Add(second))
			time.AfterFunc(second/2, func() { _ = c.SetWriteDeadline(time.Now().Add(4 * second)) })
			_, err := c.Write([]byte("x"))
			return err
		}},
		{"a write: the past interrupts", func(c, _ net.Conn) error {
			time.AfterFunc(second, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
			_, err := c.Write([]byte("x"))
			return err
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want, wantTook := attempt(t, tt.do, func(_ *testing.T, c net.Conn) net.Conn { return c })
			for _, watched := range []bool{false, true} {
				got, took := attempt(t, tt.do, func(t *testing.T, c net.Conn) net.Conn {
					conn := clientconn.Wrap(c, new(clientconn.Waiters))
					if watched {
						watch(t, conn)
					}
					return conn
				})
				if got != want || took != wantTook {
					t.Errorf("watched: %v: %q after %v, want %q after %v", watched, got, took, want, wantTook)
				}
			}
		})
	}
}

// attempt returns the error of do with one end of a pipe, and how long it took.
func attempt(t *testing.T, do func(c, peer net.Conn) error, wrap func(*testing.T, net.Conn) net.Conn) (fault string, took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		conn := wrap(t, near)
		start := time.Now()
		if err := do(conn, far); err != nil {
			fault = bare(err)
		}
		took = time.Since(start)
		_, _ = conn.Close(), far.Close()
	})
	return fault, took
}

// bare is the text of err without what tells only which layer has noticed.
func bare(err error) string {
	if wrapped, ok := errors.AsType[*net.OpError](err); ok {
		return wrapped.Err.Error()
	}
	return err.Error()
}

func read(c net.Conn) error {
	_, err := c.Read(make([]byte, 10))
	return err
}

func readByte(c net.Conn) error {
	var p [1]byte
	_, err := c.Read(p[:])
	return err
}

// A write that the armed deadline stops in the middle goes on with the rest.
func TestWriteGoesOnWithTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		time.AfterFunc(time.Second/2, func() { _ = conn.SetWriteDeadline(time.Now().Add(time.Hour)) })
		var got bytes.Buffer
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.CopyN(&got, peer, 3)
			time.Sleep(time.Minute) // the armed deadline passes
			_, _ = io.CopyN(&got, peer, 4)
		}()
		if n, err := conn.Write([]byte("abcdefg")); n != 7 || err != nil {
			t.Errorf("Write = %d, %v, want 7, nil", n, err)
		}
		<-done
		if got.String() != "abcdefg" {
			t.Errorf("the peer has read %q, want %q", &got, "abcdefg")
		}
		if _, writes, _, _ := inner.counts(); writes != 2 {
			t.Errorf("%d writes reached the connection, want 2", writes)
		}
	})
}

// A request costs one read and one write, however many deadlines are set for it. How much a
// deadline that fires is off must not grow with those that did not.
func TestMovingDeadlinesIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		conn.Context(t.Context())
		go func() { _, _ = io.Copy(peer, peer) }()
		const requests = 1000
		for range requests {
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := read(conn); err != nil {
				t.Fatal(err)
			}
			conn.Watch()
			time.Sleep(time.Millisecond)
		}
		if reads, writes, rDead, wDead := inner.counts(); reads != requests || writes != requests || rDead != 1 || wDead != 1 {
			t.Errorf("%d reads, %d writes, and %d and %d deadlines reached the connection, want %d, %d, 1 and 1",
				reads, writes, rDead, wDead, requests, requests)
		}
	})
}

// watch does what a server does when a handler begins, and returns the context of the
// connection.
func watch(t *testing.T, conn *clientconn.Conn) context.Context {
	t.Helper()
	ctx := conn.Context(t.Context())
	conn.Watch()
	return ctx
}

// readWhole expects the next bytes of conn to be those of want.
func readWhole(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	p := make([]byte, len(want))
	if n, err := io.ReadFull(conn, p); err != nil || string(p) != want {
		t.Fatalf("%q was read, and then %v, want %q", p[:n], err, want)
	}
}

// The client is not looked for before the handler has run for a while.
func TestClientIsLookedForLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		ctx := watch(t, conn)
		time.Sleep(clientconn.Glance/2 - 1)
		synctest.Wait()
		if reads, _, _, _ := inner.counts(); reads != 0 {
			t.Error("the look has begun early")
		}
		time.Sleep(clientconn.Glance/2 + 1)
		synctest.Wait()
		if reads, _, _, _ := inner.counts(); reads != 1 {
			t.Error("the look has not begun")
		}
		if ctx.Err() != nil {
			t.Error("the context has ended with its client there")
		}
		_ = peer.Close()
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the context has not ended with its client gone")
		}
	})
}

// The context of a connection is one of the server's: it has its values, and its end.
func TestContextHasAParent(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	conn, _, _ := pipe(t)
	ctx := conn.Context(parent)
	if got := ctx.Value(key{}); got != "value" {
		t.Errorf("the value is %v, want that of the parent", got)
	}
	if ctx.Err() != nil {
		t.Error("the context has ended before its parent")
	}
	cancel()
	if ctx.Err() == nil {
		t.Error("the context has not ended with its parent")
	}
}

// The client is not looked for if nothing can come of it, or what comes has to wait.
func TestWatchDoesNotLook(t *testing.T) {
	for name, do := range map[string]func(context.Context, *clientconn.Conn){
		"something is ahead":  func(ctx context.Context, c *clientconn.Conn) { c.Context(ctx); c.Unread([]byte("x")); c.Watch() },
		"closed":              func(ctx context.Context, c *clientconn.Conn) { c.Context(ctx); _ = c.Close(); c.Watch() },
		"closed afterwards":   func(ctx context.Context, c *clientconn.Conn) { c.Context(ctx); c.Watch(); _ = c.Close() },
		"there is no context": func(_ context.Context, c *clientconn.Conn) { c.Watch() },
		"nobody has asked":    func(ctx context.Context, c *clientconn.Conn) { c.Context(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, inner, _ := pipe(t)
				do(t.Context(), conn)
				time.Sleep(2 * clientconn.Glance)
				synctest.Wait()
				if reads, _, _, _ := inner.counts(); reads != 0 {
					t.Errorf("the client is looked for: %d reads", reads)
				}
			})
		})
	}
}

// The deadline by which a request had to come is not one for its answer.
func TestWatchTakesTheReadDeadlineAway(t *testing.T) {
	for _, after := range []time.Duration{clientconn.Glance / 4, clientconn.Glance * 3} { // before a look begins, and after
		synctest.Test(t, func(t *testing.T) {
			conn, _, peer := pipe(t)
			ctx := conn.Context(t.Context())
			for range 3 {
				_ = conn.SetReadDeadline(time.Now().Add(after))
				go func() { _, _ = peer.Write([]byte("x")) }()
				readWhole(t, conn, "x")
				conn.Watch()
				time.Sleep(after + time.Minute)
				synctest.Wait()
				if ctx.Err() != nil {
					t.Fatalf("%v: the context has ended with the read deadline of the request", after)
				}
			}
			_ = peer.Close()
			synctest.Wait()
			if ctx.Err() == nil {
				t.Errorf("%v: the context has not ended with its client gone", after)
			}
		})
	}
}

// What the look finds, or does not find, is there for the next read, and deadlines are
// what they were.
func TestLookLosesNothing(t *testing.T) {
	for _, sent := range []time.Duration{0, clientconn.Glance / 4, clientconn.Glance * 2, clientconn.Glance * 4} {
		for _, asked := range []time.Duration{clientconn.Glance / 8, clientconn.Glance * 3} {
			synctest.Test(t, func(t *testing.T) {
				conn, _, peer := pipe(t)
				ctx := watch(t, conn)
				time.AfterFunc(sent, func() { _, _ = peer.Write([]byte("request")) })
				time.Sleep(asked)
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				readWhole(t, conn, "request")
				start := time.Now()
				_ = conn.SetReadDeadline(start.Add(time.Second))
				if err := read(conn); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
					t.Errorf("a read without an answer = %v after %v", err, time.Since(start))
				}
				if ctx.Err() != nil {
					t.Error("the context has ended with its client there")
				}
				conn.Watch()
				_ = peer.Close()
				time.Sleep(clientconn.Glance)
				synctest.Wait()
				if ctx.Err() == nil {
					t.Error("the client was not looked for again")
				}
			})
		}
	}
}

// Requests that came together are served without a read between them. One look goes on for
// all of them.
func TestOneLookAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		watch(t, conn)
		for range 3 {
			time.Sleep(2 * clientconn.Glance)
			conn.Watch()
		}
		time.Sleep(2 * clientconn.Glance)
		if reads, _, _, _ := inner.counts(); reads != 1 {
			t.Errorf("%d looks", reads)
		}
		go func() { _, _ = peer.Write([]byte("request")) }()
		synctest.Wait() // the look has taken a byte
		conn.Watch()
		time.Sleep(2 * clientconn.Glance)
		if reads, _, _, _ := inner.counts(); reads != 1 {
			t.Errorf("%d looks, though one has found something", reads)
		}
		readWhole(t, conn, "request")
	})
}

// A Read ends what Watch has asked for, also if no look has begun.
func TestReadEndsTheWatch(t *testing.T) {
	for _, after := range []time.Duration{0, clientconn.Glance * 2} {
		synctest.Test(t, func(t *testing.T) {
			conn, inner, peer := pipe(t)
			ctx := watch(t, conn)
			time.Sleep(after)
			go func() { _, _ = peer.Write([]byte("x")) }()
			readWhole(t, conn, "x")
			before, _, _, _ := inner.counts()
			_ = peer.Close()
			time.Sleep(clientconn.Glance * 2)
			synctest.Wait()
			if reads, _, _, _ := inner.counts(); reads != before || ctx.Err() != nil {
				t.Errorf("after %v: the client is looked for: %d reads, want %d; the context: %v", after, reads, before, ctx.Err())
			}
		})
	}
}

// A deadline that is set while the client is looked for is one of the look, too.
func TestDeadlineOfALook(t *testing.T) {
	for _, moved := range []bool{false, true} { // while the look goes on
		synctest.Test(t, func(t *testing.T) {
			conn, _, _ := pipe(t)
			ctx := watch(t, conn)
			start, want := time.Now(), time.Second
			_ = conn.SetReadDeadline(start.Add(want))
			if moved {
				time.Sleep(time.Second / 2)
				want = 2 * time.Second
				_ = conn.SetReadDeadline(start.Add(want))
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			if took := time.Since(start); took != want {
				t.Errorf("moved: %v: the look has ended after %v, want %v", moved, took, want)
			}
		})
	}
}

// After a look, however it has ended, moving deadlines is as cheap as before.
func TestMovingDeadlinesIsFreeAfterALook(t *testing.T) {
	for _, finds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn, inner, peer := pipe(t)
			conn.Context(t.Context())
			for range 3 {
				conn.Watch()
				time.Sleep(2 * clientconn.Glance)
				go func() {
					if !finds {
						time.Sleep(clientconn.Glance)
					}
					_, _ = peer.Write([]byte("xy"))
				}()
				if finds {
					synctest.Wait()
				}
				readWhole(t, conn, "xy")
				_, _, before, _ := inner.counts()
				for i := range 10 {
					_ = conn.SetReadDeadline(time.Now().Add(time.Hour - time.Duration(i)*time.Minute))
				}
				if _, _, rDead, _ := inner.counts(); rDead != before {
					t.Errorf("finds: %v: %d deadlines were set while nothing was read", finds, rDead-before)
				}
			}
		})
	}
}

// What was put back is read before anything else, in pieces as small as they are asked
// for, and no more is waited for.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		p := []byte("cdef")
		conn.Unread(p)
		copy(p, "----") // it is who calls that has p
		conn.Unread([]byte("ab"))
		conn.Unread(nil)
		readWhole(t, conn, "a")
		readWhole(t, conn, "bcd")
		big := make([]byte, 100)
		if n, err := conn.Read(big); err != nil || string(big[:n]) != "ef" {
			t.Errorf("Read = %q, %v, want what was left", big[:n], err)
		}
		if reads, _, _, _ := inner.counts(); reads != 0 {
			t.Errorf("%d reads reached the connection, want none", reads)
		}
		go func() { _, _ = peer.Write([]byte("gh")) }()
		readWhole(t, conn, "g")
		conn.Unread([]byte("g"))
		readWhole(t, conn, "gh")
	})
}

// What was read before a look comes before what that finds, whenever it is put back.
func TestUnreadAndLook(t *testing.T) {
	const begun = clientconn.Glance * 3 / 2
	for name, do := range map[string]func(conn *clientconn.Conn, send func()){
		"before the look":           func(conn *clientconn.Conn, send func()) { conn.Unread([]byte("ab")); time.Sleep(begun); send() },
		"while one goes on":         func(conn *clientconn.Conn, send func()) { time.Sleep(begun); conn.Unread([]byte("ab")); send() },
		"after it has found a byte": func(conn *clientconn.Conn, send func()) { time.Sleep(begun); send(); conn.Unread([]byte("ab")) },
		"around what it has found": func(conn *clientconn.Conn, send func()) {
			conn.Unread([]byte("b"))
			time.Sleep(begun)
			send()
			conn.Unread([]byte("a"))
		},
		"while one goes on, one two": func(conn *clientconn.Conn, send func()) {
			time.Sleep(begun)
			conn.Unread([]byte("b"))
			conn.Unread([]byte("a"))
			send()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, inner, peer := pipe(t)
				ctx := watch(t, conn)
				do(conn, func() {
					go func() { _, _ = peer.Write([]byte("cd")) }()
					synctest.Wait()
				})
				if reads, _, _, _ := inner.counts(); reads != 1 {
					t.Errorf("%d reads, want that of the look", reads)
				}
				readWhole(t, conn, "abc")
				readWhole(t, conn, "d")
				if ctx.Err() != nil {
					t.Error("the context has ended with its client there")
				}
			})
		})
	}
}

// What was put back while a look goes on is there at once, and the look loses nothing.
func TestReadOfUnreadDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, peer := pipe(t)
		ctx := watch(t, conn)
		time.Sleep(2 * clientconn.Glance)
		conn.Unread([]byte("ab"))
		start := time.Now()
		readWhole(t, conn, "ab")
		if took := time.Since(start); took != 0 {
			t.Errorf("what was put back came after %v", took)
		}
		go func() { _, _ = peer.Write([]byte("cd")) }()
		readWhole(t, conn, "cd")
		if ctx.Err() != nil {
			t.Error("the context has ended with its client there")
		}
	})
}

// A closed connection is not looked at, and its context ends.
func TestCloseEndsTheContext(t *testing.T) {
	for _, after := range []time.Duration{0, clientconn.Glance * 2} {
		synctest.Test(t, func(t *testing.T) {
			conn, inner, _ := pipe(t)
			ctx := watch(t, conn)
			time.Sleep(after)
			_ = conn.Close()
			synctest.Wait()
			if ctx.Err() == nil {
				t.Errorf("after %v: the context of a closed connection has not ended", after)
			}
			before, _, _, _ := inner.counts()
			time.Sleep(clientconn.Glance * 2)
			if reads, _, _, _ := inner.counts(); reads != before {
				t.Errorf("after %v: a closed connection was read", after)
			}
		})
	}
}

// Many wait, and each of them for as long as the only one.
func TestEachWaitsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiters clientconn.Waiters
		var all sync.WaitGroup
		for i := range 100 {
			near, far := net.Pipe()
			inner := &counted{Conn: near}
			conn := clientconn.Wrap(inner, &waiters)
			all.Go(func() {
				defer func() { _, _ = conn.Close(), far.Close() }()
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				watch(t, conn)
				quick, rest := i%3 == 0, clientconn.Glance
				if quick {
					rest = clientconn.Glance / 3
				}
				time.Sleep(rest + 1)
				if reads, _, _, _ := inner.counts(); (reads == 0) != quick {
					t.Errorf("%d: %d reads, quick: %v", i, reads, quick)
				}
				time.AfterFunc(1, func() { _, _ = far.Write([]byte("x")) })
				if err := read(conn); err != nil {
					t.Errorf("%d: Read = %v", i, err)
				}
			})
		}
		all.Wait()
	})
}
