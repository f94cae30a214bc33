package integration_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestRedisTroubleIsTold: a Redis that cannot be used as configured is told with its address, the
// variable and the way out, by a gateway and by config -check -redis.
func TestRedisTroubleIsTold(t *testing.T) {
	t.Parallel()
	plain := redistest.StartWithClock(t)
	for name, tt := range map[string]struct {
		url  string
		want []string
	}{
		"a wrong password": {"redis://:another-one@" + plain.Addr(), []string{
			"WRONGPASS", plain.Addr(), "SNOWGATE_REDIS_URL", "the password is wrong, or the user",
		}},
		"no password": {"redis://" + plain.Addr(), []string{
			"NOAUTH", plain.Addr(), "redis://:PASSWORD@" + plain.Addr(),
		}},
		"TLS to a Redis without": {"rediss://:another-one@" + plain.Addr(), []string{
			plain.Addr(), "SNOWGATE_REDIS_URL", "speaks no TLS: write redis:// instead of rediss://",
		}},
		"nobody there": {"redis://:another-one@" + closedAddress(t), []string{
			"connection refused", "SNOWGATE_REDIS_URL", "is it running there",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := []string{"SNOWGATE_REDIS_URL=" + tt.url, "SNOWGATE_WORKER_ID=1"}
			g := gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, NotReady: true, Env: env})
			line := fmt.Sprint(g.WaitLog("Redis cannot be used: requests that need it are answered with 503"))
			_, output := snowgate(t, env, "config", "-check", "-redis")
			for _, want := range tt.want {
				if !strings.Contains(line, want) {
					t.Errorf("the log does not say %q:\n%s", want, line)
				}
				if !strings.Contains(output, want) {
					t.Errorf("config -check -redis does not say %q:\n%s", want, output)
				}
			}
			if strings.Contains(line+output, "another-one") {
				t.Error("the password is told")
			}
		})
	}
}

// TestClockOfRedisIsTold: a gateway says when the clock of Redis is not that of its host, or reads a
// time before the epoch, and when it is right again.
func TestClockOfRedisIsTold(t *testing.T) {
	t.Parallel()
	redis := redistest.StartWithClock(t)
	g := gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, NotReady: true, Env: []string{
		"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_WORKER_ID=1", "SNOWGATE_STORE_TIMEOUT=5s",
	}})
	g.WaitLog("Redis is reachable")
	redis.StepClock(time.Hour)
	line := fmt.Sprint(g.WaitLog("the clock of Redis is not that of this host"))
	if !regexp.MustCompile(`(59m59|1h0m0)[0-9.]*s ahead .*run NTP on both`).MatchString(line) {
		t.Errorf("an hour ahead: %s", line)
	}
	redis.StepClock(-time.Hour)
	g.WaitLog("the clock of Redis is right again")
	redis.StepClock(-50 * 365 * 24 * time.Hour)
	line = fmt.Sprint(g.WaitLog("the clock of Redis reads a time before the epoch: no ids and tokens are issued"))
	for _, want := range []string{"SNOWGATE_EPOCH", "2026-01-01T00:00:00Z", "correct that clock"} {
		if !strings.Contains(line, want) {
			t.Errorf("before the epoch: want %q in %s", want, line)
		}
	}
}

// TestWhoIsRefusedIsLogged: the access line of a wrong secret has the client's id, and that of a token
// that is expired or revoked has the token's; a forged one has none.
func TestWhoIsRefusedIsLogged(t *testing.T) {
	t.Parallel()
	client := gatewaytest.NewClient("worker", "orders.read", "token_ttl: 2s")
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients:\n" + client.YAML + protectedRoute})
	wrong := client
	wrong.Secret = gatewaytest.NewClient("other", "orders.read").Secret
	if status, body := g.Post("/oauth2/token", wrong, "grant_type", "client_credentials"); status != 401 || strings.Contains(body, "worker") {
		t.Errorf("a wrong secret: %d %s", status, body)
	}
	revoked, expired := g.Token(client), g.Token(client)
	if status, _ := g.Post("/oauth2/revoke", client, "token", revoked); status != 200 {
		t.Fatalf("revoke: %d", status)
	}
	g.Get("/orders/1", revoked)
	gatewaytest.Eventually(t, patience, "the token ends", func() bool { return g.Get("/orders/1", expired).StatusCode == 401 })
	forged := expired[:len(expired)-11] + "00000000000"
	g.Get("/orders/2", forged)
	var line map[string]any
	refused := func(path, value string) func() bool {
		return func() bool {
			for _, line = range g.Lines("request") {
				if line["path"] == path && line["status"] == 401.0 && (strings.Contains(fmt.Sprint(line["cause"]), value) || line["token_id"] == value) {
					return true
				}
			}
			return false
		}
	}
	gatewaytest.Eventually(t, patience, "the line of the wrong secret", refused("/oauth2/token", "client worker"))
	for what, token := range map[string]string{"revoked": revoked, "expired": expired} {
		gatewaytest.Eventually(t, patience, "the line of the "+what+" token", refused("/orders/1", strings.Split(token, "_")[1]))
	}
	if gatewaytest.Eventually(t, patience, "the line of the forged token", refused("/orders/2", "forged")); line["token_id"] != nil {
		t.Errorf("the id of a forged token is logged: %v", line)
	}
}

// TestHealthChecksAreLogged: one line when a health check begins to fail, and one when it passes again.
func TestHealthChecksAreLogged(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ill.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(service.Close)
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "routes:\n  - {name: orders, path: /orders, upstreams: [\"" + service.URL + "\"], public: true, health: {path: /h, interval: 50ms}}\n",
	})
	for round := range 2 {
		ill.Store(true)
		failed := waitLines(t, g, "a health check fails: the replica gets no requests until it passes", round+1)
		if failed["upstream"] != service.URL || !strings.Contains(fmt.Sprint(failed["error"]), "503") {
			t.Errorf("the line of the failure: %v", failed)
		}
		ill.Store(false)
		waitLines(t, g, "a health check passes again", round+1)
	}
}
