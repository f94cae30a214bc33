package integration_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
	"snowgate/source"
)

// TestSourceProgram builds the program of docs/how-to/call-services.md in a module of its own, as that page says, without
// a network, and runs it against a gateway.
func TestSourceProgram(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/call-services.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)<!-- file: main.go -->\n```go\n(.*?)```").FindSubmatch(page)
	module := regexp.MustCompile("(?s)```text\n(module .*?)```").FindSubmatch(page)
	root, err := filepath.Abs("..")
	if err != nil || program == nil || module == nil {
		t.Fatalf("the page has no program or no module; %v", err)
	}
	g, client := sourceGateway(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": string(program[1]), "orders-worker.secret": client.Secret + "\n",
		"go.mod": strings.Replace(string(module[1]), "../snowgate", root, 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "program")
	build.Dir, build.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), filepath.Join(dir, "program"))
	run.Dir, run.Env = dir, []string{"GATEWAY=" + g.URL}
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "200 OK") {
		t.Errorf("the program: %v\n%s", err, out)
	}
}

// TestSourceReplacesARevokedToken: a program that holds a token which is revoked sees nothing of that.
func TestSourceReplacesARevokedToken(t *testing.T) {
	t.Parallel()
	g, client := sourceGateway(t)
	tokens, err := source.New(source.Config{TokenURL: g.URL + "/oauth2/token", ClientID: client.ID, Secret: client.Secret})
	if err != nil {
		t.Fatal(err)
	}
	first, err := tokens.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status, body := g.Post("/oauth2/revoke", client, "token", first.Value()); status != http.StatusOK {
		t.Fatalf("revoke: %d %s", status, body)
	}
	response, err := (&http.Client{Transport: tokens.Transport(nil)}).Post(g.URL+"/orders/1", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	second, err := tokens.Token(t.Context())
	if response.StatusCode != http.StatusOK || err != nil || second.Value() == first.Value() {
		t.Errorf("with a revoked token: %s, %v; want 200 with another token", response.Status, err)
	}
}

// sourceGateway returns a gateway with a route for the client that it returns.
func sourceGateway(t *testing.T) (*gatewaytest.Gateway, gatewaytest.Credentials) {
	t.Helper()
	upstream := gatewaytest.NewRecorder(t, "")
	client := gatewaytest.NewClient("orders-worker", "orders.read")
	return gatewaytest.Start(t, gatewaytest.Options{Env: []string{"SNOWGATE_STORE_TIMEOUT=10s"}, Config: "clients:\n" + client.YAML + `
routes:
  - {name: orders, path: /orders, upstreams: [` + upstream.URL + `], scopes: [orders.read]}
`}), client
}
