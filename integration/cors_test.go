package integration_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

const corsResponse = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\nETag: v1\r\nX-Hidden: 1\r\n" +
	"Access-Control-Allow-Origin: https://service.example\r\nAccess-Control-Expose-Headers: X-Hidden\r\n\r\nok"

const corsRoutes = `
  - {name: shop, path: /shop, methods: [GET, POST], upstreams: [$SERVICE], scopes: [svc.use],
     cors: {origins: ["$ORIGIN"], exposed_headers: [ETag]}}
  - {name: account, path: /account, upstreams: [$SERVICE], scopes: [svc.use], rate: 1/h,
     cors: {origins: ["$ORIGIN"], credentials: true}}
  - {name: dead, path: /dead, upstreams: ["http://127.0.0.1:1"], public: true, cors: {origins: ["*"]}}
  - {name: plain, path: /plain, upstreams: [$SERVICE], scopes: [svc.use]}
`

// newCORSSite starts a gateway whose routes speak to pages of origin.
func newCORSSite(t *testing.T, origin string) (g *gatewaytest.Gateway, service *gatewaytest.Recorder, token string) {
	t.Helper()
	service = gatewaytest.NewRecorder(t, corsResponse)
	client := gatewaytest.NewClient("worker", "svc.use")
	g = gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML + "routes:" + strings.NewReplacer("$SERVICE", service.URL, "$ORIGIN", origin).Replace(corsRoutes),
	})
	return g, service, g.Token(client)
}

// TestCORS: preflights never reach the service and need no token, the responses of
// the gateway can be read by a page, and a reload changes what is said.
func TestCORS(t *testing.T) {
	t.Parallel()
	g, service, token := newCORSSite(t, "https://app.example")
	preflight := func(path, method string) gatewaytest.Response {
		return g.Exchange(rawRequest("OPTIONS", "h", path, []string{"Origin: https://app.example", "Access-Control-Request-Method: " + method, "Access-Control-Request-Headers: authorization"}, ""))
	}
	got := preflight("/shop/1", "POST")
	if got.StatusCode != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || got.Header.Get("Access-Control-Max-Age") != "600" {
		t.Errorf("a preflight = %d %v, want 204 that allows it for ten minutes", got.StatusCode, got.Header)
	}
	if got := preflight("/shop/1", "DELETE"); got.StatusCode != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a preflight for a method of no route = %d %v, want 204 without permission", got.StatusCode, got.Header)
	}
	if got := preflight("/plain/1", "GET"); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a preflight to a route without cors = %d, want 401 as for any OPTIONS", got.StatusCode)
	}
	if requests := service.Requests(); len(requests) > 0 {
		t.Errorf("the service received %q", requests)
	}
	for path, status := range map[string]int{"/shop/1": 401, "/dead/1": 502} {
		got := g.Exchange(rawGet("h", path, "Origin: https://app.example"))
		if got.StatusCode != status || got.Header.Get("Access-Control-Allow-Origin") == "" || !strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "Www-Authenticate") {
			t.Errorf("GET %s = %d %v, want %d that a page can read", path, got.StatusCode, got.Header, status)
		}
	}
	got = g.Exchange(rawGet("h", "/shop/1", "Origin: https://app.example", bearer(token)))
	if allowed := got.Header["Access-Control-Allow-Origin"]; got.StatusCode != http.StatusOK || len(allowed) != 1 || allowed[0] != "https://app.example" {
		t.Errorf("GET /shop/1 = %d, allowed to %q, want the gateway's word alone", got.StatusCode, allowed)
	}
	if raw := service.Only(); !strings.Contains(raw, "\r\nOrigin: https://app.example\r\n") {
		t.Errorf("the service received %q, want the Origin in it", raw)
	}
	if n := g.Metrics().Sum("snowgate_http_requests_total", `route="shop"`, `method="OPTIONS"`); n != 2 {
		t.Errorf("%v preflights of the route are counted, want 2", n)
	}
	text := strings.ReplaceAll(readFile(t, g.ConfigPath), "https://app.example", "https://new.example")
	if err := os.WriteFile(g.ConfigPath, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Eventually(t, 10*time.Second, "the reload takes the permission back", func() bool {
		return preflight("/shop/1", "POST").Header.Get("Access-Control-Allow-Origin") == ""
	})
}

// page is what one request of a page asks for and must be told.
type page struct {
	Path    string         `json:"path"`
	Options map[string]any `json:"options"`
	Header  string         `json:"header"` // that the page looks at

	status int    // 0: the browser tells the page nothing
	value  string // of Header
	why    string
}

// TestCORSInABrowser has pages of two origins use the gateway in a real browser.
// One of them is allowed to.
func TestCORSInABrowser(t *testing.T) {
	t.Parallel()
	chromium := gatewaytest.Require(t, "chromium", "chromium")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	allowed, stranger := "www.app.localhost:"+port, "evil.localhost:"+port
	g, service, token := newCORSSite(t, "http://*.app.localhost:"+port)
	pages := map[string][]page{allowed: allowedPage(token), stranger: strangerPage(token)}

	results := browse(t, chromium, listener, g, pages, allowed, stranger)
	for host, requests := range pages {
		for i, request := range requests {
			got := results[host][i]
			if got.Status != request.status || got.Header != request.value || request.status == 200 && got.Body != "ok" {
				t.Errorf("a page of %s asks for %s (%s) and is told %+v, want %d %q", host, request.Path, request.why, got, request.status, request.value)
			}
		}
	}
	for _, raw := range service.Requests() {
		if strings.HasPrefix(raw, "OPTIONS ") || strings.HasPrefix(raw, "DELETE ") || strings.HasPrefix(raw, "PUT ") {
			t.Errorf("the service received %q", raw)
		}
	}
}

func allowedPage(token string) []page {
	with := map[string]string{"Authorization": "Bearer " + token}
	return []page{
		{"/shop/1", map[string]any{"headers": with}, "ETag", 200, "v1", "a token, and a field that is exposed"},
		{"/shop/1", map[string]any{"headers": with}, "X-Hidden", 200, "", "one that only the service exposes"},
		{"/shop/1", nil, "WWW-Authenticate", 401, `Bearer realm="snowgate", resource_metadata="http://localhost:8080/.well-known/oauth-protected-resource"`, "no token: the page learns why"},
		{"/shop/1", map[string]any{"method": "POST", "body": "{}", "headers": map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json"}}, "", 200, "", "JSON"},
		{"/shop/1", map[string]any{"method": "DELETE", "headers": with}, "", 0, "", "not among the methods of the route"},
		{"/shop/1", map[string]any{"headers": map[string]string{"Authorization": "Bearer " + token, "X-Other": "1"}}, "", 0, "", "a field that is not allowed"},
		{"/shop/1", map[string]any{"headers": with, "credentials": "include"}, "", 0, "", "cookies, which the route does not allow"},
		{"/account/1", map[string]any{"method": "PATCH", "headers": with, "credentials": "include"}, "", 200, "", "cookies, which this one does"},
		{"/account/1", map[string]any{"headers": with}, "RateLimit-Policy", 429, `"route";q=1;w=3600`, "too often, and the page learns how often it may"},
		{"/dead/1", map[string]any{"method": "PUT"}, "", 502, "", "nobody there"},
		{"/plain/1", map[string]any{"headers": with}, "", 0, "", "a route without cors"},
	}
}

func strangerPage(token string) []page {
	with := map[string]string{"Authorization": "Bearer " + token}
	return []page{
		{"/shop/1", map[string]any{"headers": with}, "", 0, "", "the origin is not allowed"},
		{"/shop/1", nil, "", 0, "", "nor without a preflight"},
		{"/account/1", map[string]any{"headers": with, "credentials": "include"}, "", 0, "", "nor with cookies"},
		{"/dead/1", nil, "", 502, "", "every origin is"},
	}
}

// told is what a page has got to see of a response.
type told struct {
	Status              int
	Body, Header, Fault string
}

// browse opens the page of host, which holds that of framed, in a browser, and
// returns what both report.
func browse(t *testing.T, chromium string, listener net.Listener, g *gatewaytest.Gateway, pages map[string][]page, host, framed string) map[string][]told {
	t.Helper()
	template := readFile(t, "testdata/cors/page.html")
	type report struct {
		host    string
		results []told
	}
	reports := make(chan report, len(pages))
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			requests, frame := pages[r.Host], ""
			if r.Host == host {
				frame = `<iframe src="http://` + framed + `/"></iframe>`
			}
			text, _ := json.Marshal(requests)
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, strings.NewReplacer("$GATEWAY", g.URL, "$REQUESTS", string(text), "$FRAME", frame).Replace(template))
		case "/results":
			var results []told
			if err := json.NewDecoder(r.Body).Decode(&results); err == nil && len(results) == len(pages[r.Host]) {
				reports <- report{r.Host, results}
			}
		default:
			http.NotFound(w, r)
		}
	})}}
	server.Start()
	t.Cleanup(server.Close)

	browser := exec.CommandContext(t.Context(), chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
		"--no-first-run", "--disable-background-networking", "--user-data-dir="+t.TempDir(), "http://"+host+"/")
	var log strings.Builder
	browser.Stdout, browser.Stderr = &log, &log
	browser.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is many processes
	browser.WaitDelay = 10 * time.Second
	if err := browser.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = browser.Wait(); close(ended) }()
	defer func() {
		_ = syscall.Kill(-browser.Process.Pid, syscall.SIGKILL)
		<-ended // when the last of them has closed its output
	}()
	found := make(map[string][]told)
	for len(found) < len(pages) {
		select {
		case one := <-reports:
			found[one.host] = one.results
		case <-ended:
			t.Fatalf("the browser ends: %s", log.String())
		case <-time.After(time.Minute):
			t.Fatalf("the pages report nothing; have %v", found)
		}
	}
	return found
}
