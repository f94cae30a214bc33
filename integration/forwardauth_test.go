package integration_test

import (
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// identityHeaders are what a verdict tells of the caller.
var identityHeaders = []string{"X-Snowgate-Client", "X-Snowgate-Scope", "X-Snowgate-Token-Id", "X-Snowgate-Token-Expires"}

const forwardAuthRoutes = `routes:
  - {name: orders, path: /orders, methods: [GET, POST], scopes: [read]}
  - {name: admin, path: /orders/admin, scopes: [write]}
  - {name: shop, host: shop.example, path: /, audience: "https://shop.example"}
  - {name: free, path: /free, public: true}
`

// judge starts a gateway that gives verdicts to proxies on this host.
func judge(t *testing.T, env ...string) (g *gatewaytest.Gateway, token string) {
	t.Helper()
	client := gatewaytest.NewClient("caller", "read")
	g = gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML + forwardAuthRoutes,
		Env:    append([]string{"SNOWGATE_TRUSTED_PROXIES=127.0.0.1"}, env...),
	})
	return g, g.Token(client)
}

// described is a request for a verdict.
type described struct {
	method, uri, host, token string
}

func verdict(g *gatewaytest.Gateway, d described, more ...string) gatewaytest.Response {
	request := g.Request(http.MethodGet, "/oauth2/auth", nil)
	for name, value := range map[string]string{"X-Forwarded-Method": d.method, "X-Forwarded-Uri": d.uri, "X-Forwarded-Host": d.host} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	if d.token != "" {
		request.Header.Set("Authorization", "Bearer "+d.token)
	}
	for i := 0; i+1 < len(more); i += 2 {
		request.Header.Add(more[i], more[i+1])
	}
	return g.Do(request)
}

func TestForwardAuth(t *testing.T) {
	t.Parallel()
	g, token := judge(t)
	tests := []struct {
		name string
		ask  described
		want int
	}{
		{"good token", described{"GET", "/orders/1?x=../..", "a.example", token}, 200},
		{"the longest route counts", described{"GET", "/orders/admin/x", "a.example", token}, 403},
		{"no token", described{"GET", "/orders/1", "a.example", ""}, 401},
		{"no token of ours", described{"GET", "/orders/1", "a.example", token[:69] + "~"}, 401},
		{"forged token", described{"GET", "/orders/1", "a.example", token[:60] + "0000000000"}, 401},
		{"method that the route does not allow", described{"DELETE", "/orders/1", "a.example", token}, 403},
		{"no route", described{"GET", "/elsewhere", "a.example", token}, 403},
		{"the gateway's own path is no route", described{"GET", "/oauth2/token", "a.example", token}, 403},
		{"public route", described{"GET", "/free", "a.example", ""}, 200},
		{"the routes of the host come first, and this one wants an audience", described{"GET", "/orders/1", "SHOP.example.:443", token}, 401},
		{"dot segments", described{"GET", "/free/../orders/1", "a.example", ""}, 400},
		{"encoded dot segments", described{"GET", "/free/%2e%2e/orders/1", "a.example", ""}, 400},
		{"encoded letter", described{"GET", "/%6frders/1", "a.example", token}, 400},
		{"encoded slash", described{"GET", "/orders%2f1", "a.example", token}, 400},
		{"absolute target", described{"GET", "http://a.example/orders/1", "a.example", token}, 400},
		{"fragment behind the path", described{"GET", "/orders/1#x", "a.example", token}, 400},
		{"fragment behind the query", described{"GET", "/orders/1?a=b#x", "a.example", token}, 400},
		{"fragment behind an empty query", described{"GET", "/free?#/../orders/1", "a.example", ""}, 400},
		{"space in the query", described{"GET", "/orders/1?a b", "a.example", token}, 400},
		{"control character in the query", described{"GET", "/orders/1?a\tb", "a.example", token}, 400},
		{"no method", described{"", "/orders/1", "a.example", token}, 400},
		{"no target", described{"GET", "", "a.example", token}, 400},
		{"no host", described{"GET", "/orders/1", "", token}, 400},
		{"bad host", described{"GET", "/orders/1", "a b", token}, 400},
	}
	for _, test := range tests {
		got := verdict(g, test.ask)
		if got.StatusCode != test.want {
			t.Errorf("%s: %d %s, want %d", test.name, got.StatusCode, got.Body, test.want)
		}
		if got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Cache-Control is %q", test.name, got.Header.Get("Cache-Control"))
		}
		for _, name := range identityHeaders {
			if values := got.Header[name]; got.StatusCode == http.StatusOK && len(values) != 1 {
				t.Errorf("%s: %s is there %d times, want once", test.name, name, len(values))
			}
		}
	}

	got := verdict(g, tests[0].ask)
	if got.Header.Get("X-Snowgate-Client") != "caller" || got.Header.Get("X-Snowgate-Scope") != "read" {
		t.Errorf("the verdict says %v", got.Header)
	}
	if got := verdict(g, tests[2].ask); !strings.HasPrefix(got.Header.Get("Www-Authenticate"), "Bearer ") {
		t.Errorf("401 without a challenge: %v", got.Header)
	}
	for _, name := range []string{"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host"} {
		if got := verdict(g, tests[0].ask, name, "/free"); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s twice = %d, want 400", name, got.StatusCode)
		}
	}
	// A method that routers do not know is judged like any other.
	got = g.Exchange("PROPFIND /oauth2/auth HTTP/1.1\r\nHost: g\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /orders/1\r\nX-Forwarded-Host: h\r\n\r\n")
	if got.StatusCode != http.StatusUnauthorized {
		t.Errorf("asked with PROPFIND: %d, want 401", got.StatusCode)
	}
	if got := g.Get("/orders/1", token); got.StatusCode != http.StatusNotFound {
		t.Errorf("a route without upstreams, asked itself: %d, want 404", got.StatusCode)
	}
}

// TestForwardAuthLimits: the rates of a route are for what the gateway forwards itself. Whose
// proxy forwards shows that limits; who shows tokens that do not exist is limited all the same.
func TestForwardAuthLimits(t *testing.T) {
	t.Parallel()
	client := gatewaytest.NewClient("caller", "read")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML + "routes:\n  - {name: orders, path: /orders, scopes: [read], rate: 1/h, client_rate: 1/h}\n",
		Env:    []string{"SNOWGATE_TRUSTED_PROXIES=127.0.0.1", "SNOWGATE_UNKNOWN_TOKEN_RATE=2/h"},
	})
	if note := "client_rate is for requests that are forwarded"; !strings.Contains(g.Log(), note) {
		t.Errorf("the log at the start does not say that %s", note)
	}
	ask := described{"GET", "/orders/1", "a.example", g.Token(client)}
	for i := range 5 {
		if got := verdict(g, ask); got.StatusCode != http.StatusOK {
			t.Fatalf("verdict %d = %d %s, want 200", i+1, got.StatusCode, got.Body)
		}
	}
	if status, body := g.Post("/oauth2/revoke", client, "token", ask.token); status != http.StatusOK {
		t.Fatalf("revocation = %d %s", status, body)
	}
	for i, want := range []int{401, 401, 429, 429} {
		got := verdict(g, ask)
		if got.StatusCode != want || want == http.StatusTooManyRequests && got.Header.Get("Retry-After") == "" {
			t.Errorf("revoked token, verdict %d = %d %v, want %d", i+1, got.StatusCode, got.Header, want)
		}
	}
}

// TestForwardAuthUntrusted: who is no trusted proxy learns how to become one,
// and nothing else.
func TestForwardAuthUntrusted(t *testing.T) {
	t.Parallel()
	g, token := judge(t, "SNOWGATE_TRUSTED_PROXIES=192.0.2.1")
	for _, ask := range []described{{"GET", "/orders/1", "h", token}, {"GET", "/free", "h", ""}, {}} {
		if got := verdict(g, ask); got.StatusCode != http.StatusBadRequest || !strings.Contains(got.Body, "SNOWGATE_TRUSTED_PROXIES") {
			t.Errorf("verdict on %q = %d %s, want 400 that names the variable", ask.uri, got.StatusCode, got.Body)
		}
	}
}

// program returns the path of a program, or skips the test without it.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("SNOWGATE_TEST_REQUIRE") == "1" {
		t.Fatalf("%s is not in PATH, and SNOWGATE_TEST_REQUIRE=1", name)
	}
	t.Skipf("SKIPPED, NOT TESTED: %s is not in PATH (Debian: apt-get install %s)", name, name)
	return ""
}

// frontProxy starts a proxy with one of the examples, its names replaced by real
// addresses, and returns its URL.
func frontProxy(t *testing.T, example string, start func(config, dir string) *exec.Cmd, names ...string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)

	dir := t.TempDir()
	config := filepath.Join(dir, example)
	replacer := strings.NewReplacer(append(names, "listen 8000;", "listen "+address+";", ":8000 {", ":"+port+" {", "bind :8000", "bind "+address)...)
	prefix := "" // Traefik learns the address by a flag
	if example == "traefik.yaml" {
		prefix = "# " + address + "\n"
	}
	// The example and what it loads from beside it.
	for _, name := range []string{"haproxy.lua", example} {
		text, err := os.ReadFile(filepath.Join("..", "deploy", "forward-auth", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(prefix+replacer.Replace(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := start(config, dir)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("output of %s:\n%s", example, output.String())
		}
	})
	gatewaytest.Eventually(t, 20*time.Second, "listen", func() bool {
		// Traefik listens before it has read its routes.
		response, err := http.Get("http://" + address + "/orders/1")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode != http.StatusNotFound
	})
	return "http://" + address
}

func launchNginx(t *testing.T) func(config, dir string) *exec.Cmd {
	nginx := program(t, "nginx")
	return func(config, dir string) *exec.Cmd {
		return exec.Command(nginx, "-p", dir, "-e", "stderr", "-c", config,
			"-g", "daemon off; master_process off; pid "+filepath.Join(dir, "nginx.pid")+";")
	}
}

func launchCaddy(t *testing.T) func(config, dir string) *exec.Cmd {
	caddy := program(t, "caddy")
	return func(config, dir string) *exec.Cmd {
		// The administration of Caddy listens on a fixed port.
		text, err := os.ReadFile(config)
		if err == nil {
			err = os.WriteFile(config, append([]byte("{\n\tadmin off\n\tauto_https off\n\tdefault_bind 127.0.0.1\n}\n"), text...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(caddy, "run", "--config", config, "--adapter", "caddyfile")
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
		return cmd
	}
}

func launchHAProxy(t *testing.T) func(config, dir string) *exec.Cmd {
	haproxy := program(t, "haproxy")
	return func(config, _ string) *exec.Cmd { return exec.Command(haproxy, "-db", "-f", config) }
}

// launchTraefik needs SNOWGATE_TEST_TRAEFIK, the path of a Traefik: "make traefik" builds one, which
// takes minutes.
func launchTraefik(t *testing.T) func(config, dir string) *exec.Cmd {
	traefik := os.Getenv("SNOWGATE_TEST_TRAEFIK")
	if traefik == "" {
		t.Skip(`runs on request: make traefik`)
	}
	return func(config, _ string) *exec.Cmd {
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		address, dynamic, _ := strings.Cut(string(text), "\n")
		dynamic = strings.Replace(dynamic, "PathPrefix(`/orders`)", "PathPrefix(`/`)", 1)
		if err := os.WriteFile(config, []byte(dynamic), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(traefik, "--entrypoints.web.address="+strings.TrimPrefix(address, "# "), "--providers.file.filename="+config,
			"--global.checknewversion=false", "--global.sendanonymoususage=false", "--log.level=INFO")
	}
}

// TestForwardAuthBehindProxies runs the examples of deploy/forward-auth with the
// proxies that they are for.
func TestForwardAuthBehindProxies(t *testing.T) {
	t.Parallel()
	for example, start := range map[string]func(*testing.T) func(string, string) *exec.Cmd{
		"nginx.conf": launchNginx, "Caddyfile": launchCaddy, "haproxy.cfg": launchHAProxy, "traefik.yaml": launchTraefik,
	} {
		t.Run(example, func(t *testing.T) {
			launch := start(t)
			g, token := judge(t)
			service := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Target", r.RequestURI)
				w.Header().Set("X-Seen", strings.Join(slices.Sorted(maps.Keys(r.Header)), " "))
				for _, name := range append([]string{"Authorization"}, identityHeaders...) {
					w.Header()["Seen-"+name] = r.Header[name]
				}
			}))
			t.Cleanup(service.Close)
			front := frontProxy(t, example, launch,
				"snowgate:8080", g.Addr, "orders:8080", strings.TrimPrefix(service.URL, "http://"))
			testFrontProxy(t, g, front, token, example == "traefik.yaml")
			testFrontForgeries(t, front, token)
		})
	}
}

// testFrontProxy checks the way of requests through the proxy at front. cleans says that the proxy itself
// resolves paths with two readings, before anybody sees them.
func testFrontProxy(t *testing.T, g *gatewaytest.Gateway, front, token string, cleans bool) {
	t.Helper()
	ask := func(path, token string) gatewaytest.Response {
		t.Helper()
		request := g.Request(http.MethodGet, "", nil)
		request.URL.Opaque, request.URL.Host, request.Host = path, strings.TrimPrefix(front, "http://"), "a.example"
		for _, name := range identityHeaders {
			request.Header.Set(name, "forged")
		}
		request.Header.Set("X-Forwarded-Uri", "/free")
		request.Header.Set("X-Forwarded-Method", "OPTIONS")
		request.Header.Set("X-Forwarded-Host", "b.example")
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		return g.Do(request)
	}

	got := ask("/orders/1?a=b%2Fc", token)
	if got.StatusCode != http.StatusOK || got.Header.Get("X-Target") != "/orders/1?a=b%2Fc" {
		t.Errorf("a good token = %d, target %q", got.StatusCode, got.Header.Get("X-Target"))
	}
	for name, want := range map[string]string{"X-Snowgate-Client": "caller", "X-Snowgate-Scope": "read"} {
		if values := got.Header["Seen-"+name]; len(values) != 1 || values[0] != want {
			t.Errorf("the service saw %s as %q, want %q", name, values, want)
		}
	}
	if values := got.Header["Seen-Authorization"]; len(values) != 0 {
		t.Error("the service saw the caller's token")
	}

	got = ask("/free", "")
	if got.StatusCode != http.StatusOK {
		t.Errorf("a public route = %d", got.StatusCode)
	}
	for _, name := range identityHeaders {
		if strings.Join(got.Header["Seen-"+name], "") != "" {
			t.Errorf("the service saw %s as %q on a public route", name, got.Header["Seen-"+name])
		}
	}

	for path, want := range map[string]int{
		"/orders/1": 401, "/elsewhere": 403, "/free/../orders/1": 400, "/free/%2e%2e/orders/1": 400, "/%6frders/1": 400,
	} {
		if cleans && want == http.StatusBadRequest {
			want = http.StatusUnauthorized // all three are /orders/1
		}
		if got := ask(path, ""); got.StatusCode != want {
			t.Errorf("%s without a token = %d, want %d", path, got.StatusCode, want)
		}
	}
	if got := ask("/orders/1", ""); !strings.HasPrefix(got.Header.Get("Www-Authenticate"), "Bearer ") {
		t.Errorf("401 without a challenge: %v", got.Header)
	}
	if got := ask("/orders/admin", token); got.StatusCode != http.StatusForbidden {
		t.Errorf("a scope that is missing = %d, want 403", got.StatusCode)
	}
}

// testFrontForgeries checks that no other spelling of an identity field, and no field that changes
// method or path behind the verdict, comes past the proxy at front.
func testFrontForgeries(t *testing.T, front, token string) {
	t.Helper()
	names := append(forgedNames(22), "X-HTTP-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Prefix")
	for _, name := range names {
		for path, token := range map[string]string{"/orders/1": token, "/free": "", "/free/deep": token} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			request.Header[name] = []string{"forged"}
			if token != "" {
				request.Header.Set("Authorization", "Bearer "+token)
			}
			got, err := gatewaytest.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			seen := strings.Fields(got.Header.Get("X-Seen"))
			if got.StatusCode != http.StatusBadRequest && got.StatusCode != http.StatusOK ||
				slices.ContainsFunc(seen, func(have string) bool {
					return strings.EqualFold(have, name) && !slices.Contains(identityHeaders, http.CanonicalHeaderKey(name))
				}) {
				t.Errorf("%s on %s = %d, the service saw %q", name, path, got.StatusCode, seen)
			}
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front+"/orders/1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.URL.Opaque = "/orders/1?a=b#x"
	request.Header.Set("Authorization", "Bearer "+token)
	if got, err := gatewaytest.Do(request); err != nil || got.StatusCode != http.StatusBadRequest {
		t.Errorf("a fragment behind the query = %d %v, want 400", got.StatusCode, err)
	}
}
