package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// A decision ends within budget when Redis gives no response: the timeout and
// what the code adds. A machine that is busy with other tests adds more, so the
// budget is for the best of some tries and stall is for every one.
const (
	budget = redisstore.DefaultTimeout + 50*time.Millisecond
	stall  = 2 * time.Second
)

// operations lists the operations that need a reply of Redis.
func operations(store *redisstore.Store) map[string]func(context.Context) error {
	r := tokenstest.SampleRecord(9)
	return map[string]func(context.Context) error{
		"Load":     func(ctx context.Context) error { _, err := store.Load(ctx, r.Token.ID); return err },
		"Save":     func(ctx context.Context) error { return store.Save(ctx, r, time.Minute) },
		"Delete":   func(ctx context.Context) error { return store.Delete(ctx, 4711) },
		"LoadKeys": func(ctx context.Context) error { _, err := store.LoadKeys(ctx); return err },
		"Claim":    func(ctx context.Context) error { return store.Claim(ctx, ours) },
	}
}

// allUnavailable checks that every operation fails in time with one of the kinds, and that the
// errors contain nothing about tokens or passwords.
func allUnavailable(t *testing.T, store *redisstore.Store, password string, kinds ...string) {
	t.Helper()
	for name, op := range operations(store) {
		begin := time.Now()
		err := op(t.Context())
		if took := time.Since(begin); took > stall {
			t.Errorf("%s took %s", name, took)
		}
		wantUnavailable(t, name, err, kinds...)
		if err != nil && password != "" && strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error repeats the password: %v", name, err)
		}
	}
}

// allWork checks that every operation succeeds, with a record to be found.
func allWork(t *testing.T, store *redisstore.Store) {
	t.Helper()
	if err := store.Save(t.Context(), tokenstest.SampleRecord(9), time.Minute); err != nil {
		t.Errorf("Save = %v, want nil", err)
	}
	for name, op := range operations(store) {
		if err := op(t.Context()); err != nil {
			t.Errorf("%s = %v, want nil", name, err)
		}
	}
}

func TestFrozen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	allWork(t, store)
	server.Freeze()
	allUnavailable(t, store, server.Password(), redisstore.KindTimeout)
	// By now the breaker is open: refusals take no time.
	begin := time.Now()
	for range 100 {
		wantUnavailable(t, "Load", load(store, 1), redisstore.KindTimeout)
	}
	if took := time.Since(begin); took > 100*5*time.Millisecond {
		t.Errorf("100 decisions with the breaker open took %s", took)
	}
	server.Resume()
	wantRecovery(t, server, store)
	allWork(t, store)
}

func TestFrozenBeforeTheFirstConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Freeze()
	store := open(t, redisstore.Options{URL: server.URL()})
	allUnavailable(t, store, server.Password(), redisstore.KindTimeout)
}

// TestBudget: with connections that were open before and with none, a server
// that is frozen costs each operation its timeout and no more.
func TestBudget(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name := range operations(nil) {
		best := stall
		for try := 0; try < 6 && best > budget; try++ {
			store := open(t, redisstore.Options{URL: server.URL()})
			if try%2 == 0 {
				allWork(t, store)
			}
			server.Freeze()
			begin := time.Now()
			err := operations(store)[name](t.Context())
			best = min(best, time.Since(begin))
			server.Resume()
			wantUnavailable(t, name, err, redisstore.KindTimeout)
		}
		t.Logf("%s: %s", name, best)
		if best > budget {
			t.Errorf("%s took %s at best, want at most %s", name, best, budget)
		}
	}
}

func TestKilledAndRestarted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	testRecovery(t, server, store, func() {})
}

// testRecovery uses the store from many goroutines while its server is killed,
// away for a while, and back. ready returns when the server is as good as new.
func testRecovery(t *testing.T, server *redistest.Server, store *redisstore.Store, ready func()) {
	t.Helper()
	allWork(t, store)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var calls atomic.Int64
	for range 64 {
		wg.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for range pace.C {
				if ctx.Err() != nil {
					return
				}
				calls.Add(1)
				_ = store.Delete(context.Background(), 4711)
			}
		})
	}
	defer wg.Wait()
	defer stop()
	for range 2 {
		server.Kill()
		waitFor(t, 3*time.Second) // longer than any back-off of the pool
		allUnavailable(t, store, server.Password(), redisstore.KindRefused, redisstore.KindCluster)
		server.Restart()
		ready()
		wantRecovery(t, server, store)
	}
	t.Logf("%d calls by 64 goroutines", calls.Load())
}

// waitFor lets real time pass for the processes that the test is about.
func waitFor(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// wantRecovery measures how long the store takes to notice that its server
// answers again.
func wantRecovery(t *testing.T, server *redistest.Server, store *redisstore.Store) {
	t.Helper()
	begin := time.Now()
	server.Eventually("serve the store again", func() bool { return store.Delete(t.Context(), 4711) == nil })
	took := time.Since(begin)
	t.Logf("the store worked %s after its server", took)
	if took > time.Second {
		t.Errorf("the store worked %s after its server, want at most 1 s", took)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	for _, url := range []string{"redis://:hunter2@" + address, "unix://:hunter2@/nonexistent/redis.sock",
		"redis+cluster://:hunter2@" + address, "redis+sentinel://" + address + "?master_name=m&password=hunter2"} {
		store := open(t, redisstore.Options{URL: url})
		allUnavailable(t, store, "hunter2", redisstore.KindRefused)
	}
}

// TestMuteServer: a server accepts connections and never sends a byte.
func TestMuteServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	store := open(t, redisstore.Options{URL: "redis://:hunter2@" + listener.Addr().String()})
	allUnavailable(t, store, "hunter2", redisstore.KindTimeout)
}

func TestNotRedis(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			conn.Close()
		}
	}()
	store := open(t, redisstore.Options{URL: "redis://" + listener.Addr().String()})
	allUnavailable(t, store, "")
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, url := range []string{
		"redis://:hunter2@" + server.Addr(),
		"redis://default:hunter2@" + server.Addr(),
		"redis://" + server.Addr(),
	} {
		store := open(t, redisstore.Options{URL: url})
		allUnavailable(t, store, "hunter2", redisstore.KindAuth)
	}
}

func TestWrongPasswordIsNoStorm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: "redis://:hunter2@" + server.Addr()})
	connections := func() string { return fmt.Sprint(int(server.Info("stats", "total_connections_received"))) }
	wantUnavailable(t, "Load", load(store, 1), redisstore.KindAuth)
	wantUnavailable(t, "Load", load(store, 1), redisstore.KindAuth)
	before := connections()
	for range 1000 {
		wantUnavailable(t, "Load", load(store, 1), redisstore.KindAuth)
	}
	if after := connections(); len(after) > len(before)+1 {
		t.Errorf("1000 decisions made the connections go from %s to %s", before, after)
	}
	server.SetPassword("hunter2")
	wantRecovery(t, server, store)
}

func TestPasswordWhereNoneIsSet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("CONFIG", "SET", "requirepass", "")
	store := open(t, redisstore.Options{URL: server.URL()})
	// Redis 7 lets anybody in as the default user, whatever the password is.
	for name, op := range operations(store) {
		if err := op(t.Context()); err != nil && name != "Load" {
			wantUnavailable(t, name, err, redisstore.KindAuth)
		}
	}
}

func TestMissingRight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+get", "+getex", "+client", "+hello")
	store := open(t, redisstore.Options{URL: "redis://reader:hunter2@" + server.Addr()})
	wantUnavailable(t, "Save", store.Save(t.Context(), tokenstest.SampleRecord(1), time.Minute), redisstore.KindAuth)
	wantUnavailable(t, "Delete", store.Delete(t.Context(), 1), redisstore.KindAuth)
	server.Do("ACL", "SETUSER", "reader", "+evalsha", "+eval", "+time")
	wantUnavailable(t, "Delete", store.Delete(t.Context(), 1), redisstore.KindAuth)
	_, err := store.LoadRules(t.Context())
	wantUnavailable(t, "LoadRules", err, redisstore.KindAuth)
}

// TestReplica: a replica may lack records of its primary, so its reply that a key does not exist
// proves nothing.
func TestReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.Start(t, "--masterauth", primary.Password())
	store := open(t, redisstore.Options{URL: replica.URL()})
	allWork(t, store) // it is a primary as yet, and connections are open
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica.Do("REPLICAOF", host, port)
	replica.Eventually("be an empty copy", func() bool {
		info := replica.Do("INFO", "replication")
		return strings.Contains(info, "master_link_status:up") && replica.Do("DBSIZE") == "0"
	})
	wantUnavailable(t, "Load of a token the replica has not got", load(store, 9), redisstore.KindReadOnly)
	wantUnavailable(t, "Load of its former token", load(store, tokenstest.SampleRecord(9).Token.ID), redisstore.KindReadOnly)
	wantUnavailable(t, "Save", store.Save(t.Context(), tokenstest.SampleRecord(1), time.Minute), redisstore.KindReadOnly)
	wantUnavailable(t, "Delete", store.Delete(t.Context(), 1), redisstore.KindReadOnly)
	replica.Do("REPLICAOF", "NO", "ONE")
	wantRecovery(t, replica, store)
	allWork(t, store)
}

func TestFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory", "0")
	store := open(t, redisstore.Options{URL: server.URL()})
	r := tokenstest.SampleRecord(1)
	if err := store.Save(t.Context(), r, time.Minute); err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1mb")
	wantUnavailable(t, "Save", store.Save(t.Context(), tokenstest.SampleRecord(2), time.Minute), redisstore.KindOOM)
	if err := store.Claim(t.Context(), ours); err != nil {
		t.Errorf("Claim at a full server = %v, want nil", err)
	}
	// Validation and revocation go on, and so does the verdict "unknown".
	if err := load(store, r.Token.ID); err != nil {
		t.Errorf("Load from a full server = %v, want the token", err)
	}
	if err := store.Delete(t.Context(), r.Token.ID); err != nil {
		t.Errorf("Delete from a full server = %v, want nil", err)
	}
	wantUnknown(t, store, r.Token.ID)
}

func TestLoading(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--save", "3600 1", "--enable-debug-command", "local")
	store := open(t, redisstore.Options{URL: server.URL()})
	allWork(t, store)
	server.Do("DEBUG", "POPULATE", "5000")
	server.Do("SAVE")
	server.Do("CONFIG", "SET", "save", "")
	server.Kill()
	server.AddArguments("--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024")
	server.LaunchOnly()
	server.Eventually("be loading", func() bool {
		_, err := server.TryDo("GET", "x")
		return err != nil && strings.Contains(err.Error(), "LOADING")
	})
	// The breaker may still be open from before.
	store = open(t, redisstore.Options{URL: server.URL()})
	allUnavailable(t, store, server.Password(), redisstore.KindLoading)
	server.WaitReady()
	wantRecovery(t, server, store)
	allWork(t, store)
}

// TestOneCallersDeadlineIsItsOwn: short deadlines of some callers do not affect others.
func TestOneCallersDeadlineIsItsOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	allWork(t, store)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		_, err := store.Load(canceled, 1)
		wantUnavailable(t, "Load", err, redisstore.KindCanceled)
	}
	allWork(t, store)
}

// TestShorterDeadlines: the caller's deadline counts if it comes first.
func TestShorterDeadlines(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL(), Timeout: 20 * time.Second})
	allWork(t, store)
	server.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := store.Load(ctx, 1)
	wantUnavailable(t, "Load", err, redisstore.KindTimeout)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Load took %s with a deadline of 0.1 s", took)
	}
}

// TestCloseEndsTheProbes: with the race detector, and no goroutine left over.
func TestCloseEndsTheProbes(t *testing.T) {
	t.Parallel()
	store := open(t, redisstore.Options{URL: "unix:///nonexistent/redis.sock"})
	for range 5 {
		wantUnavailable(t, "Load", load(store, 1), redisstore.KindRefused)
	}
	if err := store.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	wantUnavailable(t, "Load after Close", load(store, 1))
}
