package http1

import (
	"context"
	"net"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// Transport holds the connections to one server. Its fields must be set before the
// first call. It is safe for concurrent use and must not be copied.
type Transport struct {
	// Address is host and port of the server.
	Address string
	// DialContext makes the connections, as that of [net.Dialer] does.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxIdle is how many connections are kept for the next request, IdleTimeout for
	// how long.
	MaxIdle     int
	IdleTimeout time.Duration
	// MaxHeader bounds the header of a response, and its trailer, in bytes.
	MaxHeader int
	// ContinueTimeout is how long a server that is asked whether it wants a body
	// (RFC 9110 §10.1.1) may be silent before it is sent.
	ContinueTimeout time.Duration

	mu      sync.Mutex
	idle    []*conn     // the one that was used last is at the end
	sweeper *time.Timer // runs while something is idle
	retired bool
}

// Call returns a new call to the server. It costs nothing that would have to be
// given back until [Call.Send] is called.
func (t *Transport) Call() *Call {
	c := new(Call)
	t.Begin(c)
	return c
}

// Begin makes c, which is zero, a call to the server.
func (t *Transport) Begin(c *Call) { c.transport = t }

// CloseIdleConnections closes the connections that no call is using, and has no more
// of them kept from now on.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	idle := t.idle
	t.idle, t.retired = nil, true
	if t.sweeper != nil {
		t.sweeper.Stop()
	}
	t.mu.Unlock()
	closeAll(idle)
}

// take returns the connection that was kept last, nil if there is none. Older ones get the chance
// to be closed.
func (t *Transport) take() *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.idle) - 1
	if last < 0 {
		return nil
	}
	c := t.idle[last]
	t.idle[last] = nil
	t.idle = t.idle[:last]
	c.kept = true
	return c
}

// keep keeps a connection for the next call.
func (t *Transport) keep(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	full := t.retired || len(t.idle) >= t.MaxIdle
	if !full {
		t.idle = append(t.idle, c)
		if len(t.idle) == 1 {
			t.arm(t.IdleTimeout)
		}
	}
	t.mu.Unlock()
	if full {
		c.close()
	}
}

// arm starts the sweep after d. The caller holds mu.
func (t *Transport) arm(d time.Duration) {
	if t.sweeper == nil {
		t.sweeper = time.AfterFunc(d, func() { defer panics.Catch(panics.Upstream, nil); t.sweep() })
		return
	}
	t.sweeper.Reset(d)
}

// sweep closes the connections that were idle for too long, and comes again when the
// next one is due.
func (t *Transport) sweep() {
	t.mu.Lock()
	now := time.Now()
	due := 0
	for due < len(t.idle) && now.Sub(t.idle[due].since) >= t.IdleTimeout {
		due++
	}
	gone := append([]*conn(nil), t.idle[:due]...)
	t.idle = append(t.idle[:0], t.idle[due:]...)
	clear(t.idle[len(t.idle):cap(t.idle)])
	if len(t.idle) > 0 {
		t.arm(t.IdleTimeout - now.Sub(t.idle[0].since))
	}
	t.mu.Unlock()
	closeAll(gone)
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}

// dial makes a connection. Its errors are those of DialContext.
func (t *Transport) dial(ctx context.Context) (*conn, error) {
	network, err := t.DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, err
	}
	return newConn(network)
}
