// Package clientconn makes the connections of clients cheap for [net/http.Server].
//
// The server moves the deadlines of a connection about eight times for every request.
// On a socket each of these moves changes a timer. Nearly none has an effect: the next one
// comes long before the deadline. A [Conn] notes what is wanted, and leaves the
// deadline that the socket has, as long as that is not too late. If it turns out to be too
// early, the read or write that failed is continued with the deadline that is wanted
// by then.
//
// And while a handler runs, the server reads one byte in the background, to notice that the
// client has gone. Nearly always there is none, and the read is interrupted when
// the handler returns. A Conn begins this read only when the handler has run for a while: see
// [Glance]. Whatever the client sends until then waits in the socket.
//
// All of this relies on net/http for its speed only. If that changes its ways, a Conn
// still behaves like the connection it wraps.
package clientconn

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Conn is a connection with the same behaviour as the one it wraps, except that
//   - a Read of one byte without a deadline may take up to [Glance] longer, and
//   - there is no ReadFrom, nor any other method that is not listed here.
//
// It is safe for concurrent use as any [net.Conn] is.
type Conn struct {
	net.Conn // the connection itself

	read, write deadline

	watch   sync.Cond // of read.mu: whether a background read goes on waiting may have changed
	overdue bool      // guarded by read.mu: it has waited long enough
	closed  bool      // guarded by read.mu
	waiters *Waiters
	place   place // in waiters
}

// Wrap returns inner as a Conn, whose background reads wait in w.
func Wrap(inner net.Conn, w *Waiters) *Conn {
	c := &Conn{Conn: inner, waiters: w}
	c.read = deadline{wanted: never, armed: never, set: inner.SetReadDeadline}
	c.write = deadline{wanted: never, armed: never, set: inner.SetWriteDeadline}
	c.watch.L = &c.read.mu
	return c
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 1 && cap(p) == 1 && c.expires() {
		return 0, os.ErrDeadlineExceeded
	}
	c.read.begin()
	for {
		n, err := c.Conn.Read(p)
		if !c.read.again(err) {
			return n, err
		}
	}
}

// expires waits before a background read, and reports whether that is given up: its
// deadline was moved into the past. The server does so from startBackgroundRead,
// where it takes the deadline away, to abortPendingRead. The deadline of a read that is wanted for
// its byte is not in the past.
func (c *Conn) expires() bool {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	if c.read.wanted == never && !c.closed {
		c.overdue = false
		for c.read.wanted == never && !c.overdue && !c.closed {
			c.waiters.add(c) // if it is not there
			c.watch.Wait()
		}
		c.waiters.remove(c)
	}
	return c.read.wanted == past && !c.closed
}

// release ends the waiting of a background read: it begins. If it has ended
// in the meantime, and another one waits, that begins early.
func (c *Conn) release() {
	c.read.mu.Lock()
	c.overdue = true
	c.read.mu.Unlock()
	c.watch.Broadcast()
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	c.write.begin()
	wrote := 0
	for {
		n, err := c.Conn.Write(p[wrote:])
		wrote += n
		if !c.write.again(err) {
			return wrote, err
		}
	}
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.read.want(t)
	c.watch.Broadcast()
	return err
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.write.want(t) }

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite ends what is sent, if the connection can do that. The server does so before
// it closes a connection from which it has not read everything.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.read.mu.Lock()
	c.closed = true
	c.read.mu.Unlock()
	c.watch.Broadcast()
	return err
}
