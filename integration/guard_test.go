package integration_test

import (
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"snowgate/guard"
	"snowgate/integration/gatewaytest"
)

// TestGuard puts a service behind a guard that asks a real gateway: a token is good, is revoked and refused within a
// second, and a gateway that is away is no verdict on a token.
func TestGuard(t *testing.T) {
	t.Parallel()
	const audience = "https://orders.example"
	worker := gatewaytest.NewClient("worker", "orders.read", "audiences: ["+audience+"]")
	api := gatewaytest.NewClient("orders-api", "orders.read", "audiences: ["+audience+"]", "introspect: audience")
	gw := gatewaytest.Start(t, gatewaytest.Options{Env: []string{"SNOWGATE_STORE_TIMEOUT=10s"}, Config: "clients:\n" + worker.YAML + api.YAML})
	check, err := guard.New(gw.URL, guard.Credentials{ID: api.ID, Secret: api.Secret}, guard.Options{Audience: audience})
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(check.Require("orders.read")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Client", guard.FromContext(r.Context()).Client)
	})))
	t.Cleanup(service.Close)
	call := func(token string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, service.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	token, second := gw.Token(worker), gw.Token(worker)
	if response := call(token); response.StatusCode != http.StatusOK || response.Header.Get("Client") != "worker" {
		t.Fatalf("a good token: %s", response.Status)
	}
	if status, body := gw.Post("/oauth2/revoke", worker, "token", token); status != http.StatusOK {
		t.Fatalf("revoke: %d %s", status, body)
	}
	for start := time.Now(); ; {
		asked := time.Since(start)
		if call(token).StatusCode == http.StatusUnauthorized {
			break
		}
		if asked > 1100*time.Millisecond {
			t.Fatalf("the revoked token still passed %v after the revocation", asked)
		}
	}
	gw.Signal(syscall.SIGTERM)
	gw.Wait()
	if response := call(second); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("with the gateway away: %s, want 503 with Retry-After", response.Status)
	}
}
