// Package clientconn makes the connections of clients cheap for [net/http.Server].
//
// The server sets the deadlines of a connection about eight times per request. On a socket, each of
// these calls changes a timer, and nearly none of the timers fires. A [Conn] records a new deadline
// and changes the socket's own deadline only if that would be too late. If the socket's deadline
// fires too early, the Conn repeats the read or write with the recorded one.
//
// While a handler runs, the server reads one byte in another goroutine, to notice when the client
// goes away. It interrupts this background read when the handler returns. A Conn whose server has
// [ConnContext] returns from the background read at once, without bytes. If the handler runs for a
// while, see [Glance], the Conn itself reads one byte, and cancels the connection's context if the
// client has gone.
//
// This relies on habits of net/http that are not documented. For each habit, a test with Habit in
// its name fails on a Go release that changes the habit. A build with the tag snowgate_plainconn
// relies on none of them: a Conn then sets every deadline, leaves the background read to the
// server, and is never parked. Such a build is slower and gives the same responses.
//
// An idle connection costs the server about 20 KiB: two buffers and the stack of a goroutine.
// [Rest] parks idle connections outside the server, and returns them when the next request arrives.
//
// A head of more than 500 lines reaches the server as a head that is too large, see [ConnState].
package clientconn

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/panics"
)

// Conn is a connection that behaves like the one it wraps, but has no ReadFrom, and no other method
// that is not listed here.
//
// It is safe for concurrent use like any [net.Conn].
type Conn struct {
	net.Conn // the wrapped connection

	read, write deadline

	waiters *Waiters
	leave   context.CancelFunc // ends the context of the connection; nil: there is none
	lingers atomic.Bool        // see Linger

	// Guarded by read.mu.
	closed    bool
	unlimited bool      // the deadline was removed, and nothing was read since
	glance    glance    // the state of the disconnect check
	since     uint64    // tick of waiters at which the check was requested
	waits     bool      // the connection is in waiters
	recalled  bool      // the check must end
	over      sync.Cond // the check has ended
	ahead     [1]byte   // the byte that the check read
	found     bool      // ahead has a byte that was not returned yet
	rester    rester
	head      headLines
	waitless  bool // see WithoutWaiting
}

// glance is the state of the disconnect check.
type glance uint8

const (
	unwanted glance = iota
	wished          // requested, begins after a while
	looking         // a goroutine reads
)

// Wrap returns inner as a Conn of a server whose connections share w.
func Wrap(inner net.Conn, w *Waiters) *Conn {
	c := &Conn{Conn: inner, waiters: w}
	c.read = deadline{wanted: never, review: never, armed: never, set: inner.SetReadDeadline}
	c.write = deadline{wanted: never, review: never, armed: never, set: inner.SetWriteDeadline}
	c.over.L = &c.read.mu
	return c
}

// ConnContext is the ConnContext of an [net/http.Server]. The context that it returns ends when the
// client of c has gone, or c is closed. If c is not a [Conn], for example TLS above one,
// ConnContext returns ctx, and the server reads in the background.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(*Conn)
	if !ok || !knowsServer {
		return ctx
	}
	ctx, conn.leave = context.WithCancel(ctx)
	return ctx
}

// Read implements [net.Conn]. If the connection has [ConnContext], the first Read of a single byte
// after the deadline was removed returns 0 and nil. This is the server's background read; all other
// callers just read again. Before a Read that waits for the next request, the goroutine yields to
// others that are about to respond, see [cohort].
func (c *Conn) Read(p []byte) (int, error) {
	c.read.mu.Lock()
	if c.rester.gone {
		c.read.mu.Unlock()
		return 0, io.EOF
	}
	if len(p) == 1 && !c.found {
		switch {
		case c.unlimited && c.read.wanted == never && c.leave != nil:
			c.unlimited = false
			c.wish()
			c.read.mu.Unlock()
			return 0, nil
		case c.read.wanted == past && !c.closed:
			c.read.mu.Unlock()
			return 0, os.ErrDeadlineExceeded // it was interrupted before it began
		}
	}
	if c.waitless && len(p) > 1 { // not the server's background read
		c.read.mu.Unlock()
		return 0, nil
	}
	if c.head.tooMany() {
		c.read.mu.Unlock()
		return padding(p)
	}
	c.unlimited = false
	if c.glance != unwanted {
		c.recall()
	}
	if c.found && len(p) > 0 {
		c.found = false
		c.read.mu.Unlock()
		p[0] = c.ahead[0]
		return 1, nil
	}
	c.read.review = c.restsAt(len(p))
	c.read.begin()
	idle := c.rester.idle
	c.read.mu.Unlock()
	if idle {
		c.waiters.responded.Gather()
	}
	for {
		n, err := c.Conn.Read(p)
		switch c.afterRead(p[:n], err) {
		case goOn:
			continue
		case goToRest:
			return 0, io.EOF
		}
		return n, err
	}
}

// outcome says how to continue after an attempt to read.
type outcome uint8

const (
	goBack   outcome = iota // return to the caller
	goOn                    // try again
	goToRest                // park, and report the end of the connection to the caller
)

// afterRead handles the result of an attempt to read.
func (c *Conn) afterRead(got []byte, err error) outcome {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	if len(got) > 0 {
		c.rester.look(got)
		c.head.count(got)
	}
	if err != nil && c.goesToRest(err) {
		return goToRest
	}
	if c.read.repeats(err) {
		return goOn
	}
	return goBack
}

// WithoutWaiting calls read. Until read returns, a Read of more than one byte returns 0 and nil,
// which [io.Reader] allows, and does not touch the socket. So a handler that reads the request body
// in read gets the contents of the server's buffer: the whole of a small body that arrived together
// with its head. TestHabitEmptyRead fails if [net/http] does not pass on a Read of 0 bytes. In a
// build with the tag snowgate_plainconn, WithoutWaiting does nothing.
func (c *Conn) WithoutWaiting(read func()) {
	if !knowsServer {
		return
	}
	c.setWaitless(true)
	defer c.setWaitless(false)
	read()
}

func (c *Conn) setWaitless(on bool) {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	c.waitless = on
}

// wish requests a disconnect check after a while, unless one is running. The caller holds read.mu.
func (c *Conn) wish() {
	if c.glance == looking { // pipelined requests: nothing was read between them
		return
	}
	c.glance, c.since = wished, c.waiters.tick.Load()
	if !c.waits {
		c.waits = true
		c.waiters.add(c)
	}
}

// visit starts the disconnect check if it was requested long enough before the tick now. It reports
// whether it wants to be called again at the next tick.
func (c *Conn) visit(now uint64) bool {
	defer panics.Catch(panics.Client, nil) // continue with the other connections
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	switch {
	case c.glance == wished && now-c.since < 2:
		return true
	case c.glance == wished:
		c.glance = looking
		c.read.review = never
		c.read.begin()
		go func() { defer panics.Catch(panics.Client, c.lookBroke); c.look() }()
	}
	c.waits = false
	return false
}

// look reads one byte: the next byte of input, or the end of the connection.
func (c *Conn) look() {
	var p [1]byte
	for {
		n, err := c.Conn.Read(p[:])
		c.read.mu.Lock()
		if c.recalled {
			c.read.calls-- // interrupted, or ended by itself
		} else if c.read.repeats(err) {
			c.read.mu.Unlock()
			continue
		}
		// The server interrupts its own read with a deadline in the past. Such a deadline says
		// nothing about the client.
		interrupted := c.read.wanted == past && errors.Is(err, os.ErrDeadlineExceeded)
		gone := err != nil && !c.recalled && !interrupted
		c.ahead, c.found = p, n == 1
		c.glance, c.recalled = unwanted, false
		c.read.mu.Unlock()
		c.over.Broadcast()
		if gone {
			c.leave()
		}
		return
	}
}

// lookBroke closes the connection, and wakes everything that waits for the check.
func (c *Conn) lookBroke(error) {
	_ = c.Conn.Close()
	c.read.mu.Lock()
	c.glance, c.recalled = unwanted, false
	c.read.mu.Unlock()
	c.over.Broadcast()
	c.leave()
}

// recall ends the check. The caller holds read.mu, which recall releases while it waits.
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
	c.unlimited = at == never
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

// CloseWrite closes the sending side, if the connection supports that. The server does so before it
// closes a connection from which it has not read everything.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// lingerTime is how long a connection after [Conn.Linger] is read after Close.
const lingerTime = time.Second

// Linger makes Close first close only the sending side. The connection then reads and drops what
// the client still sends, until the client closes its side or [lingerTime] has passed. Otherwise
// unread bytes would make the socket reset the connection, and destroy the part of the last
// response that the client has not read yet (RFC 9112 section 9.6).
func (c *Conn) Linger() { c.lingers.Store(true) }

// closeInner closes the wrapped connection, at once or after lingering.
func (c *Conn) closeInner() error {
	if !c.lingers.Load() || c.CloseWrite() != nil {
		return c.Conn.Close()
	}
	// No deadline is used, because a running disconnect check may change it.
	_ = c.Conn.SetReadDeadline(time.Time{})
	bound := time.AfterFunc(lingerTime, func() { defer panics.Catch(panics.Client, nil); _ = c.Conn.Close() })
	go func() {
		defer panics.Catch(panics.Client, nil)
		_, _ = io.Copy(io.Discard, c.Conn)
		bound.Stop()
		_ = c.Conn.Close()
	}()
	return nil
}

// Close implements [net.Conn]. It does not close a parked connection, which does not belong to the
// server any more.
func (c *Conn) Close() error {
	var err error
	if !c.handOver() {
		err = c.closeInner()
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
