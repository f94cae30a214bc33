package redisstore

import (
	"context"
	"net"
	"testing"

	"snowgate/nonblock"
)

// TestConnectionsAreReadAndWrittenBehindTheScheduler: those of TCP, and others are what they
// were.
func TestConnectionsAreReadAndWrittenBehindTheScheduler(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dial := dialing{}.DialHook(new(net.Dialer).DialContext)
	conn, err := dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, ok := conn.(*nonblock.Conn); !ok {
		t.Errorf("a connection is a %T, want a *nonblock.Conn", conn)
	}
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	pipe := dialing{}.DialHook(func(context.Context, string, string) (net.Conn, error) { return one, nil })
	if conn, err := pipe(t.Context(), "", ""); err != nil || conn != one {
		t.Errorf("what is no socket is %v, %v, want it as it was", conn, err)
	}
}
