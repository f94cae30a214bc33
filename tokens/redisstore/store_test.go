package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/redisstore/embedded"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// commands is an observer that records commands.
type commands struct {
	mu  sync.Mutex
	got []string
}

func (c *commands) observe(command string, _ time.Duration, kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, command+" "+kind)
}

// take returns what was observed since the last call.
func (c *commands) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := strings.Join(c.got, ", ")
	c.got = nil
	return got
}

func open(t testing.TB, opts redisstore.Options) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(opts)
	if err != nil {
		t.Fatalf("Open = %v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// inRealTime returns a function that returns when store's server says that d
// has passed.
func inRealTime(t *testing.T, store *redisstore.Store) func(time.Duration) {
	return func(d time.Duration) {
		t.Helper()
		begin := serverTime(t, store)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for serverTime(t, store).Sub(begin) < d {
			<-ticker.C
		}
	}
}

func serverTime(t *testing.T, store *redisstore.Store) time.Time {
	t.Helper()
	now, err := store.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatalf("TIME = %v", err)
	}
	return now
}

func TestContract(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"embedded": startEmbedded,
		"real":     func(t *testing.T) string { return redistest.Start(t).URL() },
		"socket":   func(t *testing.T) string { return redistest.Start(t).SocketURL() },
		"cluster":  startCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := url(t)
			n := 0
			fresh := func(t *testing.T) *redisstore.Store { // an empty store is another prefix
				n++
				return open(t, redisstore.Options{URL: address, Prefix: "test" + strconv.Itoa(n), Timeout: 2 * time.Second})
			}
			tokenstest.TestStore(t, func(t *testing.T) (tokens.Store, func(time.Duration)) {
				store := fresh(t)
				return store, inRealTime(t, store)
			})
			tokenstest.TestKeyStore(t, func(t *testing.T) tokens.KeyStore { return fresh(t) })
			tokenstest.TestRuleStore(t, func(t *testing.T) (tokens.RuleStore, func() time.Time) {
				store := fresh(t)
				return store, func() time.Time { return serverTime(t, store) }
			})
			testEpoch(t, fresh(t))
		})
	}
}

func startEmbedded(t *testing.T) string {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server.URL()
}

// ours is the installation that tests claim.
var ours = redisstore.Installation{Epoch: "2026-01-01T00:00:00Z", Layout: "time:41,worker:10,sequence:12", TokenKey: redisstore.KeysInRedis}

func testEpoch(t *testing.T, store *redisstore.Store) {
	for range 2 {
		if err := store.Claim(t.Context(), ours); err != nil {
			t.Errorf("Claim = %v, want nil", err)
		}
	}
	epoch, layout, key := ours, ours, ours
	epoch.Epoch, layout.Layout, key.TokenKey = "2025-01-01T00:00:00Z", "time:41,worker:4,sequence:18", "0123456789ab"
	for _, theirs := range []redisstore.Installation{epoch, layout, key} {
		err := store.Claim(t.Context(), theirs)
		mismatch, ok := errors.AsType[*redisstore.MismatchError](err)
		if !ok || len(mismatch.Differences) != 1 {
			t.Errorf("Claim of %v = %v, want a MismatchError of one difference", theirs, err)
			continue
		}
		d := mismatch.Differences[0]
		if errors.Is(err, tokens.ErrUnavailable) || !strings.Contains(err.Error(), d.Configured) || !strings.Contains(err.Error(), d.Recorded) {
			t.Errorf("Claim of %v = %v, want both values named", theirs, err)
		}
	}
	if err := store.Claim(t.Context(), ours); err != nil {
		t.Errorf("Claim after those of others = %v, want nil", err)
	}
}

// TestClaimAfterAnEarlierVersion: the data of an earlier version shows its configuration.
func TestClaimAfterAnEarlierVersion(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	server.Do("SET", "{sg}:epoch", ours.Epoch)
	server.Do("HSET", "{sg}:w", "meta", "1 2 abc "+ours.Layout+"@2026-01-01T00:00:00.000Z")
	server.Do("HSET", "{sg}:tagkey", "0", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	other := redisstore.Installation{Epoch: ours.Epoch, Layout: "time:41,worker:4,sequence:18", TokenKey: "0123456789ab"}
	mismatch, ok := errors.AsType[*redisstore.MismatchError](store.Claim(t.Context(), other))
	if !ok || len(mismatch.Differences) != 2 {
		t.Errorf("Claim of another layout and key: %v, want two differences", mismatch)
	}
	if err := store.Claim(t.Context(), ours); err != nil {
		t.Errorf("Claim = %v, want nil", err)
	}
	if got := server.Do("HGET", "{sg}:installation", "layout"); got != ours.Layout {
		t.Errorf("the layout is recorded as %q", got)
	}
}

// TestCommands counts what each operation costs, and looks at what Redis has.
func TestCommands(t *testing.T) {
	server := redistest.Start(t)
	var seen commands
	store := open(t, redisstore.Options{URL: server.URL(), Observe: seen.observe})
	r := tokenstest.SampleRecord(1)
	ctx := t.Context()
	before := server.Do("INFO", "commandstats")
	if strings.Contains(before, "cmdstat_set:") {
		t.Fatal("somebody else uses this server")
	}

	steps := []struct {
		name string
		do   func() error
		want string
	}{
		{"save", func() error { return store.Save(ctx, r, time.Hour+time.Second) }, "set ok"},
		{"save again", func() error { return store.Save(ctx, r, time.Hour) }, "set ok, get ok"},
		{"load", func() error { _, err := store.Load(ctx, r.Token.ID); return err }, "get ok"},
		{"first delete", func() error { return store.Delete(ctx, 1) }, "evalsha other, eval ok"},
		{"delete", func() error { return store.Delete(ctx, r.Token.ID) }, "evalsha ok"},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Errorf("%s = %v", step.name, err)
		}
		if got := seen.take(); got != step.want {
			t.Errorf("%s: commands %q, want %q", step.name, got, step.want)
		}
	}
	if _, err := store.Load(ctx, r.Token.ID); !errors.Is(err, tokens.ErrUnknown) {
		t.Errorf("Load = %v, want ErrUnknown", err)
	}
	if got, want := seen.take(), "get ok, getex ok"; got != want {
		t.Errorf("load of nothing: commands %q, want %q", got, want)
	}
	if stats := server.Do("INFO", "commandstats"); !strings.Contains(stats, "cmdstat_set:calls=2,") {
		t.Errorf("Redis counts other SETs than the store:\n%s", stats)
	}
}

func TestKeyLayout(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	r := tokenstest.SampleRecord(1)
	if err := store.Save(t.Context(), r, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := store.AddKeys(t.Context(), []tokens.TagKey{{Key: tokens.Key{1}}}); err != nil {
		t.Fatal(err)
	}
	if err := store.Claim(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"sg:t:" + r.Token.ID.String(), "{sg}:tagkey", "{sg}:epoch", "{sg}:installation"} {
		if server.Do("EXISTS", key) != "1" {
			t.Errorf("there is no key %s; there is:\n%s", key, server.Do("KEYS", "*"))
		}
	}
	if got := server.Do("HGET", "{sg}:tagkey", "0"); got != "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" {
		t.Errorf("the stored key is %q", got)
	}
	if ttl := server.Do("PTTL", "sg:t:"+r.Token.ID.String()); len(ttl) != len("3599999") && ttl != "3600000" {
		t.Errorf("the record lives for another %s ms, want about 3600000", ttl)
	}
}

// TestNonsenseInTheStore: for an invalid record, the error is ErrUnavailable, and not a decision
// about the token.
func TestNonsenseInTheStore(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	id := idgen.ID(77)
	server.Do("SET", "sg:t:"+id.String(), "nonsense")
	wantUnavailable(t, "Load of a damaged record", load(store, id), redisstore.KindOther)
	server.Do("DEL", "sg:t:"+id.String())
	server.Do("HSET", "sg:t:"+id.String(), "a", "b")
	wantUnavailable(t, "Load of another type", load(store, id), redisstore.KindOther)

	secret := tokens.NewKey().Reveal()
	for field, value := range map[string]string{"0": "secret" + secret, "-1": secret, "01": secret, "x": secret} {
		server.Do("DEL", "{sg}:tagkey")
		server.Do("HSET", "{sg}:tagkey", field, value)
		_, err := store.LoadKeys(t.Context())
		wantUnavailable(t, "LoadKeys with the field "+field, err, redisstore.KindOther)
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}
}

func load(store *redisstore.Store, id idgen.ID) error {
	_, err := store.Load(context.Background(), id)
	return err
}

func wantUnknown(t *testing.T, store *redisstore.Store, id idgen.ID) {
	t.Helper()
	if err := load(store, id); !errors.Is(err, tokens.ErrUnknown) || errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Load(%v) = %v, want ErrUnknown", id, err)
	}
}

// wantUnavailable checks that err says nothing about a token.
func wantUnavailable(t *testing.T, what string, err error, kinds ...string) {
	t.Helper()
	if !errors.Is(err, tokens.ErrUnavailable) || errors.Is(err, tokens.ErrInvalid) {
		t.Errorf("%s = %v, want ErrUnavailable", what, err)
		return
	}
	var known *redisstore.Error
	if !errors.As(err, &known) {
		t.Errorf("%s = %v, want an Error", what, err)
		return
	}
	for _, kind := range kinds {
		if known.Kind == kind {
			return
		}
	}
	if len(kinds) > 0 {
		t.Errorf("%s = %v, want kind %q", what, err, kinds)
	}
}

func TestOpenRefuses(t *testing.T) {
	const password = "hunter2"
	for name, opts := range map[string]redisstore.Options{
		"no URL":                   {},
		"no scheme":                {URL: "localhost:6379"},
		"another scheme":           {URL: "http://localhost"},
		"another topology":         {URL: "redis+ring://localhost"},
		"a database of no number":  {URL: "redis://localhost/x"},
		"an unknown parameter":     {URL: "redis://localhost?speed=high"},
		"a slash in the password":  {URL: "redis://:" + password + "/x@localhost"},
		"a hash in the password":   {URL: "redis://:" + password + "#x@localhost"},
		"a percent sign alone":     {URL: "redis://:" + password + "%@localhost"},
		"a question mark":          {URL: "redis://:" + password + "?x@localhost"},
		"unix without a path":      {URL: "unix://"},
		"sentinel without a name":  {URL: "redis+sentinel://localhost"},
		"reading from replicas":    {URL: "redis+cluster://localhost?read_only=true"},
		"sentinel, replicas":       {URL: "redis+sentinel://localhost?master_name=m&replica_only=true"},
		"by latency":               {URL: "redis+cluster://localhost?route_by_latency=true"},
		"a brace in the prefix":    {URL: "redis://localhost", Prefix: "{a}"},
		"a space in the prefix":    {URL: "redis://localhost", Prefix: "a b"},
		"a timeout of nanoseconds": {URL: "redis://localhost", Timeout: 5},
		"fewer than no replicas":   {URL: "redis://localhost", WaitReplicas: -1},
		"no wait for replicas":     {URL: "redis://localhost", WaitReplicas: 1, WaitTimeout: 5},
	} {
		store, err := redisstore.Open(opts)
		if err == nil {
			_ = store.Close()
			t.Errorf("%s: Open(%+v) = nil, want an error", name, opts)
			continue
		}
		if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "unter") {
			t.Errorf("%s: the error repeats the password: %v", name, err)
		}
	}
}

func TestOpenAccepts(t *testing.T) {
	for _, url := range []string{
		"redis://localhost", "redis://:p%2Fw@127.0.0.1:6379/3", "redis://[::1]:6379", "rediss://user:pw@redis.example",
		"rediss://redis.example?skip_verify=true", "unix:///run/redis.sock", "unix://user:pw@/run/redis.sock?db=2",
		"redis+sentinel://s1?master_name=mymaster", "rediss+sentinel://u:p@s1:1?master_name=m&addr=s2:1&password=x",
		"redis+cluster://c1:7000?addr=c2:7000&addr=c3:7000", "rediss+cluster://u:p@c1", "redis://h?pool_size=5&read_timeout=100ms",
	} {
		store, err := redisstore.Open(redisstore.Options{URL: url})
		if err != nil {
			t.Errorf("Open(%q) = %v, want a store", url, err)
			continue
		}
		if err := store.Close(); err != nil {
			t.Errorf("Close of %q = %v", url, err)
		}
	}
}

func TestLengthOfThePrefix(t *testing.T) {
	for length, want := range map[int]bool{1: true, 64: true, 65: false} {
		s, err := redisstore.Open(redisstore.Options{URL: "redis://127.0.0.1:1", Prefix: strings.Repeat("p", length)})
		if got := err == nil; got != want {
			t.Errorf("a prefix of %d characters: %v, want %v", length, err, want)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}
