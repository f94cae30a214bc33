package redisscript_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/redisscript"
	"snowgate/tokens/redisstore/embedded"
	"snowgate/tokens/tokenstest/redistest"
)

var increment = redisscript.New(`return redis.call('INCR', KEYS[1])`)

func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// run runs the script three times, with one dialect.
func run(t *testing.T, rdb *redis.Client) {
	t.Helper()
	var dialect redisscript.Dialect
	for want := 1; want <= 3; want++ {
		got, err := dialect.Run(t.Context(), rdb, increment, []string{"n"}).Int()
		if err != nil || got != want {
			t.Fatalf("Run = %d, %v, want %d", got, err, want)
		}
	}
}

// TestFull: the flag makes a script run that Redis would refuse to write for.
func TestFull(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "1")
	rdb := client(t, server.URL())
	if err := rdb.Set(t.Context(), "x", "y", 0).Err(); err == nil {
		t.Fatal("the server is not full")
	}
	run(t, rdb)
}

// TestWithoutFlags: a Redis that does not know them gets the plain script.
func TestWithoutFlags(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	run(t, client(t, server.URL()))
}
