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

// patientListener is a listener that takes all connections that wait before it
// is closed. The kernel completes handshakes before a connection is accepted, and
// closing the socket resets those that wait; their clients have sent requests
// already. The connections are those of clients: see [clientconn].
type patientListener struct {
	*net.TCPListener
	rest    *clientconn.Rest // where they are while nothing is asked on them
	retired atomic.Bool
	taken   bool          // last has been filled; used by Accept only
	last    []net.Conn    // connections that waited when the listener retired
	empty   chan struct{} // closed when all of them were handed out
}

func newPatientListener(inner *net.TCPListener) *patientListener {
	return &patientListener{
		TCPListener: inner, rest: clientconn.NewRest(inner.Addr(), idleTimeout, restAfter), empty: make(chan struct{}),
	}
}

// Accept returns the next connection. After Retire it returns those that waited
// then, and at last net.ErrClosed. It must not be called concurrently.
func (l *patientListener) Accept() (net.Conn, error) {
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

// wrap makes the connection of a client cheap.
func (l *patientListener) wrap(conn net.Conn) net.Conn {
	return l.rest.Wrap(nonblock.Wrap(conn))
}

// Retire ends the listening; it returns when Accept has handed out every
// connection that waited, and the rest every one that rested, the latter by the end of
// ctx. It must be called once, while somebody calls Accept of both.
func (l *patientListener) Retire(ctx context.Context) {
	l.retired.Store(true)
	if err := l.SetDeadline(time.Unix(1, 0)); err != nil { // wakes up Accept
		return // closed already
	}
	<-l.empty
	l.rest.Retire(ctx)
}
