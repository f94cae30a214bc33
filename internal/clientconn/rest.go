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

// Rest parks the idle connections of a server. The server is told that the client has closed the
// connection, and frees its buffers and goroutine. Rest is also a [net.Listener], which the server must
// serve beside its own: Accept returns a parked connection when bytes arrive on it.
//
// Rest parks a connection only if it speaks HTTP/1.1 without TLS, and its server waits for a request of
// which no byte has arrived. The server must have [ConnContext] and [ConnState]. A parked connection
// closes when its client does, or when the idle timeout of the server has passed since the last response.
//
// Rest knows how net/http waits. The server reports StateIdle, sets the read deadline, and reads into all
// of its 4 KiB buffer. If a part of the next request is in that buffer already, the server sets the
// deadline a second time, or offers less than the buffer to Read. If the buffer is larger, Rest parks
// nothing. The tests named TestHabit hold net/http to this.
//
// It is safe for concurrent use.
type Rest struct {
	addr    net.Addr
	left    instant // of the idle timeout, when a connection goes to rest
	waiters Waiters
	rested  atomic.Uint64

	woken  chan net.Conn // to Accept
	closed chan struct{}
	empty  chan struct{} // closed when the last one was handed out after Retire

	mu      sync.Mutex
	resting map[net.Conn]struct{}
	held    int // these, those that are about to come, and those that are woken
	retired bool
	ended   bool // closed is closed
	over    bool // empty is closed
}

// NewRest returns a Rest for connections of a server that listens on addr and closes
// those on which nothing was asked for idleTimeout. They go to rest after a while, which
// must be shorter.
func NewRest(addr net.Addr, idleTimeout, after time.Duration) *Rest {
	return &Rest{
		addr: addr, left: instant(idleTimeout - after),
		woken: make(chan net.Conn), closed: make(chan struct{}), empty: make(chan struct{}),
		resting: make(map[net.Conn]struct{}),
	}
}

// Wrap returns inner as a Conn that goes to rest if it can be: it has to be a socket.
func (r *Rest) Wrap(inner net.Conn) *Conn {
	c := Wrap(inner, &r.waiters)
	if nonblock.CanAwait(inner) {
		c.rester.rest = r
	}
	return c
}

// Count returns how many times a connection has gone to rest.
func (r *Rest) Count() uint64 { return r.rested.Load() }

// Addr implements [net.Listener].
func (r *Rest) Addr() net.Addr { return r.addr }

// Accept implements [net.Listener]. It returns [net.ErrClosed] after Close, and after
// Retire when it has returned all connections.
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

// Retire has Accept return all connections that rest, whether something has come on
// them or not, and lets none go to rest any more. It returns when that is done, Close
// was called, or ctx has ended. Meanwhile somebody has to call Accept.
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

// Close implements [net.Listener]. It closes the connections that rest.
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

// admit reports whether a connection may come, and expects it if so.
func (r *Rest) admit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired {
		return false
	}
	r.held++
	return true
}

// release forgets a connection that was admitted.
func (r *Rest) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
	r.leaveIfEmpty()
}

// leaveIfEmpty ends Retire if nothing is held any more. It needs mu.
func (r *Rest) leaveIfEmpty() {
	if r.retired && r.held == 0 && !r.over {
		r.over = true
		close(r.empty)
	}
}

// take has inner rest until something comes on it, but no longer than until.
func (r *Rest) take(inner net.Conn, until time.Time) {
	r.rested.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retired {
		until = past.time()
	}
	_ = inner.SetReadDeadline(until) // else it is closed, and the wait says so
	r.resting[inner] = struct{}{}
	go func() { defer panics.Catch(panics.Client, func(error) { r.drop(inner) }); r.await(inner) }()
}

// drop closes a connection that was admitted, and forgets it.
func (r *Rest) drop(inner net.Conn) {
	r.mu.Lock()
	delete(r.resting, inner)
	r.mu.Unlock()
	_ = inner.Close()
	r.release()
}

// await waits for something to come on inner.
func (r *Rest) await(inner net.Conn) {
	err := nonblock.Await(inner)
	r.mu.Lock()
	delete(r.resting, inner)
	retired := r.retired
	r.mu.Unlock()
	if err == nil || retired {
		err = inner.SetDeadline(time.Time{}) // so that it is as new
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

// serverBuffer is the size of net/http's buffer for what it reads, in bytes.
const serverBuffer = 4 << 10

// rester is what a connection knows of its rest. It is guarded by the connection's
// read.mu.
type rester struct {
	rest  *Rest // nil: there is none
	soon  bool  // the server has answered, and is about to wait for a request
	idle  bool  // it waits, and nothing of one has come
	gone  bool  // Read has said that the client has closed the connection, which is at rest
	taken bool  // the connection was handed over

	seen  uint8 // bytes that were compared with how HTTP/2 begins
	old   bool  // the client speaks HTTP/1
	large bool  // the server has a larger buffer
}

// look notes that something was read, and finds out from the first bytes which version of
// HTTP the client speaks.
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

// wait notes that the read deadline is set.
func (r *rester) wait() { r.soon, r.idle = false, r.soon }

// restsAt returns when a Read into a buffer of that length is given up for a rest. It needs
// read.mu.
func (c *Conn) restsAt(length int) instant {
	r := &c.rester
	if length > serverBuffer && (r.idle || r.seen == 0) { // else a body is read past the buffer
		r.large = true
	}
	if !r.idle || length != serverBuffer || !r.old || r.large || r.rest == nil || c.leave == nil || c.read.wanted == never {
		return never
	}
	return c.read.wanted - r.rest.left
}

// goesToRest reports whether the connection is at rest from now on, after a Read that was
// interrupted by err. It needs read.mu.
func (c *Conn) goesToRest(err error) bool {
	if c.closed || !c.read.isReviewed(err) || !c.rester.rest.admit() {
		return false
	}
	c.read.calls--
	c.rester.gone = true
	return true
}

// handOver gives the connection to the rest if it has gone there, unless somebody has. It
// reports whether it has gone.
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

// ConnState is for the field of [net/http.Server] with that name. A server that has it reads 500 lines
// of a head, and a few thousand bytes more, and responds with 431 to a longer one.
func ConnState(c net.Conn, state http.ConnState) {
	if conn, ok := c.(*Conn); ok {
		conn.read.mu.Lock()
		conn.rester.soon, conn.rester.idle = knowsServer && state == http.StateIdle, false
		conn.head.begin(state == http.StateNew || state == http.StateIdle)
		conn.read.mu.Unlock()
	}
}
