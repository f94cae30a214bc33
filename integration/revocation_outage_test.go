package integration_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestCachedTokensWithoutRedis: promise c, with the cache. A gateway that has not
// been able to confirm the revocation rules within the bound answers 503, also
// for tokens that it knows; with SNOWGATE_FAIL_STATIC it serves those for that
// much longer, and then answers 503 too. Neither says 401, and both are back by
// themselves.
func TestCachedTokensWithoutRedis(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "it measures parts of a second, and a request takes as long")
	t.Parallel()
	for _, fault := range []struct {
		name      string
		end, mend func(*redistest.Server)
	}{
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Resume},
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			testCachedTokensWithout(t, fault.end, fault.mend)
		})
	}
}

func testCachedTokensWithout(t *testing.T, end, mend func(*redistest.Server)) {
	const bound, static = time.Second, 1500 * time.Millisecond
	f := newFleetOf(t, fleetOptions{
		size: 2, redis: keepsData,
		env: []string{"SNOWGATE_CACHE_TTL=1s", "SNOWGATE_STORE_TIMEOUT=250ms"},
		envOf: func(i int) []string {
			return []string{fmt.Sprintf("SNOWGATE_FAIL_STATIC=%v", time.Duration(i)*static)}
		},
	})
	token := f.token()
	l := f.load(token, 2)
	for i := range f.gateways {
		gatewaytest.Eventually(t, stallTime*5, "the load is served", func() bool { return l.count(i, http.StatusOK) > 10 })
	}
	end(f.redis)
	gone := time.Now()
	for i := range f.gateways {
		gatewaytest.Eventually(t, stallTime*5, "the gateway gives up", func() bool { return l.count(i, http.StatusServiceUnavailable) > 20 })
	}
	responses := l.end()
	for i, most := range []time.Duration{bound, bound + static} {
		late := lag(responses, i, gone)
		t.Logf("gateway %d served for %v", i, late)
		if late > most {
			t.Errorf("gateway %d served a request that began %v after Redis went, want at most %v", i, late, most)
		}
	}
	if late := lag(responses, 1, gone); late < static {
		t.Errorf("with SNOWGATE_FAIL_STATIC=%v tokens were served for %v", static, late)
	}
	for _, got := range responses {
		if got.status != http.StatusOK && got.status != http.StatusServiceUnavailable {
			t.Fatalf("gateway %d answered %d without Redis, want 200 or 503", got.gateway, got.status)
		}
	}
	static1 := f.gateways[1].Metrics()
	if uses := static1.Sum("snowgate_fail_static_uses_total"); uses == 0 {
		t.Error("no use of SNOWGATE_FAIL_STATIC is counted")
	}
	mend(f.redis)
	for i, g := range f.gateways {
		took := g.WaitServed(returnTime, fmt.Sprintf("gateway %d is back", i), func() gatewaytest.Response { return g.Get("/svc/x", token) })
		t.Logf("gateway %d is back after %v", i, took)
	}
	f.revoke(0, token)
	f.wantSoon(bound+stallTime, "a token that is revoked afterwards", token, http.StatusUnauthorized)
}

// TestRulesOutliveAnEmptyRedis: Redis is restarted without its data. The gateways
// that live give back what they know, so that one that starts later knows it too.
func TestRulesOutliveAnEmptyRedis(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, fleetOptions{size: 2})
	f.rule(0, map[string]any{"client": f.client.ID})
	f.rule(1, map[string]any{"worker": 2, "from": instant(-time.Hour), "until": instant(0)})
	before := rulesIn(f.redis)
	if len(before) != 2 {
		t.Fatalf("Redis holds the rules %q, want 2", before)
	}
	f.redis.Kill()
	f.redis.Restart()
	gatewaytest.Eventually(t, 10*time.Second, "Redis is given the rules back", func() bool { return len(rulesIn(f.redis)) == 2 })
	for field, value := range before {
		if got := rulesIn(f.redis)[field]; got != value {
			t.Errorf("Redis was given back %s = %q, want %q", field, got, value)
		}
	}
	newcomer := f.start(2, f.redis.Addr(), true)
	newcomer.WaitServed(10*time.Second, "/readyz of a newcomer", func() gatewaytest.Response { return newcomer.Get("/readyz", "") })
	if got := newcomer.Metrics().Sum("snowgate_revocation_rules"); got != 2 {
		t.Errorf("a newcomer holds %v rules, want 2", got)
	}
}

// rulesIn returns the fields of the rules that a Redis holds.
func rulesIn(server *redistest.Server) map[string]string {
	rules := make(map[string]string)
	lines := strings.Split(server.Do("HGETALL", "{sg}:rev"), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		if strings.HasPrefix(lines[i], "g:") || strings.HasPrefix(lines[i], "i:") {
			rules[lines[i]] = lines[i+1]
		}
	}
	return rules
}

// newSentinelFleet starts two gateways on a primary with one replica, which a Sentinel watches.
func newSentinelFleet(t *testing.T) (f *fleet, primary, replica *redistest.Server) {
	t.Helper()
	primary = redistest.Start(t)
	replica = redistest.StartReplica(t, primary)
	sentinel := redistest.StartSentinel(t, "mymaster", primary)
	sentinel.Eventually("find the replica", func() bool {
		return strings.Contains(sentinel.Do("SENTINEL", "MASTER", "mymaster"), "num-slaves\n1")
	})
	address := "redis+sentinel://" + sentinel.Addr() + "?" + url.Values{"master_name": {"mymaster"}, "password": {primary.Password()}}.Encode()
	f = newFleetOf(t, fleetOptions{size: 2, on: primary, env: []string{"SNOWGATE_REDIS_URL=" + address, "SNOWGATE_CACHE_TTL=1s"}})
	return f, primary, replica
}

// TestFailoverForgetsARevocation: a client is revoked, and the primary dies before
// its replica has heard of it. The gateways that did write it to the new one, and
// no token of the client is served by anybody.
func TestFailoverForgetsARevocation(t *testing.T) {
	t.Parallel()
	f, primary, replica := newSentinelFleet(t)
	token := f.token()
	id := tokenID(token)
	replica.Eventually("have the token", func() bool { return replica.Do("EXISTS", "sg:t:"+id) == "1" })

	replica.Do("CONFIG", "SET", "masterauth", "wrong") // it hears nothing from now on
	replica.Do("CLIENT", "KILL", "TYPE", "MASTER")
	f.rule(0, map[string]any{"client": f.client.ID})
	f.wantSoon(stallTime, "a token of the client", token, http.StatusUnauthorized)
	if rules := rulesIn(replica); len(rules) > 0 {
		t.Fatalf("the replica has heard of %q: the test shows nothing", rules)
	}
	primary.Kill()
	replica.Eventually("become the primary and be told", func() bool {
		for i := range f.gateways {
			got, err := f.ask(i, "/svc/x", token)
			if err != nil || got.status != http.StatusUnauthorized && got.status != http.StatusServiceUnavailable {
				t.Fatalf("gateway %d answers %d, %v during the failover", i, got.status, err)
			}
		}
		role, err := replica.TryDo("ROLE")
		return err == nil && strings.Contains(role, "master") && len(rulesIn(replica)) == 1
	})
	if got := replica.Do("EXISTS", "sg:t:"+id); got != "1" {
		t.Errorf("EXISTS of the token's record = %s, want 1: nothing but the rule refuses it", got)
	}
	f.wantSoon(10*time.Second, "a token of the client after the failover", token, http.StatusUnauthorized)
	for i, g := range f.gateways {
		g.WaitServed(10*time.Second, fmt.Sprintf("/readyz of gateway %d", i), func() gatewaytest.Response { return g.Get("/readyz", "") })
	}
}

// TestFailoverForgetsASingleRevocation: one token is revoked, and the primary dies before its replica
// has heard of it. The gateway that revoked it does so again, and no other token is touched.
func TestFailoverForgetsASingleRevocation(t *testing.T) {
	t.Parallel()
	f, primary, replica := newSentinelFleet(t)
	token, good := f.token(), f.token()
	for _, token := range []string{token, good} {
		replica.Eventually("have the token", func() bool { return replica.Do("EXISTS", "sg:t:"+tokenID(token)) == "1" })
	}
	replica.Do("CONFIG", "SET", "masterauth", "wrong") // it hears nothing from now on
	replica.Do("CLIENT", "KILL", "TYPE", "MASTER")
	f.revoke(0, token)
	f.wantSoon(stallTime, "the revoked token", token, http.StatusUnauthorized)
	if got := replica.Do("EXISTS", "sg:t:"+tokenID(token)); got != "1" {
		t.Fatal("the replica has heard of the revocation: the test shows nothing")
	}
	primary.Kill()
	replica.Eventually("become the primary", func() bool {
		role, err := replica.TryDo("ROLE")
		return err == nil && strings.Contains(role, "master")
	})
	begun := time.Now()
	replica.Eventually("be told of the revocation", func() bool { return replica.Do("EXISTS", "sg:t:"+tokenID(token)) == "0" })
	t.Logf("the token is revoked again %v after the promotion", time.Since(begun))
	f.wantSoon(10*time.Second, "the token after the failover", token, http.StatusUnauthorized)
	f.wantSoon(10*time.Second, "another token", good, http.StatusOK)
	again := 0.0
	for _, g := range f.gateways {
		again += g.Metrics().Sum("snowgate_revocations_written_back_total")
	}
	if again < 1 {
		t.Error("no revocation is counted as written back")
	}
}

// TestClientsTakenAway: what the file takes away from a client, its live tokens
// lose, whatever they were issued with.
func TestClientsTakenAway(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, fleetOptions{size: 2, env: []string{"SNOWGATE_CACHE_TTL=1h"}})
	token := f.token()
	whole := f.client.YAML
	steps := []struct {
		why        string
		yaml       string
		svc, other int
	}{
		{"as issued", whole, http.StatusOK, http.StatusOK},
		{"a scope is taken away", strings.Replace(whole, "svc, svc.other", "svc", 1), http.StatusOK, http.StatusForbidden},
		{"the other one", strings.Replace(whole, "svc, svc.other", "svc.other", 1), http.StatusForbidden, http.StatusOK},
		{"disabled", whole + "    disabled: true\n", http.StatusUnauthorized, http.StatusUnauthorized},
		{"removed", "", http.StatusUnauthorized, http.StatusUnauthorized},
	}
	for i, step := range steps {
		f.client.YAML = step.yaml
		if i > 0 {
			f.reload()
		}
		for i := range f.gateways {
			for path, want := range map[string]int{"/svc/x": step.svc, "/other/x": step.other} {
				if got, err := f.ask(i, path, token); err != nil || got.status != want {
					t.Errorf("%s: gateway %d answers %d, %v at %s, want %d", step.why, i, got.status, err, path, want)
				}
			}
		}
	}
}
