package handlers_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/internal/scope"
)

// ask calls one endpoint and decodes its JSON.
func ask(t *testing.T, endpoint problem.HandlerFunc, method, path string) (*httptest.ResponseRecorder, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	mux := http.NewServeMux()
	mux.Handle("/ids/{id}", endpoint)
	mux.Handle("/", endpoint)
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	var got map[string]any
	if method != http.MethodHead {
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s %s = %d %q: %v", method, path, w.Code, w.Body, err)
		}
	}
	return w, got
}

func TestServerMetadata(t *testing.T) {
	m := &handlers.Metadata{Issuer: "https://gw.example", Scopes: func() scope.List { return "b a" }}
	_, got := ask(t, m.Server, "GET", "/")
	secrets := []any{"client_secret_basic", "client_secret_post"}
	// RFC 8414 §3.2: response_types_supported would be empty, so it is left out.
	want := map[string]any{
		"issuer":         "https://gw.example",
		"token_endpoint": "https://gw.example/oauth2/token", "token_endpoint_auth_methods_supported": secrets,
		"revocation_endpoint": "https://gw.example/oauth2/revoke", "revocation_endpoint_auth_methods_supported": secrets,
		"introspection_endpoint": "https://gw.example/oauth2/introspect", "introspection_endpoint_auth_methods_supported": secrets,
		"grant_types_supported": []any{"client_credentials"},
		"scopes_supported":      []any{"a", "b"},
		"protected_resources":   []any{"https://gw.example"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metadata differ (-want +got):\n%s", d)
	}
}

func TestResourceMetadata(t *testing.T) {
	m := &handlers.Metadata{Issuer: "https://gw.example", Scopes: func() scope.List { return "" }}
	_, got := ask(t, m.Resource, "GET", "/")
	want := map[string]any{
		"resource": "https://gw.example", "authorization_servers": []any{"https://gw.example"}, "bearer_methods_supported": []any{"header"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metadata differ (-want +got):\n%s", d)
	}
}

// TestMetadataOfAnIssuerWithAPath: RFC 8414 §3.1 and RFC 9728 §3.1: the path of the issuer follows
// the well-known path.
func TestMetadataOfAnIssuerWithAPath(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://gw.example":     "https://gw.example/.well-known/oauth-protected-resource",
		"https://gw.example/a/b": "https://gw.example/.well-known/oauth-protected-resource/a/b",
		"http://localhost:8080":  "http://localhost:8080/.well-known/oauth-protected-resource",
	} {
		if got := (&handlers.Metadata{Issuer: issuer}).ResourceURL(); got != want {
			t.Errorf("ResourceURL of %s = %q, want %q", issuer, got, want)
		}
	}
}

func TestReadOnlyEndpoints(t *testing.T) {
	m := &handlers.Metadata{Issuer: "https://gw.example", Scopes: func() scope.List { return "" }}
	h := &handlers.Health{Readiness: func() handlers.Readiness { return handlers.Readiness{Ready: true} }}
	for name, endpoint := range map[string]problem.HandlerFunc{"server": m.Server, "resource": m.Resource, "live": h.Live, "ready": h.Ready} {
		if w, _ := ask(t, endpoint, "POST", "/"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s = %d, Allow %q", name, w.Code, w.Header().Get("Allow"))
		}
		if w, _ := ask(t, endpoint, "HEAD", "/"); w.Code != 200 {
			t.Errorf("HEAD %s = %d", name, w.Code)
		}
	}
}

// TestMetadataMayBeKept: metadata may be cached for a while, a refusal may not (RFC 9728 §7.10).
func TestMetadataMayBeKept(t *testing.T) {
	m := &handlers.Metadata{Issuer: "https://gw.example", Scopes: func() scope.List { return "" }}
	for name, endpoint := range map[string]problem.HandlerFunc{"server": m.Server, "resource": m.Resource} {
		for method, want := range map[string]string{"GET": "public, max-age=60", "POST": "no-store"} {
			if w, _ := ask(t, endpoint, method, "/"); w.Header().Get("Cache-Control") != want {
				t.Errorf("%s %s: Cache-Control = %q, want %q", method, name, w.Header().Get("Cache-Control"), want)
			}
		}
	}
}

func TestReady(t *testing.T) {
	worker := int64(7)
	decides, fails := handlers.Deciding{Ready: true}, handlers.Deciding{Missing: []string{"redis", "draining"}}
	whole := handlers.Readiness{Ready: true, Deciding: decides, Issuing: handlers.Issuing{Ready: true, Worker: &worker}}
	mute := handlers.Readiness{Ready: true, Deciding: decides, Issuing: handlers.Issuing{Missing: "no worker number"}}
	fresh := handlers.Readiness{Missing: []string{"first token"}, Deciding: decides, Issuing: handlers.Issuing{Missing: "no worker number"}}
	down := handlers.Readiness{Missing: fails.Missing, Deciding: fails}
	tests := []struct {
		state  handlers.Readiness
		query  string
		status int
		want   map[string]any
	}{
		{whole, "", 200, map[string]any{"ready": true, "deciding": map[string]any{"ready": true}, "issuing": map[string]any{"ready": true, "worker": 7.0}}},
		{whole, "?for=decide", 200, nil},
		{whole, "?for=issue", 200, nil},
		// The gateway can check tokens, but not issue them: still ready, except for token requests.
		{mute, "", 200, map[string]any{"ready": true, "deciding": map[string]any{"ready": true},
			"issuing": map[string]any{"ready": false, "missing": "no worker number"}}},
		{mute, "?for=decide", 200, nil},
		{mute, "?for=issue", 503, nil},
		// The gateway has never been able to issue.
		{fresh, "", 503, nil},
		{fresh, "?for=decide", 200, nil},
		{down, "", 503, map[string]any{"ready": false, "missing": []any{"redis", "draining"},
			"deciding": map[string]any{"ready": false, "missing": []any{"redis", "draining"}}, "issuing": map[string]any{"ready": false}}},
		{down, "?for=decide", 503, nil},
		{whole, "?for=tea", 400, nil},
	}
	for _, tt := range tests {
		h := &handlers.Health{Readiness: func() handlers.Readiness { return tt.state }}
		w, got := ask(t, h.Ready, "GET", "/readyz"+tt.query)
		if w.Code != tt.status {
			t.Errorf("%s: %d %v, want %d", tt.query, w.Code, got, tt.status)
		}
		if d := cmp.Diff(tt.want, got); tt.want != nil && d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.query, d)
		}
	}
}

func TestDecodeID(t *testing.T) {
	// The test vector of system C, with the Unix epoch.
	scheme, err := idgen.NewScheme(idgen.LayoutC, time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	h := &handlers.IDs{Scheme: scheme}
	id := idgen.ID(6979004485312020512)
	want := map[string]any{
		"id": id.String(), "decimal": "6979004485312020512", "issued_at": "2022-09-23T09:12:12.931Z",
		"datacenter": 2.0, "worker": 67.0, "worker_in_datacenter": 3.0, "sequence": 4.0, "rollback": 0.0,
	}
	for _, text := range []string{id.String(), "6979004485312020512"} {
		if w, got := ask(t, h.Read, "GET", "/ids/"+text); w.Code != 200 || cmp.Diff(want, got) != "" {
			t.Errorf("GET %s = %d (-want +got):\n%s", text, w.Code, cmp.Diff(want, got))
		}
	}
	for _, text := range []string{"x", "-1", "99999999999999999999", "zzzzzzzzzzz"} {
		if w, _ := ask(t, h.Read, "GET", "/ids/"+text); w.Code != 400 {
			t.Errorf("GET %s = %d, want 400", text, w.Code)
		}
	}
}
