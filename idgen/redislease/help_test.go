package redislease

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/tokens/tokenstest/redistest"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func scheme(t testing.TB, layout string) idgen.Scheme {
	t.Helper()
	l, err := idgen.ParseLayout(layout)
	if err != nil {
		t.Fatal(err)
	}
	s, err := idgen.NewScheme(l, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	layoutA    = "time:41,worker:10,sequence:12"
	layoutB    = "time:41,datacenter:5,worker:5,sequence:12"
	layoutTiny = "time:41,worker:2,sequence:12" // four numbers
)

// quick returns options for tests that wait in real time.
func quick(address string) Options {
	return Options{Address: address, Lead: 300 * time.Millisecond, Skew: 100 * time.Millisecond}
}

// roomy returns options for tests in which a holder must extend its lease in time on a busy
// machine.
func roomy(address string) Options {
	return Options{Address: address, Lead: time.Second, Skew: 100 * time.Millisecond}
}

// store is one kind of Redis that the tests of the scripts run on.
type store struct {
	rdb  *redis.Client
	mini *miniredis.Miniredis // nil: a real one
	real *redistest.Server
}

// onBoth runs a test on a real Redis and on miniredis.
func onBoth(t *testing.T, test func(t *testing.T, s store)) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) { test(t, realStore(t)) })
	t.Run("miniredis", func(t *testing.T) { test(t, miniStore(t)) })
}

func realStore(t testing.TB, arguments ...string) store {
	server := redistest.Start(t, arguments...)
	return store{rdb: connect(t, server.URL()), real: server}
}

func miniStore(t testing.TB) store {
	m := miniredis.RunT(t)
	return store{rdb: connect(t, "redis://"+m.Addr()), mini: m}
}

func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// now returns the time of a perfect clock.
func now(sc idgen.Scheme) int64 { return sc.Since(time.Now()) }

func source(t testing.TB, rdb redis.Scripter, c Choice, o Options) *Source {
	t.Helper()
	s, err := New(rdb, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// settle creates a registry and waits for the end of its short quarantine.
func settle(t testing.TB, s store, sc idgen.Scheme) {
	t.Helper()
	settleOn(t, s.rdb, sc, "sg")
}

func settleOn(t testing.TB, rdb redis.UniversalClient, sc idgen.Scheme, prefix string) {
	t.Helper()
	o := Options{Prefix: prefix, Address: "settle", Lead: 2 * time.Millisecond, Skew: time.Millisecond}
	l := acquire(t, source(t, rdb, Any(), o), sc)
	if err := l.Release(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	tag := "{" + prefix + "}:"
	if err := rdb.Del(t.Context(), tag+"wl", tag+"wa", tag+"wr").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.HDel(t.Context(), tag+"w", "0", "next:0").Err(); err != nil {
		t.Fatal(err)
	}
}

func acquire(t testing.TB, s *Source, sc idgen.Scheme) idgen.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), sc, now(sc))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func extend(t testing.TB, l idgen.Lease, sc idgen.Scheme) int64 {
	t.Helper()
	c, err := l.Extend(t.Context(), now(sc))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantErr(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("error is %v, want %v", err, w)
		}
	}
}

// eventually polls until a state of another process is reached.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("timed out: %s", what)
		case <-tick.C:
		}
	}
}

// events collects the events of a source.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) add(v Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, v)
}

func (e *events) find(k EventKind) (Event, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range e.all {
		if v.Kind == k {
			return v, true
		}
	}
	return Event{}, false
}

// wire is a hook that counts round trips, and can lose or replace replies of Redis.
type wire struct {
	trips atomic.Int64
	lose  atomic.Int64 // how many of the next replies get lost
	fake  func(ctx context.Context, cmd redis.Cmder) error
}

var errLost = errors.New("the reply got lost")

func (w *wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := strings.ToLower(cmd.Name()); name != "evalsha" && name != "eval" {
			return next(ctx, cmd)
		}
		w.trips.Add(1)
		if w.fake != nil {
			return w.fake(ctx, cmd)
		}
		err := next(ctx, cmd)
		if err == nil && w.lose.Load() > 0 {
			w.lose.Add(-1)
			cmd.SetErr(errLost)
			return errLost
		}
		return err
	}
}

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func wiretap(rdb *redis.Client) *wire {
	w := new(wire)
	rdb.AddHook(w)
	return w
}
