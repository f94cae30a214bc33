package proxy

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fullConn is the connection to a client that takes nothing: a write ends when its deadline passes.
type fullConn struct {
	net.Conn
	deadline atomic.Pointer[time.Time] // the one in force
}

// SetWriteDeadline implements [net.Conn].
func (c *fullConn) SetWriteDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return nil
}

// Write implements [net.Conn].
func (c *fullConn) Write([]byte) (int, error) {
	for time.Now().Before(*c.deadline.Load()) {
		time.Sleep(10 * time.Millisecond)
	}
	return 0, os.ErrDeadlineExceeded
}

// SetReadDeadline implements [net.Conn].
func (c *fullConn) SetReadDeadline(time.Time) error { return nil }

// Read implements [net.Conn]: the client has closed its side.
func (c *fullConn) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements [net.Conn].
func (c *fullConn) Close() error { return nil }

// TestTunnelOfAClientThatTakesNothing: it ends after a minute, and soon when its token ends.
func TestTunnelOfAClientThatTakesNothing(t *testing.T) {
	for name, want := range map[string]time.Duration{"left alone": tunnelTime, "cut before": frameTime} {
		synctest.Test(t, func(t *testing.T) {
			tunnel := newTunnel(new(fullConn), func() {})
			tunnel.open = true
			began := time.Now()
			tunnel.ending.Store(name == "cut before")
			_, err := tunnel.Write([]byte("\x82\x05frame"))
			if took := time.Since(began); err == nil || took > want+100*time.Millisecond {
				t.Errorf("%s: Write ends after %v with %v, want an error after %v at most", name, took, err, want)
			}
			if err := tunnel.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
