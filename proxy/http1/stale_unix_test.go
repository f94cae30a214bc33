//go:build unix

package http1

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStaleConnections: the client notices a change of an idle connection before it writes
// anything. So any request may go to another connection.
func TestStaleConnections(t *testing.T) {
	for _, unasked := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", "\r\n"} {
		idle := make(chan struct{}, 1)
		s := newServer(t, func(c *client) {
			if !c.next() {
				return
			}
			c.says(okResponse)
			if _, stale := <-idle; stale {
				c.says(unasked)
				if tcp, ok := c.Conn.(interface{ CloseWrite() error }); ok {
					_ = tcp.CloseWrite()
				}
				return
			}
			for c.next() {
				c.says(okResponse)
			}
		})
		s.wantOK(t, "first")
		idle <- struct{}{}
		waitUntilReadable(t, s.idle[0].net)
		close(idle)
		got := s.ask(t, &Request{Method: "POST", Path: "/", Host: "h", Body: strings.NewReader("body"), Length: 4})
		if got.body != "ok" || s.accepted.Load() != 2 {
			t.Errorf("after %q: %+v on %d connections, want ok on 2", unasked, got, s.accepted.Load())
		}
	}
}

// waitUntilReadable waits until conn has bytes to read, and leaves them there.
func waitUntilReadable(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	if err := raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return !errors.Is(err, syscall.EAGAIN)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUnaskedResponseOnANewConnection is not that of the request.
func TestUnaskedResponseOnANewConnection(t *testing.T) {
	spoken := make(chan struct{})
	s := newServer(t, func(c *client) {
		c.says(okResponse)
		close(spoken)
		_, _ = io.Copy(io.Discard, c.in)
	})
	conn, err := s.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-spoken
	waitUntilReadable(t, conn.net)
	call := &Call{transport: s.Transport, conn: conn}
	if _, err := call.sendOn(conn, get); !errors.Is(err, ErrResponse) {
		t.Errorf("Send = %v, want it refused", err)
	}
	call.hangUp()
}
