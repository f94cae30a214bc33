package integration_test

import (
	"net/http"
	"slices"
	"testing"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// newHSTSGateway starts a gateway whose service has ideas of its own about TLS.
func newHSTSGateway(t *testing.T, env ...string) *gatewaytest.Gateway {
	t.Helper()
	service := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=1; of-the-service")
	}))
	t.Cleanup(service.Close)
	return gatewaytest.Start(t, gatewaytest.Options{Env: env, Config: `clients: []
routes:
  - {name: public, path: /public, upstreams: ["` + service.URL + `"], public: true}
  - {name: svc, path: /svc, upstreams: ["` + service.URL + `"], scopes: [read]}
  - {name: dead, path: /dead, upstreams: ["http://127.0.0.1:1"], public: true}
`})
}

const hstsValue = "max-age=63072000; includeSubDomains"

// TestHSTS: every response over TLS has the field once, whoever makes it.
func TestHSTS(t *testing.T) {
	t.Parallel()
	pair := newKeyPair(t)
	pair.write(t, 1)
	secure := []string{"SNOWGATE_TLS_CERT=" + pair.cert, "SNOWGATE_TLS_KEY=" + pair.key, "SNOWGATE_TRUSTED_PROXIES=127.0.0.1"}
	g := newHSTSGateway(t, append(secure, "SNOWGATE_HSTS=MAX-AGE=63072000;includesubdomains")...)
	g.URL = "https://" + g.Addr
	for _, protocols := range []*http.Protocols{only((*http.Protocols).SetHTTP1), only((*http.Protocols).SetHTTP2)} {
		for target, status := range map[string]int{
			"/public/x": 200, "/livez": 200, "/oauth2/token": 405, "/svc/x": 401, "/none": 404, "/public//x": 400, "/dead": 502,
		} {
			request := g.Request(http.MethodGet, "/", nil)
			request.URL.Opaque = "//" + g.Addr + target
			got := askIn(t, protocols, request)
			if said := got.Header["Strict-Transport-Security"]; got.StatusCode != status || !slices.Equal(said, []string{hstsValue}) {
				t.Errorf("GET %s in %s = %d, Strict-Transport-Security %q, want %d, %q once", target, got.Proto, got.StatusCode, said, status, hstsValue)
			}
		}
	}
	// The proxy in front has talked to its client without TLS.
	request := g.Request(http.MethodGet, "/livez", nil)
	request.Header.Set("X-Forwarded-Proto", "http")
	if said := askIn(t, only((*http.Protocols).SetHTTP1), request).Header["Strict-Transport-Security"]; said != nil {
		t.Errorf("to a client without TLS: %q", said)
	}

	silent := newHSTSGateway(t, secure...)
	silent.URL = "https://" + silent.Addr
	got := askIn(t, only((*http.Protocols).SetHTTP2), silent.Request(http.MethodGet, "/public/x", nil))
	if said := got.Header["Strict-Transport-Security"]; !slices.Equal(said, []string{"max-age=1; of-the-service"}) {
		t.Errorf("without SNOWGATE_HSTS: %q, want what the service says", said)
	}
}

// TestHSTSBehindAProxy: without TLS of its own the gateway goes by what a trusted
// proxy says, and by nobody else.
func TestHSTSBehindAProxy(t *testing.T) {
	t.Parallel()
	behind := newHSTSGateway(t, "SNOWGATE_HSTS="+hstsValue, "SNOWGATE_TRUSTED_PROXIES=127.0.0.1")
	open := newHSTSGateway(t, "SNOWGATE_HSTS="+hstsValue, "SNOWGATE_TRUSTED_PROXIES=192.0.2.1")
	tests := []struct {
		g     *gatewaytest.Gateway
		proto []string
		want  []string
		why   string
	}{
		{behind, []string{"https"}, []string{hstsValue}, "a trusted proxy speaks TLS"},
		{behind, []string{"HTTPS"}, []string{hstsValue}, "in capitals"},
		{behind, []string{"http"}, nil, "it does not"},
		{behind, nil, nil, "it does not say"},
		{behind, []string{"https", "http"}, nil, "it says both"},
		{open, []string{"https"}, nil, "anybody can say so"},
	}
	for _, test := range tests {
		request := test.g.Request(http.MethodGet, "/livez", nil)
		request.Header["X-Forwarded-Proto"] = test.proto
		if got := test.g.Do(request); !slices.Equal(got.Header["Strict-Transport-Security"], test.want) {
			t.Errorf("X-Forwarded-Proto %q: Strict-Transport-Security %q, want %q (%s)", test.proto, got.Header["Strict-Transport-Security"], test.want, test.why)
		}
	}
}
