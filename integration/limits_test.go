package integration_test

import (
	"net/http"
	"strconv"
	"testing"

	"snowgate/integration/gatewaytest"
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
