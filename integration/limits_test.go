package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest/redistest"
)

// TestFailedAuthenticationsAreLimited: who fails too often is told so, and a
// correct secret passes all the same.
func TestFailedAuthenticationsAreLimited(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{Env: []string{"SNOWGATE_FAILED_AUTH_RATE=3/h"}})
	for _, id := range []string{s.client.ID, "nobody"} {
		wrong := *s
		wrong.client = gatewaytest.NewClient(id, "")
		for i, want := range []int{401, 401, 401, 429, 429} {
			got := wrong.issue()
			if got.StatusCode != want {
				t.Errorf("%s, wrong secret %d: %d %s, want %d", id, i+1, got.StatusCode, got.Body, want)
			}
			if wait, _ := strconv.Atoi(got.Header.Get("Retry-After")); want == http.StatusTooManyRequests && (wait < 1 || wait > 3600) {
				t.Errorf("%s, wrong secret %d: Retry-After is %q", id, i+1, got.Header.Get("Retry-After"))
			}
		}
		if got := wrong.introspect(); got.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s, wrong secret at another endpoint: %d, want 429", id, got.StatusCode)
		}
	}
	if got := s.issue(); got.StatusCode != http.StatusOK {
		t.Errorf("the correct secret meanwhile: %d %s", got.StatusCode, got.Body)
	}
	m := s.Metrics()
	if refused := m.Sum("snowgate_limit_decisions_total", `kind="failed_auth_client"`, `outcome="refused"`); refused != 6 {
		t.Errorf("the metrics count %v refusals, want 6", refused)
	}
}

// TestRateOfAClient: token requests beyond it are 429 on every gateway, and the
// fields say how much is left.
func TestRateOfAClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := gatewaytest.NewClient("worker", "read", "rate: 20/h")
	start := func(worker string) *gatewaytest.Gateway {
		return gatewaytest.Start(t, gatewaytest.Options{
			Config: "clients:\n" + client.YAML, Env: []string{"SNOWGATE_REDIS_URL=" + server.URL(), "SNOWGATE_WORKER_ID=" + worker},
		})
	}
	gateways := []*gatewaytest.Gateway{start("1"), start("2")}
	allowed, refused := 0, 0
	for i := range 60 {
		s := &scene{Gateway: gateways[i%2], t: t, client: client}
		got := s.issue()
		switch got.StatusCode {
		case http.StatusOK:
			allowed++
			if got.Header.Get("RateLimit-Policy") != `"client";q=20;w=3600` || got.Header.Get("RateLimit") == "" {
				t.Errorf("fields of an allowed request: %q, %q", got.Header.Get("RateLimit-Policy"), got.Header.Get("RateLimit"))
			}
		case http.StatusTooManyRequests:
			refused++
			if got.Header.Get("Retry-After") == "" {
				t.Error("429 without Retry-After")
			}
		default:
			t.Fatalf("token request %d: %d %s", i, got.StatusCode, got.Body)
		}
	}
	// Two gateways know of each other's uses a moment later.
	if allowed < 20 || allowed > 20+3 || refused == 0 {
		t.Errorf("%d requests were allowed, want 20, and one tenth more at most for the second gateway", allowed)
	}
}

// TestDeadTokensLimitNobodyElse: a thousand dead tokens from one address make 429 of the response to
// dead tokens, and of no other: whoever has a good token passes from there, though no gateway
// has seen it before. A single dead token that is shown all the time is not looked up all the time.
func TestDeadTokensLimitNobodyElse(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "the rate gives places back while a thousand requests take their time")
	t.Parallel()
	const dead, allowed = 1000, 100
	f := newFleetOf(t, fleetOptions{size: 1, env: []string{
		"SNOWGATE_CACHE_TTL=1h", "SNOWGATE_TRUSTED_PROXIES=127.0.0.1", fmt.Sprintf("SNOWGATE_UNKNOWN_TOKEN_RATE=%d/h", allowed),
	}})
	g := f.gateways[0]
	once := f.token()
	f.revoke(0, once)
	mint := newMint(t, f, once)
	statuses := f.flood(dead, func(int) string {
		bearer, _, err := mint.Issue(context.Background(), tokens.Claims{Client: "worker", Scope: scope.Of("svc"), TTL: time.Hour})
		if err != nil {
			t.Error(err)
		}
		return bearer.Reveal()
	})
	if statuses[http.StatusUnauthorized] != allowed || statuses[http.StatusTooManyRequests] != dead-allowed {
		t.Errorf("%d dead tokens were answered %v, want %d times 401 and then 429", dead, statuses, allowed)
	}

	ways := map[string]func(token string) gatewaytest.Response{
		"proxy":        func(token string) gatewaytest.Response { return g.Get("/svc/x", token) },
		"forward-auth": func(token string) gatewaytest.Response { return verdict(g, described{"GET", "/svc/x", "h", token}) },
	}
	inspected := func(token string) string {
		return strings.TrimSpace(f.post(0, "/oauth2/introspect", f.client, "token", token))
	}
	for name, ask := range ways {
		for range 20 {
			if got := ask(f.issue(0, f.client)); got.StatusCode != http.StatusOK {
				t.Errorf("%s: a good token that is not cached: %d %s, want 200", name, got.StatusCode, got.Body)
			}
			if got := inspected(f.issue(0, f.client)); !strings.HasPrefix(got, `{"active":true`) {
				t.Errorf("introspection of a good token says %s", got)
			}
		}
		if got := ask(once); got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: a revoked token: %d with Retry-After %q, want 429", name, got.StatusCode, got.Header.Get("Retry-After"))
		}
	}
	if got := inspected(once); got != `{"active":false}` {
		t.Errorf("introspection of a revoked token says %s", got)
	}
	if n := g.Metrics().Sum("snowgate_limit_decisions_total", `kind="unknown_token"`, `outcome="refused"`); n != dead-allowed+2 {
		t.Errorf("the metrics count %v refusals, want %d", n, dead-allowed+2)
	}

	m := newMonitor(t, f.redis)
	begin := time.Now()
	f.flood(500, func(int) string { return once })
	m.sync(t, f.redis)
	most := 2 * (2 + int(time.Since(begin)/(5*time.Second))) // that one is unknown is confirmed
	if n := m.count(ofRecords + tokenID(once)); n > most {
		t.Errorf("%d commands for a dead token that was shown 500 times, want at most %d", n, most)
	}
}

// TestCorrectSecretsAreNotLimited: when an address has failed too often, whoever there has the
// correct secret passes at every endpoint.
func TestCorrectSecretsAreNotLimited(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{Env: []string{"SNOWGATE_FAILED_AUTH_RATE=2/h", "SNOWGATE_FAILED_AUTH_ADDRESS_RATE=2/h"}})
	wrong := *s
	wrong.client = gatewaytest.NewClient(s.client.ID, "")
	for i, want := range []int{401, 401, 429, 429} {
		if got := wrong.issue(); got.StatusCode != want {
			t.Errorf("wrong secret %d: %d %s, want %d", i+1, got.StatusCode, got.Body, want)
		}
		for endpoint, got := range map[string]gatewaytest.Response{
			"token": s.issue(), "introspection": s.introspect(), "revocation": s.post("/oauth2/revoke", "token", "nonsense"),
		} {
			if got.StatusCode != http.StatusOK {
				t.Errorf("the correct secret after %d wrong ones, %s: %d %s, want 200", i+1, endpoint, got.StatusCode, got.Body)
			}
		}
	}
}
