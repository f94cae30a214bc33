package redisstore

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/nonblock"
	"snowgate/tokens/tokenstest/redistest"
)

// TestConnectionsAreReadAndWrittenBehindTheScheduler: this is so for TCP connections; others are
// not changed.
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

// TestThePoolSeesWhatHasEnded: the pool does not hand out idle connections that Redis has closed,
// and no command fails because of them.
func TestThePoolSeesWhatHasEnded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(dialing{})
	const idle = 3
	var held [idle]*redis.Conn
	for i := range held {
		held[i] = client.Conn()
		if err := held[i].Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range held {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * idle {
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if stale := client.PoolStats().StaleConns; stale != 0 {
		t.Errorf("%d connections were given up that are in order", stale)
	}
	other := redis.NewClient(options)
	t.Cleanup(func() { _ = other.Close() })
	if err := other.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("with connections that have ended: %v", err)
	}
	if stale := client.PoolStats().StaleConns; stale != idle {
		t.Errorf("%d connections were given up, want %d", stale, idle)
	}
}
