// Package clientconn makes the connections of clients cheap for a server.
//
// A server moves the deadlines of a connection several times for every request. On a
// socket each of these moves changes a timer. Nearly none has an effect: the next one
// comes long before the deadline. A [Conn] notes what is wanted, and leaves the
// deadline that the socket has, as long as that is not too late. If it turns out to be too
// early, the read or write that failed is continued with the deadline that is wanted
// by then.
//
// To notice that a client has gone while its request is being answered, somebody has to
// read. net/http has a goroutine do so for every request. A Conn that is told to
// [Conn.Watch] begins only when that has lasted for a while: see [Glance].
//
// A connection on which nothing is asked takes a server many KiB: buffers, and the stack
// of a goroutine that has been through a handler. [Rest] keeps such connections, and gives
// them back with the next request.
package clientconn

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Conn is a connection with the same behaviour as the one it wraps, except that there
// is no ReadFrom, nor any other method that is not listed here.
//
// It is safe for concurrent use as any [net.Conn] is.
type Conn struct {
	net.Conn // the connection itself

	read, write deadline

	waiters *Waiters
	leave   context.CancelFunc // ends the context of the connection; nil: it has none

	// Guarded by read.mu.
	closed   bool
	glance   glance    // whether the client is looked for
	since    uint64    // tick of waiters at which that was wished for
	waits    bool      // it is among the waiters
	recalled bool      // the look is to end
	over     sync.Cond // the look has ended
	ahead    []byte    // what is read before anything else
	rester   rester
}

// glance is how far the look for the client has come.
type glance uint8

const (
	unwanted glance = iota
	wished          // it begins after a while
	looking         // a goroutine reads
)

// Wrap returns inner as a Conn of a server whose connections share w.
func Wrap(inner net.Conn, w *Waiters) *Conn {
	c := &Conn{Conn: inner, waiters: w}
	c.read = deadline{wanted: never, armed: never, set: inner.SetReadDeadline}
	c.write = deadline{wanted: never, armed: never, set: inner.SetWriteDeadline}
	c.over.L = &c.read.mu
	return c
}

// Context returns a context that derives from parent and ends when the connection is
// closed, or its client is found to have gone: see [Conn.Watch]. It is called once, before
// anybody else uses the connection.
func (c *Conn) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	c.leave = cancel
	return ctx
}

// Watch has the client looked for after a while, until the next Read: if it has closed the
// connection, the context that [Conn.Context] returned ends. It takes the read deadline
// away. Nobody may be in a Read.
func (c *Conn) Watch() {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	_ = c.read.want(never)
	if c.glance == looking || len(c.ahead) > 0 || c.closed || c.leave == nil {
		return // requests that came together: nothing was read between them
	}
	c.glance, c.since = wished, c.waiters.tick.Load()
	if !c.waits {
		c.waits = true
		c.waiters.add(c)
	}
}

// Unread has a copy of p read before anything else.
func (c *Conn) Unread(p []byte) {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	c.ahead = slices.Concat(p, c.ahead)
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	c.read.mu.Lock()
	if c.glance != unwanted {
		c.recall()
	}
	if len(c.ahead) > 0 && len(p) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		c.rester.idle = false
		c.read.mu.Unlock()
		return n, nil
	}
	if c.goesToRest(len(p)) {
		c.read.mu.Unlock()
		return 0, io.EOF
	}
	c.read.begin()
	c.read.mu.Unlock()
	for {
		n, err := c.Conn.Read(p)
		if !c.readOn(p[:n], err) {
			return n, err
		}
	}
}

// readOn reports whether to go on after an attempt to read that ended with got and err.
func (c *Conn) readOn(got []byte, err error) bool {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	c.rester.look(got)
	return c.read.repeats(err)
}

// visit begins the look if it was wished for long enough ago, at the tick now. It
// reports whether it is to be called again at the next one.
func (c *Conn) visit(now uint64) bool {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	switch {
	case c.glance == wished && now-c.since < 2:
		return true
	case c.glance == wished:
		c.glance = looking
		c.read.begin()
		go c.look()
	}
	c.waits = false
	return false
}

// look reads one byte, for which somebody waits or nobody.
func (c *Conn) look() {
	var p [1]byte
	for {
		n, err := c.Conn.Read(p[:])
		c.read.mu.Lock()
		if c.recalled {
			c.read.calls-- // it was interrupted, or has ended by itself
		} else if c.read.repeats(err) {
			c.read.mu.Unlock()
			continue
		}
		gone := err != nil && !c.recalled
		c.rester.look(p[:n])
		c.ahead = append(c.ahead, p[:n]...)
		c.glance, c.recalled = unwanted, false
		c.read.mu.Unlock()
		c.over.Broadcast()
		if gone {
			c.leave()
		}
		return
	}
}

// recall ends the look. It needs read.mu, and gives it away for as long as it waits.
func (c *Conn) recall() {
	for c.glance == looking {
		c.recalled = true
		c.read.interrupt()
		c.over.Wait()
	}
	c.glance = unwanted
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	c.write.mu.Lock()
	c.write.begin()
	c.write.mu.Unlock()
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
	at := instantOf(t)
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	c.rester.wait()
	return c.read.want(at)
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	at := instantOf(t)
	c.write.mu.Lock()
	defer c.write.mu.Unlock()
	return c.write.want(at)
}

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

// Close implements [net.Conn]. A connection that has gone to rest is not closed: it is the
// server's no more.
func (c *Conn) Close() error {
	var err error
	if !c.handOver() {
		err = c.Conn.Close()
	}
	c.read.mu.Lock()
	c.closed = true
	if c.glance == wished {
		c.glance = unwanted
	}
	c.read.mu.Unlock()
	if c.leave != nil {
		c.leave()
	}
	return err
}
