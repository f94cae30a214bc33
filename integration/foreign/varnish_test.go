package foreign_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

// TestVarnish runs our scripts for varnishtest: what a service sends and what a client
// sees, byte by byte, judged by a parser that nobody here wrote. A script finds
//
//	${gw}    the address of the gateway, for its clients
//	${up}    the address on which its server must listen
//	${path}  the path of its route, which is public; ${path}-closed needs a token, and
//	         with ${path}-h2 the gateway speaks HTTP/2 to the server
//	${token} a token for the latter
func TestVarnish(t *testing.T) {
	t.Parallel()
	program := gatewaytest.Require(t, "varnishtest", "varnish")
	scripts, err := filepath.Glob(filepath.Join("testdata", "vtc", "*.vtc"))
	if err != nil || len(scripts) < 30 {
		t.Fatalf("there are %d scripts, %v, want 30 or more", len(scripts), err)
	}
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) { runScripts(t, program, transport, scripts) })
	}
}

// onlyDirect are the scripts that net/http's transport does not pass, with the reason.
var onlyDirect = map[string]string{
	"bad-response-header": "net/http joins folded lines",
}

// runScripts runs the scripts at once with a gateway that sends requests in one way.
func runScripts(t *testing.T, program, transport string, scripts []string) {
	t.Helper()
	client := gatewaytest.NewClient("worker", "svc")
	config, services := "clients:\n"+client.YAML+"routes:\n", make(map[string]string)
	for _, script := range scripts {
		name := strings.TrimSuffix(filepath.Base(script), ".vtc")
		services[name] = freePort(t)
		config += strings.NewReplacer("NAME", name, "ADDR", services[name]).Replace(`
  - {name: NAME, path: /NAME, upstreams: ["http://ADDR"], public: true}
  - {name: NAME-closed, path: /NAME-closed, upstreams: ["http://ADDR"], scopes: [svc]}
  - {name: NAME-h2, path: /NAME-h2, upstreams: ["h2c://ADDR"], public: true}
`)
	}
	g := gatewaytest.Start(t, gatewaytest.Options{Env: []string{"SNOWGATE_H2C=true", "SNOWGATE_TRANSPORT=" + transport}, Config: config})
	token := g.Token(client)
	for _, script := range scripts {
		name := strings.TrimSuffix(filepath.Base(script), ".vtc")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if why := onlyDirect[name]; why != "" && transport == "standard" {
				t.Skip(why)
			}
			out, err := exec.CommandContext(t.Context(), program, "-v", "-t", "30",
				"-D", "gw="+g.Addr, "-D", "up="+services[name], "-D", "path=/"+name, "-D", "token="+token, script).CombinedOutput()
			if err != nil {
				t.Errorf("varnishtest %s: %v\n%s", script, err, out)
			}
		})
	}
}
