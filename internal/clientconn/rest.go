package clientconn

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/nonblock"
	"snowgate/internal/panics"
)

// Rest parks the idle connections of a server. It tells the server that the client has closed the
// connection, so that the server frees its buffers and its goroutine. Rest is also a
// [net.Listener], which the server must serve next to its own: Accept returns a parked connection
// when bytes arrive on it.
//
// Rest parks a connection only if it speaks HTTP/1.1 without TLS, and if its server waits for a
// request of which no byte has arrived. The server must have [ConnContext] and [ConnState]. A
// parked connection closes when its client closes it, or when the server's idle timeout has passed
// since the last response.
//
// Rest knows how net/http waits. The server reports StateIdle, sets the read deadline, and reads
// into all of its 4 KiB buffer. If a part of the next request is in that buffer already, the server
// sets the deadline a second time, or offers less than the buffer to Read. If the buffer is larger,
// Rest parks nothing. The tests named TestHabit check net/http for this.
//
// Rest is safe for concurrent use.
type Rest struct {
	addr    net.Addr
	left    instant // rest of the idle timeout when a connection is parked
	waiters Waiters
	rested  atomic.Uint64

	woken  chan net.Conn // connections for Accept
	closed chan struct{}
	empty  chan struct{} // closed when nothing is held after Retire

	mu      sync.Mutex
	resting map[net.Conn]struct{}
	held    int // parked, about to be parked, or on the way to Accept
	retired bool
	ended   bool // closed is closed
	over    bool // empty is closed
}

// NewRest returns a Rest for the connections of a server that listens on addr. The server closes
// connections that are idle for idleTimeout. Rest parks them after a shorter while, after.
func NewRest(addr net.Addr, idleTimeout, after time.Duration) *Rest {
	return &Rest{
		addr: addr, left: instant(idleTimeout - after),
		woken: make(chan net.Conn), closed: make(chan struct{}), empty: make(chan struct{}),
		resting: make(map[net.Conn]struct{}),
	}
}

// Wrap returns inner as a Conn. Rest can park it if inner is a socket.
func (r *Rest) Wrap(inner net.Conn) *Conn {
	c := Wrap(inner, &r.waiters)
	if nonblock.CanAwait(inner) {
		c.rester.rest = r
	}
	return c
}

// Count returns how many times a connection was parked.
func (r *Rest) Count() uint64 { return r.rested.Load() }

// Addr implements [net.Listener].
func (r *Rest) Addr() net.Addr { return r.addr }

// Accept implements [net.Listener]. It returns [net.ErrClosed] after Close, and after Retire has
// returned all connections.
func (r *Rest) Accept() (net.Conn, error) {
	select {
	case inner := <-r.woken:
		r.release()
		return r.Wrap(inner), nil
	case <-r.empty:
	case <-r.closed:
	}
	return nil, net.ErrClosed
}

// Retire makes Accept return all parked connections, with or without input, and parks none from now
// on. Retire returns when that is done, when Close was called, or when ctx has ended. Another
// goroutine must call Accept meanwhile.
func (r *Rest) Retire(ctx context.Context) {
	r.mu.Lock()
	r.retired = true
	for inner := range r.resting {
		_ = inner.SetReadDeadline(past.time())
	}
	r.leaveIfEmpty()
	r.mu.Unlock()
	select {
	case <-r.empty:
	case <-r.closed:
	case <-ctx.Done():
	}
}

// Close implements [net.Listener]. It closes the parked connections.
func (r *Rest) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retired = true
	if !r.ended {
		r.ended = true
		close(r.closed)
	}
	for inner := range r.resting {
		_ = inner.Close()
	}
	return nil
}

// admit reports whether a connection may be parked, and counts it if so.
func (r *Rest) admit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired {
		return false
	}
	r.held++
	return true
}

// release stops counting an admitted connection.
func (r *Rest) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
	r.leaveIfEmpty()
}

// leaveIfEmpty ends Retire if nothing is held any more. The caller holds mu.
func (r *Rest) leaveIfEmpty() {
	if r.retired && r.held == 0 && !r.over {
		r.over = true
		close(r.empty)
	}
}

// take parks inner until input arrives, but no longer than until.
func (r *Rest) take(inner net.Conn, until time.Time) {
	r.rested.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired {
		until = past.time()
	}
	_ = inner.SetReadDeadline(until) // if that fails, inner is closed, and the wait fails
	r.resting[inner] = struct{}{}
	go func() { defer panics.Catch(panics.Client, func(error) { r.drop(inner) }); r.await(inner) }()
}

// drop closes an admitted connection and stops counting it.
func (r *Rest) drop(inner net.Conn) {
	r.mu.Lock()
	delete(r.resting, inner)
	r.mu.Unlock()
	_ = inner.Close()
	r.release()
}

// await waits for input on inner.
func (r *Rest) await(inner net.Conn) {
	err := nonblock.Await(inner)
	r.mu.Lock()
	delete(r.resting, inner)
	retired := r.retired
	r.mu.Unlock()
	if err == nil || retired {
		err = inner.SetDeadline(time.Time{}) // no deadline, like a new connection
	}
	if err == nil {
		select {
		case r.woken <- inner:
			return
		case <-r.closed:
		}
	}
	_ = inner.Close()
	r.release()
}

// serverBuffer is the size of net/http's read buffer, in bytes.
const serverBuffer = 4 << 10

// rester is the state of a connection with regard to parking. The connection's read.mu guards it.
type rester struct {
	rest  *Rest // nil: the connection is never parked
	soon  bool  // the server has responded, and is about to wait for a request
	idle  bool  // the server waits, and no byte of a request has arrived
	gone  bool  // parked: Read has told the server that the client closed the connection
	taken bool  // rest has the connection

	seen  uint8 // bytes compared with the HTTP/2 preface
	old   bool  // the client speaks HTTP/1
	large bool  // the server has a larger buffer
}

// look records that bytes were read. From the first bytes, it determines which version of HTTP the
// client speaks.
func (r *rester) look(p []byte) {
	const preface = "PRI" // RFC 9113 §3.4
	r.idle = false
	if r.old {
		return
	}
	for i := 0; i < len(p) && int(r.seen) < len(preface); i++ {
		r.old = r.old || p[i] != preface[r.seen]
		r.seen++
	}
}

// wait records that the server sets the read deadline.
func (r *rester) wait() { r.soon, r.idle = false, r.soon }

// restsAt returns when a Read into a buffer of that length is interrupted for parking. The caller
// holds read.mu.
func (c *Conn) restsAt(length int) instant {
	r := &c.rester
	if length > serverBuffer && (r.idle || r.seen == 0) { // otherwise a body is read past the buffer
		r.large = true
	}
	if !r.idle || length != serverBuffer || !r.old || r.large || r.rest == nil || c.leave == nil || c.read.wanted == never {
		return never
	}
	return c.read.wanted - r.rest.left
}

// goesToRest reports whether the connection is parked now, after err has interrupted a Read. The
// caller holds read.mu.
func (c *Conn) goesToRest(err error) bool {
	if c.closed || !c.read.isReviewed(err) || !c.rester.rest.admit() {
		return false
	}
	c.read.calls--
	c.rester.gone = true
	return true
}

// handOver gives the connection to the Rest once, if it is to be parked. It reports whether it is
// parked.
func (c *Conn) handOver() bool {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	r := &c.rester
	if r.gone && !r.taken {
		r.taken = true
		r.rest.take(c.Conn, c.read.wanted.time())
	}
	return r.gone
}

// ConnState is the ConnState of an [net/http.Server]. With it, the server reads 500 lines of a
// head, and a few thousand bytes more. It responds with 431 to a longer head.
func ConnState(c net.Conn, state http.ConnState) {
	if conn, ok := c.(*Conn); ok {
		conn.read.mu.Lock()
		conn.rester.soon, conn.rester.idle = knowsServer && state == http.StateIdle, false
		conn.head.begin(state == http.StateNew || state == http.StateIdle)
		conn.read.mu.Unlock()
	}
}
