package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestUpstreamsOfARoute: everything that the file says of upstreams is in force:
// dead replicas are stepped around and shown, fields are rewritten, rates are kept.
func TestUpstreamsOfARoute(t *testing.T) {
	t.Parallel()
	redis, admin := redistest.Start(t), administrator()
	upstream := gatewaytest.NewRecorder(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nServer: secret/1.0\r\n\r\nok")
	dead := gatewaytest.ClosedPort(t)
	limited := gatewaytest.NewClient("limited", "orders.read")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + fileClient.YAML + limited.YAML + `routes:
  - name: orders
    path: /orders
    upstreams: [` + dead + ", " + upstream.URL + `]
    balance: least_in_flight
    scopes: [orders.read]
    client_rate: 20/h
    max_in_flight: 50
    strip_prefix: true
    add_prefix: /v2
    host_header: orders.internal
    set_request_headers: {X-Env: prod}
    remove_request_headers: [Cookie]
    remove_response_headers: [Server]
`,
		Env: []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_WORKER_ID=1", "SNOWGATE_ADMIN_CLIENT_SECRET=" + admin.Secret, "SNOWGATE_STORE_TIMEOUT=5s"},
	})
	a := &administered{g, t, g.Token(admin, "scope", "snowgate:admin"), admin.Secret, 1}
	ask := func(token string) gatewaytest.Response {
		request := g.Request(http.MethodGet, "/orders/1", nil)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("X_Env", "test")
		request.Header.Set("Cookie", "a=b")
		return g.Do(request)
	}
	token := g.Token(fileClient)
	begun := time.Now()
	for i := range 15 {
		if got := ask(token); got.StatusCode != http.StatusOK || got.Header.Get("Server") != "" {
			t.Fatalf("request %d: %d %v %s", i, got.StatusCode, got.Header, got.Body)
		}
	}
	// One that fails three times is left alone for a second and more, before it is tried once.
	mostFailures := 3 + int(time.Since(begun)/time.Second)
	raw := upstream.Requests()[0]
	if !strings.HasPrefix(raw, "GET /v2/1 HTTP/1.1\r\nHost: orders.internal\r\n") || strings.Contains(raw, "Cookie") ||
		fmt.Sprint(gatewaytest.Header(raw, "X-Env"), gatewaytest.Header(raw, "X-Snowgate-Client")) != "[prod] ["+fileClient.ID+"]" ||
		strings.Contains(raw, "test") {
		t.Errorf("the service got %q", raw)
	}
	shown := a.ask("GET", "/routes", "").Body
	m := g.Metrics()
	failures := int(m.Sum("snowgate_replica_failures_total"))
	for _, want := range []string{`"healthy":false`, fmt.Sprintf(`"failures":%d`, failures), `"reason":"it cannot be reached"`, `"healthy":true`, `"changed":"`} {
		if !strings.Contains(shown, want) {
			t.Errorf("the admin API shows %s, want %s in it", shown, want)
		}
	}
	if healthy := m.Sum("snowgate_replica_healthy"); healthy != 1 || failures < 3 || failures > mostFailures {
		t.Errorf("the metrics count %v healthy replicas and %d failures, want 1 and 3 to %d", healthy, failures, mostFailures)
	}
	var refused gatewaytest.Response
	for range 10 {
		if got := ask(token); got.StatusCode == http.StatusTooManyRequests {
			refused = got
		}
	}
	if refused.Header.Get("Retry-After") == "" || refused.Header.Get("RateLimit-Policy") != `"client";q=20;w=3600` {
		t.Errorf("beyond the rate: %v, want 429 with its fields", refused.Header)
	}
	if got := ask(g.Token(limited)); got.StatusCode != http.StatusOK {
		t.Errorf("another client = %d, want 200", got.StatusCode)
	}
}
