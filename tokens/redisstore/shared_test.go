package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestRevocationsLeaveNothing: a revoked token leaves no data in Redis.
func TestRevocationsLeaveNothing(t *testing.T) {
	t.Parallel()
	const count = 2000
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL() + "?pool_size=1", Timeout: 5 * time.Second})
	if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("other")); err != nil {
		t.Fatal(err)
	}
	revoke := func() {
		saveMany(t, store, tokens.Token{Client: "orders"}, count)
		for i := range count {
			if err := store.Delete(t.Context(), idgen.ID(int64(i)<<20)); err != nil {
				t.Fatal(err)
			}
		}
	}
	revoke() // scripts, connections and hash tables get their size
	keys, fields, memory := server.Do("DBSIZE"), server.Do("HGETALL", "{sg}:rev"), usedMemory(server)
	revoke()
	if got := server.Do("DBSIZE"); got != keys || got != "1" {
		t.Errorf("%s keys, before it was %s, want 1", got, keys)
	}
	if got := server.Do("HGETALL", "{sg}:rev"); got != fields {
		t.Errorf("the rules are\n%s\nwant\n%s", got, fields)
	}
	if grown := usedMemory(server) - memory; grown > 50*count {
		t.Errorf("%d revocations left %d bytes behind", count, grown)
	}
}

// TestFullServerRevokes: all kinds of revocation work while Redis is full.
func TestFullServerRevokes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	g := startGateway(t, redisstore.Options{URL: server.URL()})
	g.settled()
	server.Do("CONFIG", "SET", "maxmemory", "100kb")
	wantUnavailable(t, "Save", g.store.Save(t.Context(), tokenstest.SampleRecord(1), time.Minute), redisstore.KindOOM)
	client := g.addRule(tokens.ClientRule("orders"))
	before := g.addRule(tokens.BeforeRule(time.Now().Add(-time.Hour)))
	g.eventually("learn the rules", func() bool { return g.knows(client.ID) && g.knows(before.ID) })
	if err := g.store.Delete(t.Context(), 5); err != nil {
		t.Errorf("Delete = %v", err)
	}
	g.eventually("hear of the token", func() bool { return g.heard(5) == 1 })
	if err := g.store.AddKeys(t.Context(), []tokens.TagKey{{Start: 1, Key: tokens.NewKey()}}); err != nil {
		t.Errorf("AddKeys = %v", err)
	}
	if err := g.store.RestoreRules(t.Context(), g.rules.Set()); err != nil {
		t.Errorf("RestoreRules = %v", err)
	}
	g.confirmedAnew()
}

// TestRuleIsOneWrite: a rule is one command and one message, whatever it revokes.
func TestRuleIsOneWrite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var seen commands
	store := open(t, redisstore.Options{URL: server.URL(), Observe: seen.observe, Timeout: 5 * time.Second})
	saveMany(t, store, tokens.Token{Client: "orders"}, 1000)
	if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("first")); err != nil { // loads the script
		t.Fatal(err)
	}
	seen.take()
	changes := dirty(server)
	rule, revision, err := store.AddRule(t.Context(), tokens.ClientRule("orders"))
	if err != nil {
		t.Fatal(err)
	}
	if got := seen.take(); got != "evalsha ok" {
		t.Errorf("AddRule sent %q, want one script", got)
	}
	if got := dirty(server) - changes; got != 2 {
		t.Errorf("AddRule changed %d things, want the revision and the rule", got)
	}
	want := fmt.Sprintf("%d:%d", rule.Generation, rule.End.UnixMilli())
	if got := server.Do("HGET", "{sg}:rev", "g:orders"); got != want || rule.Generation != revision {
		t.Errorf("the field of the client is %q, want %q, and generation %d to be the revision %d", got, want, rule.Generation, revision)
	}
	if got := server.Do("DBSIZE"); got != "1001" {
		t.Errorf("%s keys, want all tokens and one hash", got)
	}
}

// dirty is how many changes the server has made since it started.
func dirty(server *redistest.Server) int {
	return int(server.Info("persistence", "rdb_changes_since_last_save"))
}

// TestPruning: each write removes a limited number of ended rules, and nothing else.
func TestPruning(t *testing.T) {
	t.Parallel()
	const ended, living = 2000, 1000
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL(), Timeout: 5 * time.Second})
	pipe := store.Client().Pipeline()
	over := time.Now().Add(-tokens.RuleGrace - time.Minute).UnixMilli()
	grace := time.Now().Add(-tokens.RuleGrace / 2).UnixMilli() // ended, and not to be forgotten yet
	for i := range ended {
		pipe.HSet(t.Context(), "{sg}:rev", fmt.Sprintf("g:ended%d", i), fmt.Sprintf("1:%d", over))
	}
	for i := range living {
		pipe.HSet(t.Context(), "{sg}:rev", fmt.Sprintf("g:living%d", i), fmt.Sprintf("1:%d", grace))
	}
	before := tokens.BeforeRule(time.UnixMilli(5))
	pipe.HSet(t.Context(), "{sg}:rev", "i:"+before.ID, fmt.Sprintf(`{"end":%d,"created":1,"kind":"before","until":5}`, over))
	pipe.HSet(t.Context(), "{sg}:rev", "unknown", "of another version", "g:damaged", "x", "v", "7", "m", "3600000", "p", "damaged")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	length := func() int {
		n, err := strconv.Atoi(server.Do("HLEN", "{sg}:rev"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	most, writes := 0, 0
	for was := length(); server.Do("HEXISTS", "{sg}:rev", "i:"+before.ID) == "1" || was > living+20; writes++ {
		if writes == 1000 {
			t.Fatalf("after %d writes there are %d fields", writes, was)
		}
		if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders")); err != nil {
			t.Fatal(err)
		}
		now := length()
		most, was = max(most, was-now), now
	}
	t.Logf("%d rules were forgotten in %d writes, at most %d in one", ended, writes, most)
	if most > 200 {
		t.Errorf("one write forgot %d rules", most)
	}
	set, err := store.LoadRules(t.Context())
	if err == nil || !strings.Contains(err.Error(), "g:damaged") {
		t.Errorf("LoadRules = %v, want the damaged field named", err)
	}
	if len(set.Rules) != living+1 || set.Revision != 7+uint64(writes) {
		t.Errorf("LoadRules = %d rules, revision %d, want %d and %d", len(set.Rules), set.Revision, living+1, 7+writes)
	}
	if server.Do("HGET", "{sg}:rev", "unknown") != "of another version" {
		t.Error("a field of another version is gone")
	}
}

// TestRuleOutlastsUnknownLifetimes: rules are kept as long as no gateway has recorded a lifetime.
func TestRuleOutlastsUnknownLifetimes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opts := redisstore.Options{URL: server.URL()}
	store := open(t, opts)
	r, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders"))
	if err != nil || time.Until(r.End) < 300*24*time.Hour {
		t.Errorf("AddRule = %+v, %v, want one that ends in a year", r, err)
	}
	for _, ttl := range []time.Duration{time.Hour, 5 * time.Minute} { // the longest counts
		if err := store.RecordLifetime(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
	}
	if r, _, err = store.AddRule(t.Context(), tokens.ClientRule("another")); err != nil {
		t.Fatal(err)
	}
	if end := time.Until(r.End); end < 55*time.Minute || end > 70*time.Minute {
		t.Errorf("the rule ends in %s, want an hour and a minute", end)
	}
	// Redis forgets it; this gateway does not.
	server.FlushAll()
	if r, _, err = store.AddRule(t.Context(), tokens.ClientRule("another")); err != nil {
		t.Fatal(err)
	}
	if end := time.Until(r.End); end < 55*time.Minute || end > 70*time.Minute {
		t.Errorf("the rule ends in %s after the loss, want an hour and a minute", end)
	}
}

func TestRestoreManyRules(t *testing.T) {
	t.Parallel()
	const count = 1234 // more than one script restores
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL(), Timeout: 5 * time.Second})
	set := tokens.RuleSet{Revision: 5000, Longest: time.Hour}
	for i := range count {
		r := tokens.WorkerRule(int64(i), time.UnixMilli(1000), time.UnixMilli(2000))
		if i%2 == 0 {
			r = tokens.ClientRule("client" + strconv.Itoa(i))
			r.Generation = uint64(4000 + i)
		}
		r.End = time.Now().Add(time.Hour)
		set.Rules = append(set.Rules, r)
	}
	for range 2 {
		if err := store.RestoreRules(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.LoadRules(t.Context())
	// The last generation is 4000+1232.
	if err != nil || len(got.Rules) != count || got.Revision <= 5232 {
		t.Errorf("LoadRules = %d rules, revision %d, %v, want %d and above every generation", len(got.Rules), got.Revision, err, count)
	}
}

func TestKeysAreToldOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	keys := []tokens.TagKey{{Start: 0, Key: tokens.NewKey()}, {Start: 60_000, Key: tokens.NewKey()}}
	for _, step := range []struct {
		name string
		do   func() error
		want uint64 // revision
	}{
		{"add", func() error { return store.AddKeys(t.Context(), keys) }, 1},
		{"add again", func() error { return store.AddKeys(t.Context(), keys) }, 1},
		{"add nothing", func() error { return store.AddKeys(t.Context(), nil) }, 1},
		{"remove", func() error { return store.RemoveKeys(t.Context(), []int64{0, 17}) }, 2},
		{"remove again", func() error { return store.RemoveKeys(t.Context(), []int64{0, 17}) }, 2},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s = %v", step.name, err)
		}
		if got := revision(t, server); got != step.want {
			t.Errorf("%s: the revision is %d, want %d", step.name, got, step.want)
		}
	}
	left, err := store.LoadKeys(t.Context())
	if err != nil || len(left) != 1 || left[0].Start != 60_000 {
		t.Errorf("LoadKeys = %+v, %v, want the second key", left, err)
	}
}

// TestWaitForReplicasOfACluster: each write waits for the replica of its own shard. With WaitIssue new
// tokens wait, too.
func TestWaitForReplicasOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	var replicas []*redistest.Server
	for _, node := range cluster.Nodes {
		replicas = append(replicas, cluster.AddReplica(node))
	}
	opts := redisstore.Options{URL: cluster.URL(), WaitReplicas: 1, WaitTimeout: 2 * time.Second, Timeout: 5 * time.Second, WaitIssue: true}
	store := open(t, opts)
	ids := make([]idgen.ID, 12) // on all shards
	for i := range ids {
		r := tokenstest.SampleRecord(byte(i + 1))
		ids[i] = r.Token.ID
		eventually(t, "a token is on a replica", func() bool { return store.Save(t.Context(), r, time.Hour) == nil })
	}
	for _, id := range ids[:6] {
		if err := store.Delete(t.Context(), id); err != nil {
			t.Errorf("Delete = %v", err)
		}
	}
	if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders")); err != nil {
		t.Errorf("AddRule = %v", err)
	}
	// The shard of one token loses its replica. This does not affect the others.
	opts.WaitTimeout = 50 * time.Millisecond
	store = open(t, opts)
	lonely := cluster.Owner(keyOf(ids[6]))
	for i, node := range cluster.Nodes {
		if node == lonely {
			replicas[i].Kill()
		}
	}
	lonely.Eventually("lose its replica", func() bool { return strings.Contains(lonely.Do("INFO", "replication"), "connected_slaves:0") })
	for _, id := range ids[6:] {
		err := store.Delete(t.Context(), id)
		if alone := cluster.Owner(keyOf(id)) == lonely; alone != (err != nil) || alone && !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("Delete on a shard (without a replica: %t) = %v", alone, err)
		}
		wantUnknown(t, store, id)
	}
	r := tokenstest.SampleRecord(100)
	r.Token.ID = ids[6] // of the same shard
	if err := store.Save(t.Context(), r, time.Hour); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("Save without a replica = %v, want the replicas counted", err)
	}
}

// TestWaitForReplicas: a revocation that no replica has is made, and returns an error.
func TestWaitForReplicas(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	opts := redisstore.Options{URL: primary.URL(), WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond, Timeout: 2 * time.Second}
	store := open(t, opts)
	if err := store.Save(t.Context(), tokenstest.SampleRecord(9), time.Minute); err != nil {
		t.Errorf("Save = %v, want nil: it revokes nothing", err)
	}
	wantUnavailable(t, "Delete without a replica", store.Delete(t.Context(), tokenstest.SampleRecord(9).Token.ID))
	wantUnknown(t, store, tokenstest.SampleRecord(9).Token.ID)
	rule, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders"))
	wantUnavailable(t, "AddRule without a replica", err)
	if !strings.Contains(err.Error(), "0 of 1 replicas") || rule.ID != "" {
		t.Errorf("AddRule = %+v, %v, want the replicas counted", rule, err)
	}
	if set, err := store.LoadRules(t.Context()); err != nil || len(set.Rules) != 1 {
		t.Errorf("LoadRules = %+v, %v, want the rule: it counts already", set, err)
	}
	replica := redistest.StartReplica(t, primary)
	// A replica says what it has once a second, or when it is asked.
	eventually(t, "the replica takes part", func() bool {
		_, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders"))
		return err == nil
	})
	rule, _, err = store.AddRule(t.Context(), tokens.ClientRule("orders"))
	if err != nil {
		t.Fatalf("AddRule with a replica = %v", err)
	}
	if got := replica.Do("HGET", "{sg}:rev", "g:orders"); !strings.HasPrefix(got, strconv.FormatUint(rule.Generation, 10)+":") {
		t.Errorf("the replica has %q, want generation %d", got, rule.Generation)
	}
	if err := store.Delete(t.Context(), 5); err != nil {
		t.Errorf("Delete with a replica = %v", err)
	}
}

// TestFeedEnds: a feed leaves nothing behind, whatever it was doing. This test does not run in
// parallel with others.
func TestFeedEnds(t *testing.T) {
	server := redistest.Start(t)
	wire := startWire(t, server.Addr())
	for name, url := range map[string]string{
		"subscribed": server.URL(),
		"silent":     wire.through(t, server.URL()),
		"no server":  "unix:///nonexistent/redis.sock",
		"sentinel":   "redis+sentinel://127.0.0.1:1?master_name=m",
	} {
		wire.Silence(true)
		store := open(t, redisstore.Options{URL: url})
		subscribed := make(chan error, 1)
		feed := store.Feed(redisstore.FeedConfig{
			Followers: map[string]redisstore.Follower{redisstore.PushRules: tokens.NewRules(tokens.RulesConfig{Store: store})},
			OnSubscription: func(err error) {
				select {
				case subscribed <- err:
				default:
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { feed.Run(ctx) })
		if err := <-subscribed; (err == nil) != (name == "subscribed") {
			t.Errorf("%s: OnSubscription(%v)", name, err)
		}
		begin := time.Now()
		cancel()
		wg.Wait()
		if took := time.Since(begin); took > stall {
			t.Errorf("%s: Run ended %s after its context", name, took)
		}
		if err := store.Close(); err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("%s: Close = %v", name, err)
		}
		wire.Flow()
		eventually(t, name+": a goroutine of the feed is left", func() bool {
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			return !strings.Contains(string(stacks), "redisstore.(*") && !strings.Contains(string(stacks), "redis/v9.(*PubSub)")
		})
	}
}

// TestRevokeAMillion: revoking a client with a million live tokens, or the worker that minted them, is
// one script and at most three changes, whatever the number of tokens. By default there are 20 000;
// with SNOWGATE_TEST_LONG=1, as by make promises, a million, which fill 200 MB.
func TestRevokeAMillion(t *testing.T) {
	t.Parallel()
	count := 20_000
	if os.Getenv("SNOWGATE_TEST_LONG") == "1" {
		count = 1_000_000
	}
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL(), Timeout: 10 * time.Second})
	r := tokenstest.SampleRecord(1)
	if err := store.Save(t.Context(), r, time.Hour); err != nil {
		t.Fatal(err)
	}
	value := store.Client().Get(t.Context(), "sg:t:"+r.Token.ID.String()).Val()
	for first := 0; first < count; first += 10_000 {
		pipe := store.Client().Pipeline()
		for i := range 10_000 {
			pipe.Set(t.Context(), "sg:t:"+idgen.ID(int64(first+i)<<20).String(), value, time.Hour)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("another")); err != nil { // loads the script
		t.Fatal(err)
	}
	now := time.Now()
	for name, rule := range map[string]tokens.Rule{
		"client": tokens.ClientRule(r.Token.Client), "worker": tokens.WorkerRule(3, now.Add(-time.Hour), now.Add(-time.Second)),
	} {
		memory, changes := usedMemory(server), dirty(server)
		server.Do("CONFIG", "RESETSTAT")
		begin := time.Now()
		if _, _, err := store.AddRule(t.Context(), rule); err != nil {
			t.Fatal(err)
		}
		took := time.Since(begin)
		scripts := server.Do("INFO", "commandstats")
		changes, memory = dirty(server)-changes, usedMemory(server)-memory
		t.Logf("%s: %s for %s tokens, %d changes, memory %+d bytes", name, took, server.Do("DBSIZE"), changes, memory)
		if n := strings.Count(scripts, "cmdstat_evalsha:calls=1,"); n != 1 || strings.Contains(scripts, "cmdstat_del:") || strings.Contains(scripts, "cmdstat_unlink:") {
			t.Errorf("%s: want one script, and no token deleted:\n%s", name, scripts)
		}
		if changes > 3 || memory > 64<<10 {
			t.Errorf("%s: %d changes, memory %+d bytes, want 3 and 64 KiB at most", name, changes, memory)
		}
	}
}

// TestGenerationAboveAll: after a write-back that was cut short a generation can
// be above the revision.
func TestGenerationAboveAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	late := time.Now().Add(time.Hour).UnixMilli()
	server.Do("HSET", "{sg}:rev", "v", "5", "g:orders", fmt.Sprintf("100:%d", late), "m", "1000")
	r, revision, err := store.AddRule(t.Context(), tokens.ClientRule("orders"))
	if err != nil || r.Generation != 101 || revision != 101 || r.End.UnixMilli() != late {
		t.Errorf("AddRule = %+v, %d, %v, want generation and revision 101, and the later end", r, revision, err)
	}
}

// BenchmarkPush is the time from the revocation of a token on one gateway to the
// moment another one knows, both included.
func BenchmarkPush(b *testing.B) {
	server := redistest.Start(b)
	heard := make(chan idgen.ID, 1)
	subscribed := make(chan error, 1)
	other := open(b, redisstore.Options{URL: server.URL()})
	feed := other.Feed(redisstore.FeedConfig{
		OnToken:        func(id idgen.ID) { heard <- id },
		OnSubscription: func(err error) { subscribed <- err },
	})
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { feed.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	if err := <-subscribed; err != nil {
		b.Fatal(err)
	}
	store := open(b, redisstore.Options{URL: server.URL()})
	for b.Loop() {
		if err := store.Delete(b.Context(), 5); err != nil {
			b.Fatal(err)
		}
		<-heard
	}
}

// BenchmarkLoadRules is what a re-read of ten thousand rules takes.
func BenchmarkLoadRules(b *testing.B) {
	const count = 10_000
	server := redistest.Start(b)
	store := open(b, redisstore.Options{URL: server.URL(), Timeout: 10 * time.Second})
	set := tokens.RuleSet{Revision: count, Longest: time.Hour}
	for i := range count {
		r := tokens.ClientRule("client" + strconv.Itoa(i))
		r.Generation, r.End = uint64(i+1), time.Now().Add(time.Hour)
		set.Rules = append(set.Rules, r)
	}
	if err := store.RestoreRules(b.Context(), set); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if set, err := store.LoadRules(b.Context()); err != nil || len(set.Rules) != count {
			b.Fatal(len(set.Rules), err)
		}
	}
}

// TestUnknownKindIsKept: a rule of a kind that only a newer version knows is read with its bounds, and
// is given back to a Redis that has lost it as it was.
func TestUnknownKindIsKept(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	const field = "i:scope-orders.read"
	end := time.Now().Add(time.Hour).UnixMilli()
	value := fmt.Sprintf(`{"end":%d,"created":3,"kind":"scope","scope":"orders.read","worker":0,"from":5,"until":9,"more":[1]}`, end)
	server.Do("HSET", "{sg}:rev", field, value, "v", "4", "i:rack", fmt.Sprintf(`{"end":%d,"kind":"rack","until":9}`, end))
	set, err := store.LoadRules(t.Context())
	if err != nil || len(set.Rules) != 2 {
		t.Fatalf("LoadRules = %+v, %v, want both rules", set, err)
	}
	for _, r := range set.Rules {
		want := tokens.UnknownRule("rack", "rack", -1, time.UnixMilli(0), time.UnixMilli(9), r.Stored)
		if r.Kind == "scope" {
			want = tokens.UnknownRule("scope-orders.read", "scope", 0, time.UnixMilli(5), time.UnixMilli(9), value)
			want.Created = time.UnixMilli(3)
		} else {
			want.Created = r.Created
		}
		if want.End = time.UnixMilli(end); r != want {
			t.Errorf("LoadRules has %+v, want %+v", r, want)
		}
	}
	server.Do("DEL", "{sg}:rev")
	if err := store.RestoreRules(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if got := server.Do("HGET", "{sg}:rev", field); got != value {
		t.Errorf("Redis was given back %s, want %s", got, value)
	}
	r := set.Rules[0]
	if _, _, err := store.AddRule(t.Context(), r); !errors.Is(err, tokens.ErrRule) {
		t.Errorf("AddRule of an unknown kind = %v, want ErrRule", err)
	}
}
