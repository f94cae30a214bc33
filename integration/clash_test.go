package integration_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestClientThatIsConfiguredAndStored: a client of the registry must not be
// configured as well. A running gateway keeps its file, one that starts ends, and
// both name the client.
func TestClientThatIsConfiguredAndStored(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	upstream := gatewaytest.NewRecorder(t, "")
	g := startAdministered(t, server, 1, administrator(), upstream)
	stored := g.create("twice")

	text, err := os.ReadFile(g.ConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	configured := gatewaytest.NewClient("twice", "orders.write")
	clash := strings.Replace(string(text), "clients:\n", "clients:\n"+configured.YAML, 1)
	if err := os.WriteFile(g.ConfigPath, []byte(clash), 0o600); err != nil {
		t.Fatal(err)
	}
	g.Signal(syscall.SIGHUP)
	line := g.WaitLog("the configuration file has faults; the state before stays in force")
	if reason, _ := line["error"].(string); !strings.Contains(reason, "twice") {
		t.Errorf("the log gives the reason %q, want the client named", reason)
	}
	g.Token(stored)

	other := gatewaytest.Start(t, gatewaytest.Options{
		Config: clash, NotReady: true,
		Env: []string{"SNOWGATE_REDIS_URL=" + server.URL(), "SNOWGATE_WORKER_ID=2", "SNOWGATE_STORE_TIMEOUT=5s"},
	})
	if code := other.Wait(); code != 2 {
		t.Errorf("a gateway whose file has the client ends with %d, want 2", code)
	}
	gatewaytest.Eventually(t, 10*time.Second, "name the client", func() bool {
		return strings.Contains(other.Log(), "clients are configured that the registry in Redis has, too: twice (file)")
	})
}
