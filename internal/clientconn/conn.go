// Package clientconn makes the connections of clients cheap for [net/http.Server].
//
// The server sets the deadlines of a connection about eight times per request. On a socket each of these
// calls changes a timer, and nearly none of the timers fires. A [Conn] records the new deadline and leaves
// the socket's own as long as that is not later. When the socket's deadline fires too early, the Conn
// repeats the read or write with the recorded one.
//
// While a handler runs, the server reads one byte in another goroutine, to notice that the client has
// gone, and interrupts this read when the handler returns. A Conn whose server has [ConnContext] returns
// from this background read at once, with no bytes. It reads by itself after the handler has run for a
// while, see [Glance], and cancels the connection's context if the client has gone.
//
// This relies on habits of net/http that no document promises. For each of them a test with Habit in its
// name fails on a Go release that changes it. A build with the tag snowgate_plainconn relies on none of
// them: a Conn then passes every deadline on, leaves the background read to the server, and is never
// taken away from it. It is slower and gives the same responses.
//
// An idle connection costs the server about 20 KiB: two buffers and the stack of a goroutine. [Rest] parks
// idle connections outside the server and returns them with the next request.
//
// A head of more than 500 lines reaches the server as one that is too large, see [ConnState].
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

// Conn is a connection with the same behaviour as the one it wraps, except that there
// is no ReadFrom, nor any other method that is not listed here.
//
// It is safe for concurrent use as any [net.Conn] is.
type Conn struct {
	net.Conn // the connection itself

	read, write deadline

	waiters *Waiters
	leave   context.CancelFunc // ends the context of the connection; nil: it has none
	lingers atomic.Bool        // see Linger

	// Guarded by read.mu.
	closed    bool
	unlimited bool      // the deadline was taken away, and nothing was read since
	glance    glance    // whether the client is looked for
	since     uint64    // tick of waiters at which that was wished for
	waits     bool      // it is among the waiters
	recalled  bool      // the look is to end
	over      sync.Cond // the look has ended
	ahead     [1]byte   // what it found
	found     bool      // it has found something that was not read yet
	rester    rester
	head      headLines
	waitless  bool // see WithoutWaiting
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
	c.read = deadline{wanted: never, review: never, armed: never, set: inner.SetReadDeadline}
	c.write = deadline{wanted: never, review: never, armed: never, set: inner.SetWriteDeadline}
	c.over.L = &c.read.mu
	return c
}

// ConnContext is for the field of [net/http.Server] with that name. The context it returns
// ends when the client of c has gone, or c is closed. If c is no [Conn], but TLS above one,
// it returns ctx: the server reads in the background then.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(*Conn)
	if !ok || !knowsServer {
		return ctx
	}
	ctx, conn.leave = context.WithCancel(ctx)
	return ctx
}

// Read implements [net.Conn]. The first Read of a single byte after the deadline was taken
// away returns 0 and nil, if [ConnContext] has seen the connection: that is the server's
// background read, and whoever else does so reads again. Before a Read that waits for a next
// request, others that are about to answer do so, see [cohort].
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
			return 0, os.ErrDeadlineExceeded // it was given up before it began
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
		c.waiters.answered.Gather()
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

// outcome is what follows an attempt to read.
type outcome uint8

const (
	goBack   outcome = iota // to the caller, with what came
	goOn                    // with another attempt
	goToRest                // and tell the caller that the connection has ended
)

// afterRead judges an attempt to read that ended with got and err.
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

// WithoutWaiting calls read. Until read returns, a Read of more than one byte returns 0 and nil, which
// [io.Reader] allows, and leaves the socket alone. So a handler that reads the body of its request in
// read gets what the server's buffer holds: all of a small body that came together with its head.
// TestHabitEmptyRead fails if [net/http] does not pass on a Read of 0 bytes. In a build with the tag
// snowgate_plainconn, WithoutWaiting does nothing.
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

// wish has the client looked for after a while, unless it is already. It needs read.mu.
func (c *Conn) wish() {
	if c.glance == looking { // requests that came together: nothing was read between them
		return
	}
	c.glance, c.since = wished, c.waiters.tick.Load()
	if !c.waits {
		c.waits = true
		c.waiters.add(c)
	}
}

// visit begins the look if it was wished for long enough ago, at the tick now. It
// reports whether it is to be called again at the next one.
func (c *Conn) visit(now uint64) bool {
	defer panics.Catch(panics.Client, nil) // the others are visited as well
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
		// A deadline of long ago is no news of the client: the server interrupts its own read.
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

// lookBroke ends the connection, and whatever waits for the look.
func (c *Conn) lookBroke(error) {
	_ = c.Conn.Close()
	c.read.mu.Lock()
	c.glance, c.recalled = unwanted, false
	c.read.mu.Unlock()
	c.over.Broadcast()
	c.leave()
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

// CloseWrite ends what is sent, if the connection can do that. The server does so before
// it closes a connection from which it has not read everything.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// lingerTime is how long a connection that was told to [Conn.Linger] is read after Close.
const lingerTime = time.Second

// Linger makes Close end what is sent, and read and drop what the client still sends, until that
// ends too or [lingerTime] has passed. A socket that is closed with bytes left to be read, or that
// gets some afterwards, resets the connection, which destroys the part of the last response that
// the client has not read yet (RFC 9112 section 9.6).
func (c *Conn) Linger() { c.lingers.Store(true) }

// closeInner closes the connection itself, at once or after a while.
func (c *Conn) closeInner() error {
	if !c.lingers.Load() || c.CloseWrite() != nil {
		return c.Conn.Close()
	}
	// No deadline: a look for the client may still be under way, and changes it.
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

// Close implements [net.Conn]. A connection that has gone to rest is not closed: it is the
// server's no more.
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
