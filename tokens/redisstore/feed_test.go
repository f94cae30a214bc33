package redisstore_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest/redistest"
)

// TestFeed: a write of one gateway reaches another one by push, on every topology; for clusters see
// TestFeedInACluster.
func TestFeed(t *testing.T) {
	for name, address := range map[string]func(*testing.T) string{
		"embedded":   startEmbedded,
		"standalone": func(t *testing.T) string { return redistest.Start(t).URL() },
		"socket":     func(t *testing.T) string { return redistest.Start(t).SocketURL() },
		"RESP2":      func(t *testing.T) string { return redistest.Start(t).URL() + "?protocol=2" },
		"sentinel": func(t *testing.T) string {
			primary := redistest.Start(t)
			return sentinelURL(redistest.StartSentinel(t, "mymaster", primary), primary, "mymaster")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := redisstore.Options{URL: address(t), Timeout: 2 * time.Second}
			one, other := startGateway(t, opts), startGateway(t, opts)
			one.settled()
			other.settled()
			testFeed(t, one, other)
		})
	}
}

func testFeed(t *testing.T, one, other *gateway) {
	rule := one.addRule(tokens.ClientRule("orders"))
	other.eventually("hear of the rule", func() bool { return other.rule("client-orders").Generation == rule.Generation })
	for id := range idgen.ID(20) { // on all shards
		if err := one.store.Delete(t.Context(), id<<30); err != nil {
			t.Fatal(err)
		}
		other.eventually("hear of the token", func() bool { return other.heard(id<<30) == 1 })
	}
	before := other.keys.all()
	if err := one.store.AddKeys(t.Context(), []tokens.TagKey{{Start: 7, Key: tokens.NewKey()}}); err != nil {
		t.Fatal(err)
	}
	other.eventually("hear of the key", func() bool { return other.keys.all() > before && other.pushes(redisstore.PushKeys) == 1 })
	other.confirmedAnew() // no reading is due any more
	before, rules := other.client.all(), other.rulesRead.Load()
	if err := one.store.Client().Publish(t.Context(), "{sg}:push", "client orders 3 1700000000000").Err(); err != nil {
		t.Fatal(err)
	}
	other.eventually("hear of the client", func() bool { return other.client.all() > before && other.rulesRead.Load() > rules })
	other.confirmedAnew()
	for _, g := range []*gateway{one, other} {
		if n, gaps := g.garbled.Load(), g.gaps.Load(); n != 0 || gaps != 1 {
			t.Errorf("%d garbled messages and %d gaps, want none and the first subscription", n, gaps)
		}
		for _, lag := range g.lags[:len(g.lags)-1] {
			if lag < 0 || lag > 5*time.Second {
				t.Errorf("a push took %s", lag)
			}
		}
		if last := g.lags[len(g.lags)-1]; last != time.Minute {
			t.Errorf("a push of years ago took %s, want that limited to a minute", last)
		}
	}
}

func TestFeedCoalescesBursts(t *testing.T) {
	t.Parallel()
	const burst = 1000
	server := redistest.Start(t)
	g := startGateway(t, redisstore.Options{URL: server.URL()})
	g.settled()
	before, begin := g.client.all(), time.Now()
	for i := range burst {
		if err := g.store.Client().Publish(t.Context(), "{sg}:push", "client orders "+strconv.Itoa(i)+" 1").Err(); err != nil {
			t.Fatal(err)
		}
	}
	g.eventually("hear all", func() bool { return g.pushes(redisstore.PushClient) == burst })
	// At most one in 20 ms, and those of the questions every half second.
	took, got := time.Since(begin), g.client.all()-before
	most := int64(took/(20*time.Millisecond)) + int64(took/(500*time.Millisecond)) + 3
	t.Logf("%d messages led to %d readings in %s", burst, got, took)
	if got < 1 || got > most {
		t.Errorf("%d messages led to %d readings in %s, want 1 to %d", burst, got, took, most)
	}
	g.confirmedAnew()
}

// TestFeedActsOnTheLastPush: after a message that arrives while a follower reads, the follower
// reads once more.
func TestFeedActsOnTheLastPush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := startGateway(t, redisstore.Options{URL: server.URL()}, func(g *gateway) { g.client.block = make(chan struct{}) })
	g.eventually("read", func() bool { return g.client.all() == 1 })
	g.eventually("subscribe", func() bool { return g.subscribed() == nil })
	server.Do("PUBLISH", "{sg}:push", "client orders 1 1")
	g.eventually("hear the message", func() bool { return g.pushes(redisstore.PushClient) == 1 })
	if got := g.client.all(); got != 1 {
		t.Fatalf("%d readings at once, want 1", got)
	}
	// The others go on meanwhile, but nothing is confirmed.
	g.addRule(tokens.ClientRule("x"))
	g.eventually("learn the rule", func() bool { return g.knows("client-x") })
	if at, ok := g.feed.Confirmed(); ok || g.feed.Ready() {
		t.Errorf("Confirmed = %s before every follower has read once", at)
	}
	close(g.client.block)
	g.eventually("read again", func() bool { return g.client.all() >= 2 })
	g.confirmedAnew()
}

func TestFeedIgnoresForgeries(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := startGateway(t, redisstore.Options{URL: server.URL()})
	g.settled()
	forgeries := []string{"", "token", "token x 1", "rules", "rules 1", "rules 99999999999999999999 1", "nonsense 1 2",
		"\x00\xff\x00", strings.Repeat("A", 1<<20), "token 0Wq5o8tAyaM 1 2", "*3\r\n$7\r\nmessage\r\n"}
	for _, forgery := range forgeries {
		server.Do("PUBLISH", "{sg}:push", forgery)
	}
	g.eventually("count them", func() bool { return g.garbled.Load() == int64(len(forgeries)) })
	before := g.pushes(redisstore.PushRules)
	server.Do("PUBLISH", "{sg}:push", "rules 9007199254740991 9007199254740991") // lies about revision and time
	g.eventually("look again", func() bool { return g.pushes(redisstore.PushRules) > before })
	g.confirmedAnew()
	if g.gaps.Load() != 1 || g.subscribed() != nil {
		t.Errorf("%d subscriptions, %v, want that the first one lives", g.gaps.Load(), g.subscribed())
	}
	if err := g.store.Delete(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	g.eventually("hear the truth", func() bool { return g.heard(5) == 1 })
}

// TestFeedAfterACut: changes during a lost connection are read when there is a new one.
func TestFeedAfterACut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	wire := startWire(t, server.Addr())
	admin := startGateway(t, redisstore.Options{URL: server.URL()})
	g := startGateway(t, redisstore.Options{URL: wire.through(t, server.URL())})
	g.settled()
	full := g.client.full.Load()
	wire.Refuse()
	g.eventually("notice", func() bool { return g.subscribed() != nil && g.reported() != nil })
	at, _ := g.feed.Confirmed()
	rule := admin.addRule(tokens.ClientRule("orders"))
	if err := admin.store.Delete(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if later, _ := g.feed.Confirmed(); !later.Equal(at) || g.knows(rule.ID) {
		t.Errorf("Confirmed = %s without a connection, before it was %s", later, at)
	}
	wire.Flow()
	g.eventually("catch up", func() bool { return g.gaps.Load() == 2 && g.knows(rule.ID) && g.client.full.Load() > full })
	g.settled()
	if g.reported() != nil {
		t.Errorf("reported %v, want that all is well", g.reported())
	}
}

// TestFeedSilentSubscription: connections with a subscription stay open but get no data, as behind
// a firewall that has dropped their state.
func TestFeedSilentSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	wire := startWire(t, server.Addr())
	g := startGateway(t, redisstore.Options{URL: wire.through(t, server.URL())})
	g.settled()
	wire.Silence(false)
	begin := time.Now()
	g.eventually("notice", func() bool { return g.subscribed() != nil })
	t.Logf("noticed after %s: %v", time.Since(begin), g.subscribed())
	// Rules come without any message.
	pushes := g.pushes(redisstore.PushRules)
	rule := g.addRule(tokens.ClientRule("orders"))
	g.eventually("learn the rule", func() bool { return g.knows(rule.ID) })
	g.confirmedAnew()
	if got, gaps := g.pushes(redisstore.PushRules), g.gaps.Load(); got != pushes || gaps != 1 {
		t.Errorf("%d pushes, %d subscriptions, want %d and the first one", got, gaps, pushes)
	}
	wire.Flow()
	g.eventually("subscribe again", func() bool { return g.subscribed() == nil && g.gaps.Load() >= 2 })
}

func TestFeedFrozenServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := startGateway(t, redisstore.Options{URL: server.URL()})
	g.settled()
	server.Freeze()
	g.eventually("notice", func() bool { return g.subscribed() != nil && g.reported() != nil })
	wantUnavailable(t, "the report", g.reported())
	server.Resume()
	g.eventually("subscribe again", func() bool { return g.subscribed() == nil })
	g.settled()
	if g.reported() != nil {
		t.Errorf("reported %v, want that all is well", g.reported())
	}
}

// TestFeedWithoutTheRightToSubscribe: all changes still arrive without the right to subscribe.
func TestFeedWithoutTheRightToSubscribe(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "mute", "on", ">hunter2", "~*", "+@all", "resetchannels")
	var seen commands
	g := startGateway(t, redisstore.Options{URL: "redis://mute:hunter2@" + server.Addr(), Observe: seen.observe})
	g.confirmedAnew()
	rule := g.addRule(tokens.ClientRule("orders")) // it cannot be pushed, and counts
	g.eventually("learn the rule", func() bool { return g.knows(rule.ID) })
	if got := seen.take(); !strings.Contains(got, "publish auth") {
		t.Errorf("observed %s, want a publish that failed", got)
	}
	if err := g.store.Delete(t.Context(), 5); err != nil {
		t.Errorf("Delete = %v, want nil: the token is gone", err)
	}
	g.eventually("say why there is no subscription", func() bool {
		err := g.subscribed()
		return err != nil && strings.Contains(err.Error(), "NOPERM")
	})
	if got := seen.take(); !strings.Contains(got, "publish auth") {
		t.Errorf("observed %s, want a publish that failed", got)
	}
}

func TestFeedFailingFollower(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := startGateway(t, redisstore.Options{URL: server.URL()}, func(g *gateway) { g.keys.fail.Store(true) })
	g.eventually("report", func() bool {
		err := g.reported()
		return err != nil && strings.Contains(err.Error(), "keys: told to fail")
	})
	if g.feed.Ready() {
		t.Error("Ready although a follower has never been read")
	}
	g.keys.fail.Store(false)
	g.settled()
	if g.reported() != nil || !g.feed.Ready() {
		t.Errorf("reported %v, Ready %t, want that all is well", g.reported(), g.feed.Ready())
	}
	// A change that cannot be read is not confirmed.
	g.keys.fail.Store(true)
	g.addRule(tokens.ClientRule("x"))
	g.eventually("report", func() bool { return g.reported() != nil })
	at, _ := g.feed.Confirmed()
	g.eventually("try again", func() bool { return g.keys.all() > 5 })
	if later, _ := g.feed.Confirmed(); !later.Equal(at) {
		t.Errorf("Confirmed went from %s to %s", at, later)
	}
	g.keys.fail.Store(false)
	g.confirmedAnew()
}

// TestFeedNoticesAnotherServer: the revision is the same but the server has lost writes and made as
// many others, as after a failover.
func TestFeedNoticesAnotherServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--enable-debug-command", "local")
	g := startGateway(t, redisstore.Options{URL: server.URL()})
	g.settled()
	before := g.client.full.Load()
	server.Do("DEBUG", "CHANGE-REPL-ID")
	g.eventually("read in full", func() bool { return g.client.full.Load() > before })
	g.confirmedAnew()
	if g.gaps.Load() != 1 {
		t.Errorf("%d subscriptions, want that the first one lives", g.gaps.Load())
	}
}

func TestFeedConfirmsNoReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	g := startGateway(t, redisstore.Options{URL: replica.URL()})
	g.eventually("report", func() bool { return redisstore.Kind(g.reported()) == redisstore.KindReadOnly })
	if _, err := g.store.LoadRules(t.Context()); redisstore.Kind(err) != redisstore.KindReadOnly {
		t.Errorf("LoadRules from a replica = %v, want it refused", err)
	}
	if at, ok := g.feed.Confirmed(); ok {
		t.Errorf("a replica confirmed at %s", at)
	}
}

// TestFeedWritesBack: Redis is restarted empty, or with what it had a while ago. The data of
// running gateways survives, and so does the revision.
func TestFeedWritesBack(t *testing.T) {
	for name, older := range map[string]bool{"empty": false, "older": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			opts := redisstore.Options{URL: server.URL()}
			one, other := startGateway(t, opts), startGateway(t, opts)
			if err := one.store.RecordLifetime(t.Context(), 3*time.Hour); err != nil {
				t.Fatal(err)
			}
			early := one.addRule(tokens.ClientRule("early"))
			if older {
				server.Do("SAVE")
			}
			late, again := one.addRule(tokens.BeforeRule(time.Now().Add(-time.Hour))), one.addRule(tokens.ClientRule("early"))
			if early.Generation >= again.Generation {
				t.Fatalf("generations %d and %d", early.Generation, again.Generation)
			}
			other.eventually("learn the rules", func() bool {
				return other.knows(late.ID) && other.rule(again.ID).Generation == again.Generation
			})
			before := revision(t, server)
			if before < again.Generation {
				t.Fatalf("the revision is %d, the last generation %d", before, again.Generation)
			}
			server.Kill()
			server.Restart()
			if loaded := strings.Contains(server.Do("INFO", "persistence"), "rdb_last_load_keys_loaded:1"); loaded != older {
				t.Fatalf("the server has loaded its old data: %t", loaded)
			}
			fresh := open(t, opts)
			eventually(t, "the rules are back", func() bool {
				set, err := fresh.LoadRules(t.Context())
				return err == nil && len(set.Rules) == 2 && set.Longest == 3*time.Hour && set.Revision > before
			})
			one.settled()
			other.settled()
			set, err := fresh.LoadRules(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range set.Rules {
				if r.ID == again.ID && r.Generation != again.Generation {
					t.Errorf("the generation is %d, want %d", r.Generation, again.Generation)
				}
			}
			if r := one.addRule(tokens.ClientRule("next")); r.Generation <= before {
				t.Errorf("the next generation is %d, want it above %d", r.Generation, before)
			}
		})
	}
}

func revision(t *testing.T, server *redistest.Server) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(server.Do("HGET", "{sg}:rev", "v"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFeedFollowsAFailover: the subscription moves to the server that Sentinel names.
func TestFeedFollowsAFailover(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	redistest.StartReplica(t, primary)
	sentinel := redistest.StartSentinel(t, "mymaster", primary)
	sentinel.Eventually("find the replica", func() bool {
		return strings.Contains(sentinel.Do("SENTINEL", "MASTER", "mymaster"), "num-slaves\n1")
	})
	opts := redisstore.Options{URL: sentinelURL(sentinel, primary, "mymaster")}
	one, other := startGateway(t, opts), startGateway(t, opts)
	one.settled()
	other.settled()
	rule := one.addRule(tokens.ClientRule("orders"))
	other.eventually("learn the rule", func() bool { return other.knows(rule.ID) })
	primary.Kill()
	other.eventually("notice", func() bool { return other.subscribed() != nil })
	for _, g := range []*gateway{one, other} {
		g.eventually("subscribe to the new primary", func() bool { return g.subscribed() == nil && g.gaps.Load() >= 2 })
		g.confirmedAnew()
	}
	if err := one.store.Delete(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	other.eventually("hear of the token", func() bool { return other.heard(5) == 1 })
	set, err := one.store.LoadRules(t.Context())
	if err != nil || len(set.Rules) != 1 {
		t.Errorf("LoadRules from the new primary = %+v, %v, want the rule", set, err)
	}
}

// TestFeedInACluster: as above, and then the shared keys move to another node.
func TestFeedInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	opts := redisstore.Options{URL: cluster.URL(), Timeout: 2 * time.Second}
	one, other := startGateway(t, opts), startGateway(t, opts)
	one.settled()
	other.settled()
	testFeed(t, one, other)
	cluster.Move("{sg}:rev", cluster.Other(cluster.Owner("{sg}:rev")))
	rule := one.addRule(tokens.ClientRule("payments"))
	other.eventually("learn the rule", func() bool { return other.knows(rule.ID) })
	other.confirmedAnew()
	if err := one.store.Delete(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	other.eventually("hear of the token", func() bool { return other.heard(5) == 1 })
}
