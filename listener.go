package main

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// A closing listener looks this often, each time for so long, whether one more
// connection comes. More than once, because a deadline that passes before Accept
// is scheduled makes it return without a look.
const (
	lastLooks = 2
	lastLook  = 25 * time.Millisecond
)

// patientListener is a listener that takes all connections that wait before it
// is closed. The kernel completes handshakes before a connection is accepted, and
// closing the socket resets those that wait; their clients have sent requests
// already. What is left is a handshake completed within the microseconds between
// the last look and the closing.
type patientListener struct {
	*net.TCPListener
	retired atomic.Bool
	empty   chan struct{} // closed when nobody waits any more
}

func newPatientListener(inner *net.TCPListener) *patientListener {
	return &patientListener{TCPListener: inner, empty: make(chan struct{})}
}

// Accept returns the next connection. After Retire it returns those that wait
// already, and then net.ErrClosed.
func (l *patientListener) Accept() (net.Conn, error) {
	for looks := 0; looks < lastLooks; {
		if l.retired.Load() {
			if err := l.SetDeadline(time.Now().Add(lastLook)); err != nil {
				return nil, err
			}
		}
		conn, err := l.TCPListener.Accept()
		switch {
		case err == nil || !errors.Is(err, os.ErrDeadlineExceeded):
			return conn, err
		case l.retired.Load():
			looks++
		}
	}
	err := l.TCPListener.Close()
	close(l.empty)
	return nil, errors.Join(net.ErrClosed, err)
}

// Retire makes Accept take what waits and then close the socket; it returns when
// that is done. It must be called once, while somebody calls Accept.
func (l *patientListener) Retire() {
	l.retired.Store(true)
	// Wake up an Accept that waits without a deadline.
	if err := l.SetDeadline(time.Now().Add(lastLook)); err != nil {
		return // closed already
	}
	<-l.empty
}
