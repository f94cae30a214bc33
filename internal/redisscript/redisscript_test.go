package redisscript_test

import (
	"fmt"
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

// run runs the script three times, with one Runner, once of them on a connection.
func run(t *testing.T, rdb *redis.Client) {
	t.Helper()
	runner := redisscript.NewRunner(rdb, []string{"other"}).With("n")
	conn := rdb.Conn()
	defer func() { _ = conn.Close() }()
	for i, r := range []*redisscript.Runner{runner, runner.On(conn), runner} {
		if got, err := r.Run(t.Context(), increment).Int(); err != nil || got != i+1 {
			t.Fatalf("Run = %d, %v, want %d", got, err, i+1)
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

// TestArguments: the keys and first arguments of the Runner, then those of the call.
func TestArguments(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	script := redisscript.New(`local all = {KEYS[1], KEYS[2]} `, `for _, a in ipairs(ARGV) do all[#all+1] = a end return all`)
	runner := redisscript.NewRunner(client(t, server.URL()), []string{"k1", "k2"}, "first", 2)
	for _, args := range [][]any{nil, {"own", 3}} {
		want := "[k1 k2 first 2"
		if args != nil {
			want += " own 3"
		}
		got, err := runner.Run(t.Context(), script, args...).StringSlice()
		if err != nil || fmt.Sprint(got) != want+"]" {
			t.Errorf("Run = %v, %v, want %s]", got, err, want)
		}
	}
}
