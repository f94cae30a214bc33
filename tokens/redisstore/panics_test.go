package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
	"snowgate/tokens/redisstore/embedded"
)

// countPanics returns a function that checks that want panics were counted in part, and that the
// stack of their place, through frame, was told once.
func countPanics(t *testing.T, part panics.Part) (wantPanics func(want uint64, told int, frame string)) {
	t.Helper()
	panics.Forget()
	before := panics.Count(part)
	var mu sync.Mutex
	var stacks []string
	panics.Notify(func(p *panics.Panic) {
		mu.Lock()
		defer mu.Unlock()
		if p.Part == part {
			stacks = append(stacks, p.Stack)
		}
	})
	return func(want uint64, told int, frame string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if got := panics.Count(part) - before; got != want {
			t.Errorf("%d panics counted in %s, want %d", got, part, want)
		}
		if len(stacks) != told || !strings.Contains(stacks[0], frame) {
			t.Errorf("the stacks that were told: %q, want %d through %s", stacks, told, frame)
		}
	}
}

// panicking panics in a round trip with more than one command, once the commands before have a
// reply.
type panicking struct {
	slowServer
	broken bool
}

func (p *panicking) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := p.answer(ctx, cmds)
		if p.broken {
			panic("a fault of the test")
		}
		return err
	}
}

// TestPanicOfABatch: all commands of the round trip get the panic as their error, and none a reply.
// The lane is free again.
func TestPanicOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wantPanics := countPanics(t, panics.Redis)
		s := &panicking{slowServer: slowServer{roundTrip: time.Millisecond}, broken: true}
		b := s.batcher(t, s)
		var asking sync.WaitGroup
		asking.Go(func() { _, _ = b.get(t.Context(), "the first goes alone") })
		synctest.Wait()
		for i := range 16 {
			asking.Go(func() {
				var p *panics.Panic
				if value, err := b.get(t.Context(), fmt.Sprint("key-", i)); value != "" || !errors.As(err, &p) {
					t.Errorf("get() = %q, %v, want the panic", value, err)
				}
			})
			asking.Go(func() {
				var p *panics.Panic
				if err := b.process(t.Context(), redis.NewStringCmd(t.Context(), "get", fmt.Sprint("command-", i))); !errors.As(err, &p) {
					t.Errorf("process() = %v, want the panic", err)
				}
			})
		}
		begin := time.Now()
		asking.Wait()
		if took := time.Since(begin); took > 10*time.Millisecond {
			t.Errorf("those who waited were told after %s", took)
		}
		wantPanics(1, 1, "(*batcher).send")
		b.wantIdle(t)
		s.broken = false
		asking.Go(func() { _, _ = b.get(t.Context(), "alone") })
		synctest.Wait()
		for i := range 16 {
			asking.Go(func() {
				key := fmt.Sprint("later-", i)
				if value, err := b.get(t.Context(), key); err != nil || value != "value of "+key {
					t.Errorf("get(%s) = %q, %v", key, value, err)
				}
			})
		}
		asking.Wait()
		b.wantIdle(t)
	})
}

// TestPanicOfALoneCommand: the caller gets the panic, and the lane is free again.
func TestPanicOfALoneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowServer{}
		b := s.batcher(t)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = b.process(t.Context(), redis.NewStringCmd(t.Context(), "get", 7)) // the server of the test wants text
		}()
		b.wantIdle(t)
		if value, err := b.get(t.Context(), "key"); err != nil || value != "value of key" {
			t.Errorf("get() = %q, %v", value, err)
		}
	})
}

// garbler is a Redis that replies to a GET or an MGET with the keys. For keys of "bad", it
// announces a text with a length at which go-redis panics, and sends the rest of the reply with the
// reply to the next command.
type garbler struct {
	mu    sync.Mutex
	conns int
}

func (g *garbler) serve(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			g.conns++
			g.mu.Unlock()
			serving.Go(func() { defer conn.Close(); talk(conn) })
		}
	})
	return listener.Addr().String()
}

func talk(conn net.Conn) {
	kept := ""
	for r := bufio.NewReader(conn); ; {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		reply := kept
		kept = ""
		switch strings.ToLower(words[0]) {
		case "hello":
			reply += "-ERR unknown command\r\n"
		case "get":
			reply += bulk(words[1])
		case "mget":
			reply += fmt.Sprintf("*%d\r\n", len(words)-1)
			for _, key := range words[1:] {
				reply += bulk(key)
			}
		default:
			reply += "+OK\r\n"
		}
		if at := strings.Index(reply, bulk("bad")); at >= 0 {
			reply, kept = reply[:at]+"$9223372036854775807\r\n", reply[at:]
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

func bulk(key string) string {
	value := "value of " + key
	return fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
}

func readCommand(r *bufio.Reader) (words []string, err error) {
	var n int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		var size int
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, nil
}

// TestPanicOverAReply: go-redis panics on a reply of the server. Callers that wait for that reply
// get an error, and none gets the rest of the reply. Before, a panic in a goroutine of go-redis, as
// with clusters, ended the process.
func TestPanicOverAReply(t *testing.T) {
	wantPanics := countPanics(t, panics.Redis)
	server := new(garbler)
	store, err := Open(Options{URL: "redis://" + server.serve(t) + "?protocol=2&pool_size=1", Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var p *panics.Panic
	ask := func(key string) {
		t.Helper()
		if value, err := store.get(t.Context(), key); err != nil || value != "value of "+key {
			t.Errorf("get(%s) = %q, %v", key, value, err)
		}
	}
	if value, err := store.get(t.Context(), "bad"); value != "" || !errors.As(err, &p) {
		t.Errorf("get() = %q, %v, want the panic", value, err)
	}
	ask("after one")
	ended := make(chan error)
	go func() { ended <- store.client.Get(t.Context(), "bad").Err() }() // as go-redis itself does
	if err := <-ended; !errors.As(err, &p) {
		t.Errorf("on another goroutine: %v, want the panic", err)
	}
	ask("after another one")
	batch := make([]*waiter, 0, 8)
	for _, key := range []string{"a", "b", "bad", "c"} {
		batch = append(batch, store.batch.newWaiter(question{key: key}),
			store.batch.newWaiter(question{cmd: redis.NewStringCmd(t.Context(), "get", key)}))
	}
	store.batch.send(batch)
	for _, w := range batch {
		if deadline.Wait(t.Context(), w.done) != nil || w.value != "" || !errors.As(w.err, &p) {
			t.Errorf("one of a batch has %q, %v, want the panic", w.value, w.err)
		}
	}
	ask("after a batch")
	if err := store.batch.process(t.Context(), redis.NewStringCmd(t.Context(), "get", "x")); err != nil {
		t.Errorf("after a batch: %v", err)
	}
	wantPanics(3, 2, "readStringReply") // go-redis panics again, in two places
}

// mute is a client that panics instead of publishing.
type mute struct{ redis.UniversalClient }

func (mute) Publish(context.Context, string, any) *redis.IntCmd { panic("a fault of the test") }

// TestPanicOfABeat: the goroutine that checks a subscription panics. The subscription ends, and the
// feed replaces it.
func TestPanicOfABeat(t *testing.T) {
	wantPanics := countPanics(t, panics.Feed)
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	store, err := Open(Options{URL: server.URL(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.client = mute{store.client}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var p *panics.Panic
	if err := newSubscription(store.Feed(FeedConfig{}.withDefaults())).run(ctx); !errors.As(err, &p) {
		t.Errorf("run() = %v, want the panic", err)
	}
	wantPanics(1, 1, "(*subscription).beat")
}
