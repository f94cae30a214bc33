package integration_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// TestUpstreamSpeaksHTTP2: a service with TLS is spoken to in HTTP/2 if it offers
// that, except where a WebSocket may come, and in HTTP/1.1 if it does not.
func TestUpstreamSpeaksHTTP2(t *testing.T) {
	t.Parallel()
	response := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen-Proto", r.Proto)
		w.Header().Set("X-Seen-Client", r.Header.Get("X-Snowgate-Client"))
	})
	start := func(http2 bool) *httptest.Server {
		server := cuttest.NewUnstartedServer(response)
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	modern, old := start(true), start(false)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	writePEM(t, roots, "CERTIFICATE", modern.Certificate().Raw) // the same for both

	client := gatewaytest.NewClient("worker", "read")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML + `routes:
  - {name: modern, path: /modern, upstreams: ["` + modern.URL + `"], scopes: [read]}
  - {name: socket, path: /socket, upstreams: ["` + modern.URL + `"], scopes: [read], websocket: true}
  - {name: old, path: /old, upstreams: ["` + old.URL + `"], scopes: [read]}
`,
		Env: []string{"SSL_CERT_FILE=" + roots},
	})
	token := g.Token(client)
	for path, proto := range map[string]string{"/modern": "HTTP/2.0", "/socket": "HTTP/1.1", "/old": "HTTP/1.1"} {
		for range 2 { // the second on a kept connection
			got := g.Get(path, token)
			if got.StatusCode != http.StatusOK || got.Header.Get("X-Seen-Proto") != proto || got.Header.Get("X-Seen-Client") != "worker" {
				t.Errorf("GET %s = %d, spoken to in %q as %q, want %s", path, got.StatusCode, got.Header.Get("X-Seen-Proto"), got.Header.Get("X-Seen-Client"), proto)
			}
		}
	}
	if got := g.Get("/modern", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got.StatusCode)
	}
}
