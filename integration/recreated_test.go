package integration_test

import (
	"net/http"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestRecreatedClient: a client that is deleted and made anew at once does not get its old tokens
// back, on the gateway where that was done and on another.
func TestRecreatedClient(t *testing.T) {
	t.Parallel()
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	one := startAdministered(t, redis, 1, admin, upstream)
	other := startAdministered(t, redis, 2, admin, upstream)
	for range 15 {
		old := one.Token(one.create("worker"))
		for _, g := range []*administered{one, other} {
			gatewaytest.Eventually(t, patience, "the token is good", func() bool { return g.canCall(old) })
		}
		if got := one.ask("DELETE", "/clients/worker", "", "If-Match", "*"); got.StatusCode != http.StatusNoContent {
			t.Fatalf("delete: %d %s", got.StatusCode, got.Body)
		}
		made := one.create("worker")
		if one.canCall(old) {
			t.Fatal("the old token is good again on the gateway that made the client anew")
		}
		deadline := time.Now().Add(time.Second)
		for other.canCall(old) {
			if time.Now().After(deadline) {
				t.Fatal("the old token is good again on another gateway")
			}
		}
		fresh := one.Token(made)
		for range 20 {
			if one.canCall(old) || other.canCall(old) {
				t.Fatal("the old token came back")
			}
		}
		gatewaytest.Eventually(t, patience, "the new token is good", func() bool { return one.canCall(fresh) && other.canCall(fresh) })
		if got := one.ask("DELETE", "/clients/worker", "", "If-Match", "*"); got.StatusCode != http.StatusNoContent {
			t.Fatalf("delete: %d %s", got.StatusCode, got.Body)
		}
	}
}
