package integration_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// These tests run the programs of docs/how-to/downstream.md.

// runtimes are what the programs are written in, by their suffix. Each returns
// the command that runs a file.
var runtimes = map[string]func(t *testing.T, file string) []string{
	".go": func(t *testing.T, file string) []string {
		binary := file + ".bin"
		if out, err := exec.Command("go", "build", "-o", binary, file).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return []string{binary}
	},
	".py": func(t *testing.T, file string) []string {
		const modules = "flask, authlib.integrations.flask_oauth2"
		return []string{pythonWith(t, modules, "python3-flask python3-authlib python3-requests"), file}
	},
	".mjs": func(t *testing.T, file string) []string {
		return []string{gatewaytest.Require(t, "node", "nodejs"), file}
	},
}

// service is a program of the page that runs.
type service struct{ url string }

// startService writes a program to a file and runs it on a free port.
func startService(t *testing.T, name, text string, env ...string) service {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := runtimes[filepath.Ext(name)](t, file)
	return listening(t, func(addr string) *exec.Cmd {
		command := exec.CommandContext(t.Context(), arguments[0], arguments[1:]...)
		command.Env = append(os.Environ(), append(env, "LISTEN="+addr, "no_proxy=127.0.0.1")...)
		return command
	})
}

// listening starts a program that listens on the address it is told, and waits
// until it does. Another process may be faster to take a port that was free, so
// it is tried with several.
func listening(t *testing.T, program func(addr string) *exec.Cmd) service {
	t.Helper()
	for range 5 {
		// Below the ports that Linux gives to outgoing connections.
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(12_000+rand.IntN(20_000)))
		if s, ok := launch(t, addr, program(addr)); ok {
			return s
		}
	}
	t.Fatal("the program does not listen")
	return service{}
}

func launch(t *testing.T, addr string, command *exec.Cmd) (service, bool) {
	t.Helper()
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if free, err := net.Listen("tcp", addr); err != nil {
		return service{}, false
	} else {
		_ = free.Close()
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(exited)
	}()
	stop := func() {
		_ = command.Process.Kill()
		<-exited
	}
	t.Cleanup(stop)
	up := false
	gatewaytest.Eventually(t, 30*time.Second, command.String(), func() bool {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			up = true
			return true
		}
		return isClosed(exited)
	})
	if !up {
		t.Logf("%s ended:\n%s", command, output.String())
	}
	return service{url: "http://" + addr}, up
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// ask sends a GET to a service, past the gateway.
func ask(t *testing.T, url string, fields ...string) gatewaytest.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		request.Header.Set(fields[i], fields[i+1])
	}
	response, err := gatewaytest.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// TestServicesBehind puts each program that trusts the headers behind a gateway.
func TestServicesBehind(t *testing.T) {
	t.Parallel()
	page := readDoc(t, "how-to/downstream.md")
	for _, name := range []string{"behind.go", "behind.py", "behind.mjs", "behind.conf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s service
			if name == "behind.conf" {
				s = startNginx(t, func(addr string) string {
					return strings.Replace(page.program(t, name), "listen 8080;", "listen "+addr+";", 1)
				})
			} else {
				s = startService(t, name, page.program(t, name))
			}
			wantTrust(t, s)
		})
	}
}

// wantTrust asks a service through a gateway and past it.
func wantTrust(t *testing.T, s service) {
	t.Helper()
	client := gatewaytest.NewClient("worker", "orders.read")
	g := gatewaytest.Start(t, gatewaytest.Options{Env: []string{"SNOWGATE_STORE_TIMEOUT=10s"}, Config: "clients:\n" + client.YAML + `
routes:
  - {name: orders, path: /orders, upstreams: [` + s.url + `], scopes: [orders.read]}
  - {name: by-mistake, path: /open, upstreams: [` + s.url + `], strip_prefix: true, public: true}
`})
	if got := g.Get("/orders/1", g.Token(client)); got.StatusCode != http.StatusOK || got.Body != "hello, worker\n" {
		t.Errorf("with a token: %d %q", got.StatusCode, got.Body)
	}
	if got := g.Get("/orders/1", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want 401", got.StatusCode)
	}
	forged := g.Request(http.MethodGet, "/open/orders/1", nil)
	forged.Header.Set("X-Snowgate-Client", "admin")
	forged.Header["x_snowgate_client"] = []string{"admin"}
	if got := g.Do(forged); got.StatusCode != http.StatusForbidden {
		t.Errorf("through a public route, with a client of its own making: %d %q, want 403", got.StatusCode, got.Body)
	}
	if got := ask(t, s.url+"/orders/1"); got.StatusCode != http.StatusForbidden {
		t.Errorf("past the gateway: %d, want 403", got.StatusCode)
	}
}

// TestServicesBeside shows tokens to each program that asks the gateway about them.
func TestServicesBeside(t *testing.T) {
	t.Parallel()
	page := readDoc(t, "how-to/downstream.md")
	for _, name := range []string{"beside.go", "beside.py", "beside.mjs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worker := gatewaytest.NewClient("worker", "orders.read other", `audiences: ["https://orders.example", "https://billing.example"]`)
			config, secrets := withSecrets(page.block(t, "yaml", "introspect: audience"))
			g := gatewaytest.Start(t, gatewaytest.Options{Config: config + worker.YAML, Env: []string{"SNOWGATE_STORE_TIMEOUT=2s"}})
			s := startService(t, name, page.program(t, name), "GATEWAY="+g.URL, "CLIENT_ID=orders-api", "CLIENT_SECRET="+secrets[0])
			wantChecked(t, g, worker, s)

			lost := startService(t, name, page.program(t, name), "GATEWAY="+gatewaytest.ClosedPort(t), "CLIENT_ID=orders-api", "CLIENT_SECRET="+secrets[0])
			got := ask(t, lost.url+"/orders/1", "Authorization", "Bearer "+g.Token(worker))
			if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
				t.Errorf("without a gateway: %d, Retry-After %q, want 503", got.StatusCode, got.Header.Get("Retry-After"))
			}
			denied := startService(t, name, page.program(t, name), "GATEWAY="+g.URL, "CLIENT_ID=orders-api", "CLIENT_SECRET=wrong")
			if got := ask(t, denied.url+"/orders/1", "Authorization", "Bearer "+g.Token(worker)); got.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("with a wrong secret of its own: %d, want 503", got.StatusCode)
			}
		})
	}
}

// wantChecked shows a service tokens of every kind.
func wantChecked(t *testing.T, g *gatewaytest.Gateway, worker gatewaytest.Credentials, s service) {
	t.Helper()
	good := g.Token(worker)
	revoked := g.Token(worker)
	if status, body := g.Post("/oauth2/revoke", worker, "token", revoked); status != http.StatusOK {
		t.Fatalf("revoke = %d %s", status, body)
	}
	for _, test := range []struct {
		token, why string
		status     int
	}{
		{good, "a good token", http.StatusOK},
		{revoked, "a revoked token", http.StatusUnauthorized},
		{"nonsense", "no token of ours", http.StatusUnauthorized},
		{g.Token(worker, "scope", "other"), "a token without the scope", http.StatusForbidden},
		{g.Token(worker, "resource", "https://billing.example"), "a token for another service", http.StatusUnauthorized},
	} {
		got := ask(t, s.url+"/orders/1", "Authorization", "Bearer "+test.token)
		if got.StatusCode != test.status || test.status == http.StatusOK && got.Body != "hello, worker\n" {
			t.Errorf("%s: %d %q, want %d", test.why, got.StatusCode, got.Body, test.status)
		}
	}
	if got := ask(t, s.url+"/orders/1"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want 401", got.StatusCode)
	}
	got := ask(t, s.url+"/orders/1", "X-Snowgate-Client", "worker")
	if got.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a header that only a gateway says: %d, want 401", got.StatusCode)
	}
}

// TestNginxInFront puts the nginx of the page in front of a gateway.
func TestNginxInFront(t *testing.T) {
	t.Parallel()
	gatewaytest.Require(t, "nginx", "nginx")
	upstream := gatewaytest.NewRecorder(t, "")
	worker := gatewaytest.NewClient("worker", "orders.read")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Env: []string{"SNOWGATE_STORE_TIMEOUT=10s", "SNOWGATE_TRUSTED_PROXIES=127.0.0.1", "SNOWGATE_ISSUER=https://gateway.example"},
		Config: "clients:\n" + worker.YAML + `
routes:
  - {name: orders, path: /orders, upstreams: [` + upstream.URL + `], scopes: [orders.read]}
`})
	tls := httptest.NewUnstartedServer(nil)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	certificate, key := writeTLS(t, tls)
	front := startNginx(t, func(addr string) string {
		return strings.NewReplacer("listen 443 ssl;", "listen "+addr+" ssl;", "http://snowgate:8080", g.URL,
			"/etc/nginx/tls/tls.crt", certificate, "/etc/nginx/tls/tls.key", key).Replace(readDoc(t, "how-to/downstream.md").program(t, "front.conf"))
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(front.url, "http:", "https:", 1)+"/orders/a%20b%21?x=%zz", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "gateway.example"
	request.Header.Set("Authorization", "Bearer "+g.Token(worker))
	request.Header.Set("X-Forwarded-For", "192.0.2.1")
	response, err := tls.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("through nginx: %d", response.StatusCode)
	}
	raw := upstream.Only()
	if !strings.HasPrefix(raw, "GET /orders/a%20b%21?x=%zz HTTP/1.1\r\n") {
		t.Errorf("the target has changed: %q", raw)
	}
	for name, want := range map[string]string{
		"X-Snowgate-Client": "worker", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "gateway.example", "X-Forwarded-For": "127.0.0.1",
	} {
		if got := gatewaytest.Header(raw, name); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

// writeTLS writes the certificate of a test server, which is good for 127.0.0.1,
// and its key to files.
func writeTLS(t *testing.T, server *httptest.Server) (certificate, key string) {
	t.Helper()
	pair := server.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// startNginx runs nginx with one server block, which server writes for an
// address.
func startNginx(t *testing.T, server func(addr string) string) service {
	t.Helper()
	nginx := gatewaytest.Require(t, "nginx", "nginx")
	dir := t.TempDir()
	var temporary strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temporary.WriteString("    " + kind + "_temp_path " + dir + "/" + kind + ";\n")
	}
	main := "daemon off;\nmaster_process off;\npid " + dir + "/nginx.pid;\nerror_log stderr;\n"
	if me, err := user.Current(); err == nil && me.Uid == "0" {
		main = "user root;\n" + main // it would give its rights away otherwise, and could not read the files of the test
	}
	return listening(t, func(addr string) *exec.Cmd {
		text := main + "events {}\nhttp {\n    access_log off;\n" + temporary.String() + server(addr) + "}\n"
		file := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.CommandContext(t.Context(), nginx, "-p", dir, "-c", file, "-e", "stderr")
	})
}
