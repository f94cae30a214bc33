package integration_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"snowgate/integration/gatewaytest"
)

// mcpScene is a gateway in front of a server of the Model Context Protocol.
type mcpScene struct {
	*gatewaytest.Gateway
	issuer string
	client gatewaytest.Credentials
}

// newMCPScene starts a gateway with the route /tools for the service at upstream. The gateway knows by
// which URL it is reached, behind another proxy.
func newMCPScene(t *testing.T, upstream string) *mcpScene {
	t.Helper()
	issuer, serve := newFront(t)
	client := gatewaytest.NewClient("agent", "tools.use tools.admin", "audiences: ["+issuer+"/tools]")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Env: []string{"SNOWGATE_ISSUER=" + issuer, "SNOWGATE_STORE_TIMEOUT=10s"},
		Config: "clients:\n" + client.YAML + `
routes:
  - {name: tools, path: /tools, strip_prefix: true, upstreams: [` + upstream + `], scopes: [tools.use], mcp: true}
  - {name: other, path: /other, upstreams: [` + upstream + `], scopes: [tools.use]}
  - {name: named, host: mcp.example, path: /, upstreams: [` + upstream + `], mcp: true}
`})
	serve(g)
	return &mcpScene{g, issuer, client}
}

// called is what a client of the protocol prints.
type called struct {
	Tools   []string `json:"tools"`
	Text    string   `json:"text"`
	Session bool     `json:"session"`
	Scope   string   `json:"scope"`
	Error   string   `json:"error"`
}

// TestMCPClients: the clients of the official SDKs get a tool's result through the gateway. All they
// have is the URL and their credentials; the rest they find out.
func TestMCPClients(t *testing.T) {
	t.Parallel()
	node := nodeWith(t, "@modelcontextprotocol/sdk")
	program := func(name string) string { return filepath.Join("testdata", "interop", "node", name) }
	s := newMCPScene(t, "http://"+startNodeServer(t, node, "mcp-server.mjs"))
	want := called{Tools: []string{"add"}, Text: "42 for agent", Session: true, Scope: "tools.use"}
	for name, command := range map[string]func() []string{
		"TypeScript": func() []string { return []string{node, program("mcp-client.mjs"), s.issuer + "/tools", s.issuer} },
		"Go":         func() []string { return []string{mcpClientInGo(t), s.issuer + "/tools"} },
	} {
		t.Run(name, func(t *testing.T) {
			want := want
			if name == "TypeScript" {
				want.Scope = "tools.use tools.admin" // it asks for no scope unless it is given one, and gets all
			}
			if diff := cmp.Diff(want, s.run(t, command()...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// run runs a client of the protocol with the credentials in the environment.
func (s *mcpScene) run(t *testing.T, arguments ...string) (got called) {
	t.Helper()
	command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
	command.Env = append(os.Environ(), "CLIENT_ID="+s.client.ID, "CLIENT_SECRET="+s.client.Secret, "no_proxy=127.0.0.1")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", arguments, err, stderrOf(err))
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%q prints %q: %v", arguments, out, err)
	}
	return got
}

// mcpClientInGo builds the client with the SDK for Go, which is a module of its own: the gateway does not
// depend on it.
func mcpClientInGo(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "client")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir = filepath.Join("testdata", "interop", "go-mcp")
	if out, err := build.CombinedOutput(); err != nil {
		gatewaytest.Missing(t, "the SDK for Go cannot be built, which needs its modules: "+string(out))
	}
	return binary
}

// TestRouteResource: what a client finds out about a route that is a resource of its own.
func TestRouteResource(t *testing.T) {
	t.Parallel()
	s := newMCPScene(t, gatewaytest.NewRecorder(t, "").URL)
	metadata := s.issuer + "/.well-known/oauth-protected-resource/tools"
	for _, test := range []struct {
		path, token, want string
		status            int
	}{
		{"/tools", "", `Bearer realm="snowgate", scope="tools.use", resource_metadata="` + metadata + `"`, 401},
		{"/tools/x", "sgt_0", `Bearer realm="snowgate", error="invalid_token", scope="tools.use", resource_metadata="` + metadata + `"`, 401},
		{"/other", "", `Bearer realm="snowgate", resource_metadata="` + s.issuer + `/.well-known/oauth-protected-resource"`, 401},
	} {
		got := s.Get(test.path, test.token)
		if challenge := got.Header.Get("Www-Authenticate"); got.StatusCode != test.status || challenge != test.want {
			t.Errorf("%s: %d %s, want %d %s", test.path, got.StatusCode, challenge, test.status, test.want)
		}
	}
	got := s.Get("/.well-known/oauth-protected-resource/tools", "")
	want := `{"resource":"` + s.issuer + `/tools","resource_name":"tools","authorization_servers":["` + s.issuer +
		`"],"scopes_supported":["tools.use"],"bearer_methods_supported":["header"]}`
	if strings.TrimSpace(got.Body) != want || got.StatusCode != http.StatusOK {
		t.Errorf("the metadata are %d %s, want %s", got.StatusCode, got.Body, want)
	}
	for _, path := range []string{"/other", "/tools/x", "/tool", "/nothing", "/"} {
		if got := s.Get("/.well-known/oauth-protected-resource"+path, ""); got.StatusCode != http.StatusNotFound {
			t.Errorf("the metadata of %s: %d %s, want 404", path, got.StatusCode, got.Body)
		}
	}
	if got := s.Get("/oauth2/authorize?response_type=code", ""); got.StatusCode != http.StatusBadRequest {
		t.Errorf("where the metadata say that people sign in: %d %s, want 400", got.StatusCode, got.Body)
	}
	if got := s.Get("/.well-known/oauth-authorization-server", ""); !strings.Contains(got.Body, `"`+s.issuer+`/tools"`) {
		t.Errorf("protected_resources: %s", got.Body)
	}
	if got := s.Get("/tools/x", s.Token(s.client)); got.StatusCode != http.StatusOK {
		t.Errorf("with a token for the route: %d %s", got.StatusCode, got.Body)
	}
}
