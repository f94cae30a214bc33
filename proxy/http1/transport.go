package http1

import (
	"context"
	"net"
	"sync"
	"time"

	"snowgate/internal/panics"
)

// Transport keeps connections to one server. Its fields must be set before the first call. It is
// safe for concurrent use and must not be copied.
type Transport struct {
	// Address is the host and port of the server.
	Address string
	// DialContext makes connections, like that of [net.Dialer].
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxIdle is the maximum number of idle connections, and IdleTimeout how long they are kept.
	MaxIdle     int
	IdleTimeout time.Duration
	// MaxHeader limits the header of a response, and its trailer, in bytes.
	MaxHeader int
	// ContinueTimeout is how long a request with Expect: 100-continue waits for the server before
	// it sends its body (RFC 9110 §10.1.1).
	ContinueTimeout time.Duration

	mu      sync.Mutex
	idle    []*conn     // the last one used is at the end
	sweeper *time.Timer // runs while a connection is idle
	retired bool
}

// Call returns a new call to the server. A call holds no resources until [Call.Send].
func (t *Transport) Call() *Call {
	c := new(Call)
	t.Begin(c)
	return c
}

// Begin initializes c, which must be zero, as a call to the server.
func (t *Transport) Begin(c *Call) { c.transport = t }

// CloseIdleConnections closes the idle connections. From now on, no connection is kept.
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

// take returns the connection that was kept last, or nil. Older connections then stay idle and time
// out.
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

// sweep closes connections that were idle for too long, and arms the next sweep.
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

// dial makes a connection. It returns the errors of DialContext.
func (t *Transport) dial(ctx context.Context) (*conn, error) {
	network, err := t.DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, err
	}
	return newConn(network)
}
