package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"snowgate/integration/gatewaytest"
)

// These tests use clients that were written without snowgate in mind: what they
// cannot do is a fault of the gateway, whatever its own tests say.

// newInterop starts a gateway that protects an upstream of its own, and its
// client.
func newInterop(t *testing.T, env ...string) (*gatewaytest.Gateway, gatewaytest.Credentials) {
	t.Helper()
	upstream := gatewaytest.NewRecorder(t, "")
	client := gatewaytest.NewClient("worker.1~a_b-c", "orders.read orders.write", "introspect: true", "token_ttl: 30m")
	env = append(env, "SNOWGATE_STORE_TIMEOUT=10s", "GORACE=atexit_sleep_ms=0") // the machine may be busy
	g := gatewaytest.Start(t, gatewaytest.Options{Env: env, Config: "clients:\n" + client.YAML + `
routes:
  - {name: orders, path: /orders, upstreams: [` + upstream.URL + `], scopes: [orders.read]}
`})
	return g, client
}

// newFront starts a reverse proxy and returns its URL, the issuer of the gateway
// that is put behind it with serve. Discovery needs a gateway that knows by which
// URL it is reached before it listens.
func newFront(t *testing.T) (url string, serve func(*gatewaytest.Gateway)) {
	t.Helper()
	var backend atomic.Pointer[neturl.URL]
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(backend.Load())
		r.SetXForwarded()
	}})
	t.Cleanup(front.Close)
	return front.URL, func(g *gatewaytest.Gateway) {
		backend.Store(&neturl.URL{Scheme: "http", Host: g.Addr})
	}
}

func TestGoClient(t *testing.T) {
	t.Parallel()
	g, client := newInterop(t)
	for style, name := range map[oauth2.AuthStyle]string{
		oauth2.AuthStyleInHeader: "header", oauth2.AuthStyleInParams: "params", oauth2.AuthStyleAutoDetect: "detected",
	} {
		t.Run(name, func(t *testing.T) {
			cfg := clientcredentials.Config{
				ClientID: client.ID, ClientSecret: client.Secret, TokenURL: g.URL + "/oauth2/token",
				Scopes: []string{"orders.read"}, AuthStyle: style,
			}
			token, err := cfg.Token(t.Context())
			if err != nil {
				t.Fatalf("Token: %v", err)
			}
			if token.Type() != "Bearer" || token.Extra("expires_in") != 1800.0 || token.Extra("scope") != "orders.read" || token.RefreshToken != "" {
				t.Errorf("Token = type %q, expires_in %v, scope %v", token.Type(), token.Extra("expires_in"), token.Extra("scope"))
			}
			// The client that gets tokens by itself, as a program would use it.
			response, err := cfg.Client(t.Context()).Get(g.URL + "/orders/1")
			if err != nil {
				t.Fatalf("Get: %v", err)
			}
			defer response.Body.Close()
			if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || string(body) != "ok" {
				t.Errorf("with its token: %d %q", response.StatusCode, body)
			}
			cfg.ClientSecret = "wrong"
			wantRetrieveError(t, &cfg, "invalid_client", http.StatusUnauthorized)
			cfg.ClientSecret, cfg.Scopes = client.Secret, []string{"orders.burn"}
			wantRetrieveError(t, &cfg, "invalid_scope", http.StatusBadRequest)
		})
	}
}

// wantRetrieveError checks that the client understands why it gets no token.
func wantRetrieveError(t *testing.T, cfg *clientcredentials.Config, code string, status int) {
	t.Helper()
	_, err := cfg.Token(context.Background())
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) || refused.ErrorCode != code || refused.Response.StatusCode != status || refused.ErrorDescription == "" {
		t.Errorf("Token = %v, want %d %s with a description", err, status, code)
	}
}

// used is what the Python and Node.js programs print.
type used struct {
	Type      string `json:"type"`
	Scope     string `json:"scope"`
	ExpiresIn int    `json:"expires_in"`
	Used      int    `json:"used"`
	Active    bool   `json:"active"`
	Revoked   int    `json:"revoked"`
	After     int    `json:"after"`
	Error     string `json:"error"`

	// Results that only some of them report.
	Resource string   `json:"resource"`
	Servers  []string `json:"servers"`
	Metadata string   `json:"metadata"`
}

func TestPythonClients(t *testing.T) {
	t.Parallel()
	for _, program := range []struct{ script, module, pkg string }{
		{"authlib_client.py", "authlib.integrations.requests_client", "python3-authlib python3-requests"},
		{"requests_oauthlib_client.py", "requests_oauthlib", "python3-requests-oauthlib"},
	} {
		t.Run(program.script, func(t *testing.T) {
			t.Parallel()
			python := pythonWith(t, program.module, program.pkg)
			g, client := newInterop(t)
			for _, method := range []string{"client_secret_basic", "client_secret_post"} {
				want := used{Type: "Bearer", Scope: "orders.read", ExpiresIn: 1800, Used: 200, Active: true, Revoked: 200, After: 401, Error: "invalid_client"}
				got := runProgram(t, client, python, filepath.Join("testdata", "interop", "python", program.script), g.URL, method)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", method, diff)
				}
			}
		})
	}
}

// nodeModules is where "make interop-modules" puts what the programs for Node.js
// import.
var nodeModules = filepath.Join("testdata", "interop", "node", "node_modules")

// TestNodeClients discovers everything but the issuer, from its metadata.
func TestNodeClients(t *testing.T) {
	t.Parallel()
	node := nodeWithModules(t)
	for _, script := range []string{"oauth4webapi.mjs", "openid-client.mjs"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			issuer, serve := newFront(t)
			g, client := newInterop(t, "SNOWGATE_ISSUER="+issuer)
			serve(g)
			for _, method := range []string{"client_secret_basic", "client_secret_post"} {
				// Both write the type in lower case, and turn a 401 with a challenge into
				// an error that names its scheme.
				want := used{Type: "bearer", Scope: "orders.read", ExpiresIn: 1800, Used: 200, Active: true, Revoked: 200, After: 401, Error: "basic",
					Metadata: issuer + "/.well-known/oauth-protected-resource"}
				if script == "oauth4webapi.mjs" {
					want.Resource, want.Servers = issuer, []string{issuer}
				}
				got := runProgram(t, client, node, filepath.Join("testdata", "interop", "node", script), issuer, method)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", method, diff)
				}
			}
		})
	}
}

// nodeWithModules returns Node.js if the modules are installed that the programs
// import.
func nodeWithModules(t *testing.T) string {
	t.Helper()
	return nodeWith(t, "oauth4webapi", "openid-client")
}

// nodeWith returns Node.js if the modules are installed.
func nodeWith(t *testing.T, modules ...string) string {
	t.Helper()
	node := gatewaytest.Require(t, "node", "nodejs")
	for _, module := range modules {
		if _, err := os.Stat(filepath.Join(nodeModules, module)); err != nil {
			gatewaytest.Missing(t, "Node.js has no module "+module+` here ("make interop-modules" installs it)`)
		}
	}
	return node
}

// runProgram runs a client program with its credentials in the environment and
// decodes what it prints.
func runProgram(t *testing.T, client gatewaytest.Credentials, name string, arguments ...string) used {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, arguments...)
	command.Env = append(os.Environ(), "CLIENT_ID="+client.ID, "CLIENT_SECRET="+client.Secret, "no_proxy=127.0.0.1")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", arguments, err, stderrOf(err))
	}
	var got used
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%q prints %q: %v", arguments, out, err)
	}
	return got
}

func TestCurl(t *testing.T) {
	t.Parallel()
	curl := gatewaytest.Require(t, "curl", "curl")
	g, client := newInterop(t)
	run := func(arguments ...string) (status, body string) {
		t.Helper()
		command := exec.Command(curl, append([]string{"--noproxy", "*", "-sS", "-m", "10", "-w", "\n%{http_code}"}, arguments...)...)
		out, err := command.Output()
		if err != nil {
			t.Fatalf("curl %q: %v\n%s", arguments, err, stderrOf(err))
		}
		i := strings.LastIndexByte(string(out), '\n')
		return string(out[i+1:]), string(out[:i])
	}
	endpoint := g.URL + "/oauth2/token"
	for name, arguments := range map[string][]string{
		"header": {"-u", client.ID + ":" + client.Secret, "-d", "grant_type=client_credentials", endpoint},
		"body": {"-d", "grant_type=client_credentials", "-d", "client_id=" + client.ID,
			"--data-urlencode", "client_secret=" + client.Secret, endpoint},
	} {
		status, body := run(arguments...)
		var token struct {
			AccessToken string `json:"access_token"`
			Scope       string `json:"scope"`
		}
		if err := json.Unmarshal([]byte(body), &token); status != "200" || err != nil || token.Scope != "orders.read orders.write" {
			t.Fatalf("%s: %s %s", name, status, body)
		}
		if status, body := run("--oauth2-bearer", token.AccessToken, g.URL+"/orders/1"); status != "200" || body != "ok" {
			t.Errorf("%s: with --oauth2-bearer: %s %s", name, status, body)
		}
		if status, _ := run("-H", "Authorization: Bearer "+token.AccessToken, "-X", "DELETE", g.URL+"/orders/1"); status != "200" {
			t.Errorf("%s: with -H: %s", name, status)
		}
	}
	if status, _ := run(g.URL + "/orders/1"); status != "401" {
		t.Errorf("without a token: %s", status)
	}
	if status, body := run("-u", client.ID+":wrong", "-d", "grant_type=client_credentials", endpoint); status != "401" || !strings.Contains(body, "invalid_client") {
		t.Errorf("with a wrong secret: %s %s", status, body)
	}
}

// pythonWith returns a Python that has a module which Debian has in pkg. What is
// first in PATH may be another Python than Debian's.
func pythonWith(t *testing.T, module, pkg string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import "+module).Run() == nil {
			return python
		}
	}
	gatewaytest.Missing(t, "no Python has the module "+module+" (Debian: apt-get install "+pkg+")")
	return ""
}

func stderrOf(err error) string {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}
