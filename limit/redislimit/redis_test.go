package redislimit

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/limit"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/redisstore/embedded"
	"snowgate/tokens/tokenstest/redistest"
)

// patient is a timeout that no busy machine exceeds, for tests that are not about
// falling back.
const patient = 15 * time.Second

// connect returns a client as the gateway has it, with its breaker.
func connect(t *testing.T, url string, timeout time.Duration) redis.UniversalClient {
	t.Helper()
	store, err := redisstore.Open(redisstore.Options{URL: url, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store.Client()
}

// servers are what the script must run on.
func servers(t *testing.T) map[string]func(*testing.T) string {
	t.Helper()
	return map[string]func(*testing.T) string{
		"redis": func(t *testing.T) string { t.Helper(); return redistest.Start(t).URL() },
		"embedded": func(t *testing.T) string {
			t.Helper()
			server, err := embedded.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			return server.URL()
		},
	}
}

// TestScript checks what the fake takes for granted.
func TestScript(t *testing.T) {
	for name, start := range servers(t) {
		t.Run(name, func(t *testing.T) {
			client := connect(t, start(t), patient)
			ctx := t.Context()
			charge := func(key string, worth, maxLead time.Duration) time.Duration {
				t.Helper()
				ahead, err := chargeScript.Run(ctx, client, []string{key}, microseconds(worth), microseconds(maxLead)).Int64()
				if err != nil {
					t.Fatal(err)
				}
				return time.Duration(ahead) * time.Microsecond
			}
			if got := charge("sg:l:idle", 0, time.Hour); got != 0 {
				t.Errorf("a client that has used nothing is %s ahead", got)
			}
			if n := client.Exists(ctx, "sg:l:idle").Val(); n != 0 {
				t.Error("a key was made for a client that has used nothing")
			}
			if got := charge("sg:l:worker", time.Minute, time.Hour); got != time.Minute {
				t.Errorf("after one minute's worth %s ahead, want 1m0s", got)
			}
			// Meanwhile some time has passed, nobody knows how much.
			if got := charge("sg:l:worker", time.Minute, time.Hour); got <= time.Minute || got > 2*time.Minute {
				t.Errorf("after another one %s ahead, want just under 2m0s", got)
			}
			if ttl := client.PTTL(ctx, "sg:l:worker").Val(); ttl <= time.Minute || ttl > 2*time.Minute {
				t.Errorf("the key lives for %s, want as long as it means something", ttl)
			}
			if got := charge("sg:l:worker", 2*time.Hour, time.Hour); got != time.Hour {
				t.Errorf("%s ahead, want the largest lead of 1h0m0s", got)
			}
			// A key that was written when the clock was a year ahead.
			future := time.Now().Add(365 * 24 * time.Hour).UnixMicro()
			client.Set(ctx, "sg:l:future", strconv.FormatInt(future, 10), 0)
			if got := charge("sg:l:future", 0, time.Hour); got != time.Hour {
				t.Errorf("%s ahead, want the largest lead of 1h0m0s", got)
			}
			client.Set(ctx, "sg:l:garbage", "garbage", 0)
			if got := charge("sg:l:garbage", time.Second, time.Hour); got != time.Second {
				t.Errorf("%s ahead after garbage, want 1s", got)
			}
		})
	}
}

// timed measures the longest answer.
type timed struct {
	redis.Scripter
	longest atomic.Int64
}

func (r *timed) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	begin := time.Now()
	cmd := r.Scripter.EvalSha(ctx, sha, keys, args...)
	for took := int64(time.Since(begin)); ; {
		if known := r.longest.Load(); took <= known || r.longest.CompareAndSwap(known, took) {
			return cmd
		}
	}
}

// TestThreeGateways has three gateways share a rate by a real Redis.
func TestThreeGateways(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rate := limit.Rate{Count: 100, Per: time.Second}
	var nodes []*node
	var slowest time.Duration
	var clients []*timed
	for range 3 {
		r := &timed{Scripter: connect(t, server.URL(), patient)}
		clients = append(clients, r)
		nodes = append(nodes, newNode(t, r, Config{Timeout: patient, MaxWait: patient}))
	}
	var group sync.WaitGroup
	for _, n := range nodes {
		group.Go(func() {
			ticker := time.NewTicker(time.Millisecond)
			defer ticker.Stop()
			for begin := time.Now(); time.Since(begin) < time.Second; <-ticker.C {
				n.ask(t, rate)
			}
		})
	}
	group.Wait()
	for _, r := range clients {
		slowest = max(slowest, time.Duration(r.longest.Load()))
	}
	checkBound(t, nodes, rate, slowest)
	if passed := len(allPassed(nodes)); passed < 100 {
		t.Errorf("%d requests passed, want the burst at least", passed)
	}
	for i, n := range nodes {
		if reasons := n.fellBack(); len(reasons) > 0 {
			t.Errorf("gateway %d fell back: %q", i, reasons)
		}
		if len(n.passed) == 0 {
			t.Errorf("nothing passed at gateway %d", i)
		}
	}
}

// TestRedisFaults takes Redis away in two ways and brings it back: meanwhile the
// gateway applies the rate by itself, afterwards it shares it again.
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	faults := []struct {
		name        string
		damage, fix func(*redistest.Server)
	}{
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Resume},
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			n := newNode(t, connect(t, server.URL(), DefaultTimeout), Config{Pause: 50 * time.Millisecond})
			rate := limit.Rate{Count: 20, Per: time.Hour} // none comes back during the test
			shared := func() bool {
				n.Allow(t.Context(), "probe", limit.Rate{Count: 1000, Per: time.Hour})
				return server.Do("EXISTS", "sg:l:probe") == "1"
			}
			server.Eventually("be asked", shared)

			fault.damage(server)
			if passed := n.askMany(t, rate, 100); passed != 20 {
				t.Errorf("%d passed while Redis is %s, want 20", passed, fault.name)
			}
			server.Eventually("be missed", func() bool {
				n.ask(t, rate)
				return len(n.fellBack()) > 0
			})

			fault.fix(server)
			server.Do("FLUSHALL")
			server.Eventually("be asked again", shared)
			if n.askMany(t, rate, 100) != 0 {
				t.Error("the gateway forgot what it let through itself")
			}
		})
	}
}

// TestCluster: each client's key is at the node that its name leads to, and the
// script touches no other.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	n := newNode(t, connect(t, cluster.URL(), patient), Config{Timeout: patient})
	rate := limit.Rate{Count: 5, Per: time.Hour}
	for i := range 30 {
		n.Allow(t.Context(), "client"+strconv.Itoa(i), rate)
	}
	cluster.Nodes[0].Eventually("hold a third of the keys", func() bool {
		keys := 0
		for _, node := range cluster.Nodes {
			held := len(strings.Fields(node.Do("KEYS", "sg:l:*")))
			if held == 0 {
				return false
			}
			keys += held
		}
		return keys == 30
	})
	if reasons := n.fellBack(); len(reasons) > 0 {
		t.Errorf("fell back: %q", reasons)
	}
}
