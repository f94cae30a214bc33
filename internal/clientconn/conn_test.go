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

	"snowgate/internal/clientconn"
)

// counted counts the calls that reach the wrapped connection.
type counted struct {
	net.Conn

	mu                          sync.Mutex
	reads, writes, rDead, wDead int
}

func (c *counted) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *counted) Read(p []byte) (int, error) {
	c.count(&c.reads)
	return c.Conn.Read(p)
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

// pipe returns a wrapped connection, the counter of its calls, and its peer.
func pipe(t *testing.T) (*clientconn.Conn, *counted, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	inner := &counted{Conn: near}
	conn := clientconn.Wrap(inner, new(clientconn.Waiters))
	t.Cleanup(func() { _, _ = conn.Close(), far.Close() })
	return conn, inner, far
}

// TestDeadlinesAreThoseOfThePlainConnection: every step on a plain connection and on a wrapped one
// ends in the same way after the same time.
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
		{"one byte: closed", func(c, _ net.Conn) error { _ = c.Close(); return readByte(c) }},
		{"one byte: it fires", func(c, _ net.Conn) error { _ = in(c, second); return readByte(c) }},
		{"one byte: it is set during the read", func(c, _ net.Conn) error {
			time.AfterFunc(second/100, func() { _ = in(c, second) })
			return readByte(c)
		}},
		{"one byte: the past interrupts at once", func(c, _ net.Conn) error {
			time.AfterFunc(second/100, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
			return readByte(c)
		}},
		{"one byte: the past interrupts late", func(c, _ net.Conn) error {
			time.AfterFunc(second, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
			return readByte(c)
		}},
		{"one byte: the past comes first, and goes again", func(c, peer net.Conn) error {
			_ = c.SetReadDeadline(time.Unix(1, 0))
			err := readByte(c)
			_ = c.SetReadDeadline(time.Time{})
			time.AfterFunc(second, func() { _, _ = peer.Write([]byte("x")) })
			return errors.Join(err, readByte(c))
		}},
		{"one byte: closed early", func(c, _ net.Conn) error {
			time.AfterFunc(second/100, func() { _ = c.Close() })
			return readByte(c)
		}},
		{"one byte: the peer leaves late", func(c, peer net.Conn) error {
			time.AfterFunc(second, func() { _ = peer.Close() })
			return readByte(c)
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
			want, wantTook := attempt(t, tt.do, func(c net.Conn) net.Conn { return c })
			got, took := attempt(t, tt.do, func(c net.Conn) net.Conn { return clientconn.Wrap(c, new(clientconn.Waiters)) })
			if got != want || took != wantTook {
				t.Errorf("%q after %v, want %q after %v", got, took, want, wantTook)
			}
		})
	}
}

// attempt returns the error of do with one end of a pipe, and how long it took.
func attempt(t *testing.T, do func(c, peer net.Conn) error, wrap func(net.Conn) net.Conn) (fault string, took time.Duration) {
	synctest.Test(t, func(*testing.T) {
		near, far := net.Pipe()
		conn := wrap(near)
		start := time.Now()
		if err := do(conn, far); err != nil {
			fault = bare(err)
		}
		took = time.Since(start)
		_, _ = conn.Close(), far.Close()
	})
	return fault, took
}

// bare returns the text of err without the layer that reports it.
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

// TestWriteGoesOnWithTheRest: after the armed deadline interrupts a write in the middle, the write
// continues with the rest.
func TestWriteGoesOnWithTheRest(t *testing.T) {
	clientconn.NeedsHabits(t)
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

// TestMovingDeadlinesIsFree: the delay of a deadline that fires does not grow with the deadlines
// before it.
func TestMovingDeadlinesIsFree(t *testing.T) {
	clientconn.NeedsHabits(t)
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		go func() { _, _ = io.Copy(peer, peer) }()
		for range 1000 {
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := read(conn); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if _, _, rDead, wDead := inner.counts(); rDead != 1 || wDead != 1 {
			t.Errorf("%d and %d deadlines reached the connection, want 1 and 1", rDead, wDead)
		}
	})
}

// background acts like the server at the start of a handler. It returns the context of the
// connection.
func background(t *testing.T, conn *clientconn.Conn) context.Context {
	t.Helper()
	ctx := clientconn.ConnContext(t.Context(), conn)
	glance(t, conn)
	return ctx
}

func glance(t *testing.T, conn *clientconn.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Time{})
	start := time.Now()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err != nil || !time.Now().Equal(start) {
		t.Fatalf("a background read = %d, %v after %v, want nothing at once", n, err, time.Since(start))
	}
}

// TestClientIsLookedForLate: the disconnect check begins only after the handler has run for a
// while.
func TestClientIsLookedForLate(t *testing.T) {
	clientconn.NeedsHabits(t)
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		ctx := background(t, conn)
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

// TestOneReadReturnsNothing: only the first read of a single byte is the server's background read.
func TestOneReadReturnsNothing(t *testing.T) {
	clientconn.NeedsHabits(t)
	synctest.Test(t, func(t *testing.T) {
		conn, _, peer := pipe(t)
		background(t, conn)
		time.AfterFunc(time.Second, func() { _, _ = peer.Write([]byte("x")) })
		var p [1]byte
		if n, err := conn.Read(p[:]); n != 1 || err != nil || p[0] != 'x' {
			t.Errorf("the second Read = %d %q, %v, want x", n, p, err)
		}
	})
}

// TestLookLosesNothing: the next read returns the byte that the disconnect check found, and
// deadlines stay as set.
func TestLookLosesNothing(t *testing.T) {
	clientconn.NeedsHabits(t)
	for _, sent := range []time.Duration{0, clientconn.Glance / 4, clientconn.Glance * 2, clientconn.Glance * 4} {
		for _, asked := range []time.Duration{clientconn.Glance / 8, clientconn.Glance * 3} {
			synctest.Test(t, func(t *testing.T) {
				conn, _, peer := pipe(t)
				ctx := background(t, conn)
				time.AfterFunc(sent, func() { _, _ = peer.Write([]byte("request")) })
				time.Sleep(asked)
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				p := make([]byte, 7)
				if _, err := io.ReadFull(conn, p); err != nil || string(p) != "request" {
					t.Errorf("sent after %v, asked after %v: %q, %v", sent, asked, p, err)
				}
				start := time.Now()
				_ = conn.SetReadDeadline(start.Add(time.Second))
				if err := read(conn); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
					t.Errorf("a read without a response = %v after %v", err, time.Since(start))
				}
				if ctx.Err() != nil {
					t.Error("the context has ended with its client there")
				}
				glance(t, conn)
			})
		}
	}
}

// TestOneLookAtATime: pipelined requests are served without a read between them. One disconnect
// check serves them all.
func TestOneLookAtATime(t *testing.T) {
	clientconn.NeedsHabits(t)
	synctest.Test(t, func(t *testing.T) {
		conn, inner, peer := pipe(t)
		background(t, conn)
		for range 3 {
			time.Sleep(2 * clientconn.Glance)
			glance(t, conn)
		}
		time.Sleep(2 * clientconn.Glance)
		if reads, _, _, _ := inner.counts(); reads != 1 {
			t.Errorf("%d looks", reads)
		}
		go func() { _, _ = peer.Write([]byte("request")) }()
		synctest.Wait() // the check has taken a byte
		glance := make([]byte, 1)
		if n, err := conn.Read(glance); n != 1 || err != nil {
			t.Errorf("a background read after the look = %d, %v, want what it has found", n, err)
		}
		p := make([]byte, 6)
		if _, err := io.ReadFull(conn, p); err != nil || string(glance)+string(p) != "request" {
			t.Errorf("%q and %q, %v", glance, p, err)
		}
	})
}

// TestDeadlineOfALook: a deadline set during the disconnect check applies to the check, too.
func TestDeadlineOfALook(t *testing.T) {
	clientconn.NeedsHabits(t)
	synctest.Test(t, func(t *testing.T) {
		conn, _, _ := pipe(t)
		ctx := background(t, conn)
		start := time.Now()
		_ = conn.SetReadDeadline(start.Add(time.Second))
		time.Sleep(time.Second / 2)
		_ = conn.SetReadDeadline(start.Add(2 * time.Second))
		<-ctx.Done()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("the look has ended after %v, want 2s", took)
		}
	})
}

// TestInterruptionOfALook: the server interrupts its background read with a deadline in the past.
// If that read has not returned yet, and a check for an earlier request runs, the deadline
// interrupts the check as well. The client has not gone.
func TestInterruptionOfALook(t *testing.T) {
	clientconn.NeedsHabits(t)
	synctest.Test(t, func(t *testing.T) {
		conn, _, peer := pipe(t)
		ctx := background(t, conn)
		time.Sleep(2 * clientconn.Glance)
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		synctest.Wait()
		_ = conn.SetReadDeadline(time.Time{})
		if ctx.Err() != nil {
			t.Error("the context has ended with its client there")
		}
		go func() { _, _ = peer.Write([]byte("request")) }()
		p := make([]byte, 7)
		if _, err := io.ReadFull(conn, p); err != nil || string(p) != "request" {
			t.Errorf("%q, %v", p, err)
		}
	})
}

// TestCloseEndsTheContext: a closed connection is not checked, and its context ends.
func TestCloseEndsTheContext(t *testing.T) {
	clientconn.NeedsHabits(t)
	for _, after := range []time.Duration{0, clientconn.Glance * 2} {
		synctest.Test(t, func(t *testing.T) {
			conn, inner, _ := pipe(t)
			ctx := background(t, conn)
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

// TestEachWaitsForItself: each of many connections waits as long as a single one.
func TestEachWaitsForItself(t *testing.T) {
	clientconn.NeedsHabits(t)
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
				background(t, conn)
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
