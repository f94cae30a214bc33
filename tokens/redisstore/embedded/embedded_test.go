package embedded

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func started(t testing.TB, limit int64) (*Server, *redis.Client) {
	t.Helper()
	server, err := start(limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return server, client
}

func TestNobodyElseGetsIn(t *testing.T) {
	server, _ := started(t, 10)
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if u.Hostname() != "127.0.0.1" {
		t.Errorf("it listens on %s, want 127.0.0.1", u.Hostname())
	}
	if password, _ := u.User.Password(); len(password) < 26 {
		t.Errorf("the password has %d characters", len(password))
	}
	for _, password := range []string{"", "guess"} {
		client := redis.NewClient(&redis.Options{Addr: u.Host, Password: password})
		if err := client.Get(t.Context(), "x").Err(); err == nil || err == redis.Nil {
			t.Errorf("GET with the password %q = %v, want a refusal", password, err)
		}
		_ = client.Close()
	}
}

func TestKeysExpireByThemselves(t *testing.T) {
	server, client := started(t, 10)
	if err := client.Set(t.Context(), "short", "x", 300*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Set(t.Context(), "long", "x", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for len(server.redis.DB(0).Keys()) != 1 { // gone without being asked for
		select {
		case <-ctx.Done():
			t.Fatal("the key did not expire")
		case <-ticker.C:
		}
	}
	if err := client.Get(t.Context(), "long").Err(); err != nil {
		t.Errorf("GET of the other key = %v", err)
	}
}

func TestFullServer(t *testing.T) {
	const limit = 50
	server, client := started(t, limit)
	ctx := t.Context()
	stored := 0
	for i := range 3 * limit {
		err := client.SetNX(ctx, "k"+strconv.Itoa(i), "x", time.Hour).Err()
		if err == nil {
			stored++
		} else if !strings.HasPrefix(err.Error(), "OOM ") {
			t.Fatalf("SET = %v, want OOM", err)
		}
	}
	if got := len(server.redis.DB(0).Keys()); got != limit || stored != limit {
		t.Errorf("%d keys, %d stored, want %d", got, stored, limit)
	}
	// The shared data still works, and so do reads and deletions.
	if err := client.HSetNX(ctx, "{sg}:tagkey", "0", "x").Err(); err != nil {
		t.Errorf("HSETNX = %v", err)
	}
	if err := client.Get(ctx, "k0").Err(); err != nil {
		t.Errorf("GET = %v", err)
	}
	for i := range 10 {
		if err := client.Del(ctx, "k"+strconv.Itoa(i)).Err(); err != nil {
			t.Errorf("DEL = %v", err)
		}
	}
	deadline, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for client.SetNX(ctx, "again", "x", time.Hour).Err() != nil {
		select {
		case <-deadline.Done():
			t.Fatal("there is no room after deletions")
		case <-ticker.C:
		}
	}
}

func TestCloseTwice(t *testing.T) {
	server, client := started(t, 10)
	server.Close()
	server.Close()
	if err := client.Get(t.Context(), "x").Err(); err == nil || err == redis.Nil {
		t.Errorf("GET after Close = %v, want an error", err)
	}
}

// BenchmarkMoveClock is what expiry costs each time the clock is moved, which
// is why the clock paces itself.
func BenchmarkMoveClock(b *testing.B) {
	for _, n := range []int{100, 10_000, MaxKeys} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			server, _ := started(b, MaxKeys)
			for i := range n {
				key := "sg:t:" + strconv.Itoa(i)
				if err := server.redis.Set(key, strings.Repeat("x", 100)); err != nil {
					b.Fatal(err)
				}
				server.redis.SetTTL(key, time.Hour)
			}
			for b.Loop() {
				server.redis.FastForward(time.Microsecond)
				server.redis.DB(0).Keys()
			}
		})
	}
}
