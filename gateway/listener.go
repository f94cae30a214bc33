package gateway

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"snowgate/internal/clientconn"
	"snowgate/internal/nonblock"
)

// drainingListener is a listener that hands out every waiting connection before it closes. The kernel
// completes handshakes before Accept is called, and a plain Close resets these connections, though their
// clients may have sent requests already.
type drainingListener struct {
	*net.TCPListener
	rest    *clientconn.Rest // parks idle connections
	retired atomic.Bool
	taken   bool          // last has been filled; used by Accept only
	last    []net.Conn    // connections that waited when the listener retired
	empty   chan struct{} // closed when all of them were handed out
}

func newDrainingListener(inner *net.TCPListener) *drainingListener {
	return &drainingListener{
		TCPListener: inner, rest: clientconn.NewRest(inner.Addr(), idleTimeout, restAfter), empty: make(chan struct{}),
	}
}

// Accept returns the next connection. After Retire it returns the connections that waited at that moment,
// and then net.ErrClosed. Only one goroutine may call it.
func (l *drainingListener) Accept() (net.Conn, error) {
	if !l.retired.Load() {
		conn, err := l.TCPListener.Accept()
		if err == nil {
			return l.wrap(conn), nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
	var fault error
	if !l.taken {
		l.taken = true
		l.last, fault = takeWaiting(l.TCPListener)
	}
	if len(l.last) > 0 {
		conn := l.last[0]
		l.last = l.last[1:]
		return l.wrap(conn), nil
	}
	fault = errors.Join(net.ErrClosed, fault, l.TCPListener.Close())
	close(l.empty)
	return nil, fault
}

// wrap adds to the connection of a client what makes it cheap: system calls outside of the
// scheduler, and rest while it is idle.
func (l *drainingListener) wrap(conn net.Conn) net.Conn {
	return l.rest.Wrap(nonblock.Wrap(conn))
}

// Retire stops listening. It returns when Accept has handed out every waiting connection and every
// parked one. It waits for the parked ones until ctx ends. Call it once, while the server serves both
// listeners.
func (l *drainingListener) Retire(ctx context.Context) {
	l.retired.Store(true)
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // wakes up Accept
		return // closed already
	}
	<-l.empty
	l.rest.Retire(ctx)
}
