package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestRuleOfANewerRelease: another gateway writes a rule of a kind that this release does not know.
// Tokens that it may match are answered with 503, all others as before, and the rule survives a Redis
// that loses it.
func TestRuleOfANewerRelease(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, fleetOptions{size: 2})
	old := f.token()
	until := time.Now().Add(50 * time.Millisecond)
	gatewaytest.Eventually(t, patience, "the instant has come", func() bool { return time.Now().After(until.Add(time.Millisecond)) })
	value := fmt.Sprintf(`{"end":%d,"created":%d,"kind":"scope","scope":"svc","from":0,"until":%d}`,
		time.Now().Add(time.Hour).UnixMilli(), until.UnixMilli(), until.UnixMilli())
	const field = "i:scope-svc"
	f.redis.Do("HSET", "{sg}:rev", field, value)
	f.redis.Do("HINCRBY", "{sg}:rev", "v", "1")
	for i, g := range f.gateways {
		gatewaytest.Eventually(t, patience, fmt.Sprintf("gateway %d holds the rule", i), func() bool {
			return g.Metrics().Sum("snowgate_revocation_rules_unknown") == 1
		})
		if got, err := f.ask(i, "/svc/x", old); err != nil || got.status != http.StatusServiceUnavailable {
			t.Errorf("gateway %d answers %d, %v to a token that the rule may match, want 503", i, got.status, err)
		}
		line := g.WaitLog("a newer version wrote a revocation rule of a kind that this one does not know: " +
			"tokens that it may match are answered with 503 until they expire; upgrade this gateway")
		if line["rule"] != "scope-svc" || line["kind"] != "scope" {
			t.Errorf("gateway %d logs %v, want the rule named", i, line)
		}
	}
	fresh := f.issue(1, f.client)
	f.wantAll("a token issued after the rule", fresh, http.StatusOK)
	f.redis.Do("HDEL", "{sg}:rev", field, "v")
	gatewaytest.Eventually(t, patience, "Redis is given the rule back", func() bool { return rulesIn(f.redis)[field] == value })
	for i, g := range f.gateways {
		if n := strings.Count(g.Log(), "scope-svc"); n != 1 {
			t.Errorf("gateway %d logs the rule %d times, want once", i, n)
		}
	}
}

// TestNewcomerOnAnEmptiedRedis: Redis loses everything, and a gateway is started in the same moment.
// It does not say that the registry's clients are unknown before the others have given them back.
func TestNewcomerOnAnEmptiedRedis(t *testing.T) {
	t.Parallel()
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	living := startAdministered(t, redis, 1, admin, upstream)
	var known []gatewaytest.Credentials
	for i := range 20 {
		known = append(known, living.create(fmt.Sprintf("client-%d", i)))
	}
	living.Signal(syscall.SIGSTOP) // so that the others are later than the newcomer
	redis.Do("FLUSHALL")
	newcomer := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + fileClient.YAML, NotReady: true,
		Env: []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_WORKER_ID=2", "SNOWGATE_STORE_TIMEOUT=5s"},
	})
	newcomer.WaitLog("the revocation rules are confirmed")
	refused := 0
	ask := func(client gatewaytest.Credentials) bool {
		status, body := newcomer.Post("/oauth2/token", client, "grant_type", "client_credentials")
		if status == http.StatusUnauthorized {
			t.Fatalf("the newcomer says %s of a client that there is", body)
		}
		refused++
		return status == http.StatusOK
	}
	for _, client := range known {
		ask(client)
	}
	living.Signal(syscall.SIGCONT)
	gatewaytest.Eventually(t, 20*time.Second, "the newcomer issues tokens", func() bool { return ask(known[0]) })
	t.Logf("%d requests were answered with 503 before", refused)
}
