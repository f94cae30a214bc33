package redisstore

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/tokens/tokenstest/redistest"
)

// TestBeats: a working subscription continues with every kind of beat.
func TestBeats(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, test := range map[string]struct {
		cluster bool
		query   string
	}{
		"echo":        {false, "?protocol=3"},
		"PING":        {true, "?protocol=3"},
		"RESP2, PING": {true, "?protocol=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := Open(Options{URL: server.URL() + test.query, Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			s := newSubscription(store.Feed(FeedConfig{}))
			s.cluster = test.cluster
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			ended := make(chan error, 1)
			wg.Go(func() { ended <- s.run(ctx) })
			defer wg.Wait()
			defer cancel()
			server.Eventually("answer beats", func() bool {
				select {
				case err := <-ended:
					t.Fatalf("the subscription ended: %v", err)
				default:
				}
				return s.answered.Load() == 3
			})
		})
	}
}

// TestAstray: an invalid reply ends the subscription.
func TestAstray(t *testing.T) {
	store, err := Open(Options{URL: "unix:///nonexistent/redis.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := newSubscription(store.Feed(FeedConfig{}))
	first := &redis.Subscription{Kind: "subscribe", Channel: "{sg}:push", Count: 1}
	second := &redis.Subscription{Kind: "subscribe", Channel: s.channel, Count: 2}
	for _, step := range []struct {
		name    string
		message any
		good    bool
	}{
		{"one channel", first, true},
		{"both channels", second, true},
		{"a message", &redis.Message{Channel: "{sg}:push", Payload: "rules 1 2"}, true},
		{"a garbled message", &redis.Message{Channel: "{sg}:push", Payload: "message"}, true},
		{"a message from elsewhere", &redis.Message{Channel: "other", Payload: "rules 1 2"}, true},
		{"a beat", &redis.Message{Channel: s.channel, Payload: "2"}, true},
		{"a pong", &redis.Pong{Payload: "3"}, true},
		{"a beat that is none", &redis.Message{Channel: s.channel, Payload: "x"}, false},
		{"the middle of a message", &redis.Pong{Payload: "message"}, false},
		{"a subscription by go-redis itself", first, false},
		{"nothing known", "OK", false},
	} {
		if err := s.take(step.message); (err == nil) != step.good {
			t.Errorf("%s: take = %v, want it good: %t", step.name, err, step.good)
		}
	}
	if s.answered.Load() != 3 || !s.live {
		t.Errorf("answered %d, live %t, want the third beat and a live subscription", s.answered.Load(), s.live)
	}
}

// TestGarbledReplies: a server that is not Redis replies to a subscription with data that go-redis
// does not expect.
func TestGarbledReplies(t *testing.T) {
	for _, reply := range []string{
		"*1\r\n$4\r\npong\r\n", "*0\r\n", "*1\r\n:5\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n",
		"*3\r\n$7\r\nmessage\r\n:1\r\n:1\r\n", "+hello\r\n", "-ERR no\r\n", "garbage\r\n", "$-1\r\n", "",
	} {
		store, err := Open(Options{URL: "redis://" + startImpostor(t, reply)})
		if err != nil {
			t.Fatal(err)
		}
		s := newSubscription(store.Feed(FeedConfig{OnGap: func() { t.Errorf("%q was taken for a subscription", reply) }}))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := s.run(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%q: run = %v, want an error at once", reply, err)
		}
		cancel()
		_ = store.Close()
	}
}

// startImpostor starts a server that says OK to everything but a subscription,
// and returns its address.
func startImpostor(t *testing.T, reply string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go impersonate(conn, reply)
		}
	}()
	return listener.Addr().String()
}

func impersonate(conn net.Conn, reply string) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch strings.ToLower(lines.Text()) {
		case "hello":
			_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
		case "client", "ping":
			_, _ = io.WriteString(conn, "+OK\r\n")
		case "subscribe":
			_, _ = io.WriteString(conn, reply)
			if reply == "" {
				return
			}
		}
	}
}
