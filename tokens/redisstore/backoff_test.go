package redisstore_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/tokens/redisstore"
)

// refusing is a server that refuses every client, with an error or by closing the connection, and
// counts connections.
func refusing(t *testing.T, word string) (url string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); word != "" && lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "*") { // one for each command
						_, _ = io.WriteString(conn, word+"\r\n")
					}
				}
			}()
		}
	}()
	return "redis://:secret@" + listener.Addr().String(), connections
}

// TestOneAsksWhileRedisIsAway: while Redis is down, only the breaker probes it, at growing
// intervals. Before, the monitor and the feed did so too, ten times a second each.
func TestOneAsksWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	const watched = 3 * time.Second
	for name, test := range map[string]struct {
		word string
		most int64
	}{
		"hangs up":       {"", 45}, // about 10 probes and 6 subscriptions, each with a retry; before, 200 to 250
		"wrong password": {"-WRONGPASS invalid username-password pair", 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, connections := refusing(t, test.word)
			store := open(t, redisstore.Options{URL: url})
			ctx, stop := context.WithTimeout(t.Context(), watched)
			defer stop()
			monitor := store.Monitor(redisstore.MonitorConfig{})
			feed := store.Feed(redisstore.FeedConfig{})
			done := make(chan struct{}, 2)
			go func() { monitor.Run(ctx); done <- struct{}{} }()
			go func() { feed.Run(ctx); done <- struct{}{} }()
			<-done
			<-done
			if got := connections.Load(); got > test.most || got == 0 {
				t.Errorf("%d connections in %v, want at most %d", got, watched, test.most)
			} else {
				t.Logf("%d connections in %v", got, watched)
			}
		})
	}
}
