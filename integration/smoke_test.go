package integration_test

import (
	"net/http"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

func TestATokenOpensTheDoor(t *testing.T) {
	upstream := gatewaytest.NewRecorder(t, "")
	client := gatewaytest.NewClient("worker", "orders.read")
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients:\n" + client.YAML + `
routes:
  - {name: orders, path: /orders, upstreams: [` + upstream.URL + `], scopes: [orders.read]}
`})
	token := g.Token(client)
	if got := g.Get("/orders/1", token); got.StatusCode != http.StatusOK || got.Body != "ok" {
		t.Errorf("with a token: %d %q", got.StatusCode, got.Body)
	}
	raw := upstream.Only()
	if !strings.HasPrefix(raw, "GET /orders/1 HTTP/1.1\r\n") || gatewaytest.Header(raw, "X-Snowgate-Client")[0] != "worker" {
		t.Errorf("the upstream received %q", raw)
	}
	if got := g.Get("/orders/1", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got.StatusCode)
	}
	if status, body := g.Post("/oauth2/revoke", client, "token", token); status != http.StatusOK {
		t.Errorf("revoke: %d %s", status, body)
	}
	if got := g.Get("/orders/1", token); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a revoked token: %d", got.StatusCode)
	}
}
