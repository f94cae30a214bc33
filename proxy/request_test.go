package proxy_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"snowgate/proxy/route"
)

const authorized = "Authorization: Bearer " + goodText + "\r\n"

func get(target, fields string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: gw.example\r\n" + fields + "\r\n"
}

var requestID = regexp.MustCompile(`X-Request-Id: [0-9a-f]{32}\r\n`)

func TestExactBytesToTheService(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	route := protected(service.url)
	route.StripPrefix = true
	g := newGateway(t, gatewayOptions{}, route)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	response, body := g.ask(t, "POST /svc/a%3ab?x=;%zz&&y HTTP/1.1\r\nHost: gw.example:8080\r\n"+authorized+
		"Connection: keep-alive, X-Snowgate-Client\r\nContent-Length: 5\r\nCookie: a=b\r\n"+
		"Traceparent: "+trace+"\r\nTracestate: v=1\r\nX-Snowgate-Client: admin\r\n\r\nhello")
	if response.StatusCode != http.StatusOK || body != "ok" {
		t.Fatalf("answer = %d %q", response.StatusCode, body)
	}
	got := requestID.ReplaceAllString(service.received(t), "X-Request-Id: ID\r\n")
	want := "POST /a%3ab?x=;%zz&&y HTTP/1.1\r\n" +
		"Host: gw.example:8080\r\n" +
		"Content-Length: 5\r\n" +
		"Cookie: a=b\r\n" +
		"Traceparent: " + trace + "\r\n" +
		"Tracestate: v=1\r\n" +
		"X-Forwarded-For: 127.0.0.1\r\n" +
		"X-Forwarded-Host: gw.example:8080\r\n" +
		"X-Forwarded-Proto: http\r\n" +
		"X-Request-Id: ID\r\n" +
		"X-Snowgate-Client: orders-worker\r\n" +
		"X-Snowgate-Scope: orders.read orders.write\r\n" +
		"X-Snowgate-Token-Expires: 2026-08-01T12:00:00Z\r\n" +
		"X-Snowgate-Token-Id: " + tokenID.String() + "\r\n" +
		"\r\nhello"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the service received, -want +got\n%s", diff)
	}
}

func TestTargets(t *testing.T) {
	tests := []struct {
		strip     bool
		base      string
		target    string
		forwarded string
		why       string
	}{
		{false, "", "/svc", "/svc", "as it is"},
		{false, "", "/svc/", "/svc/", "trailing slash"},
		{false, "", "/svc?", "/svc?", "an empty query stays"},
		{false, "", "/svc?a?b=%2e%2E/../;c=\"|{}ä", "/svc?a?b=%2e%2E/../;c=\"|{}ä", "no byte of the query is touched"},
		{false, "", "/svc?" + strings.Repeat("p=1&", 10_001), "/svc?" + strings.Repeat("p=1&", 10_001), "10 001 parameters"},
		{false, "", "/svc?access_token=x", "/svc?access_token=x", "the query is the service's business"},
		{false, "", "/svc/%252e%252e/x", "/svc/%252e%252e/x", "never decoded twice"},
		{false, "", "/svc/a'(b)!*,;=:@$&+", "/svc/a'(b)!*,;=:@$&+", "pchar that net/url would encode"},
		{false, "", "/svc/%C3%a4%20", "/svc/%C3%a4%20", "the encoding is kept, in its case"},
		{false, "", "http://other.example/svc/x?y", "/svc/x?y", "absolute-form"},
		{true, "", "/svc", "/", "stripped to the root"},
		{true, "", "/svc?q", "/?q", "with a query"},
		{true, "", "/svc/", "/", "stripped with its slash"},
		{true, "", "/svc/x//"[:len("/svc/x/")], "/x/", "a trailing slash stays"},
		{true, "", "/svc/a%3Ab%20c", "/a%3Ab%20c", "stripping keeps the encoding"},
		{false, "/base", "/svc/x", "/base/svc/x", "a base path"},
		{true, "/base", "/svc/x", "/base/x", "a base path in place of the prefix"},
		{true, "/base/", "/svc", "/base/", "one slash between them"},
		{true, "/b%3Ase", "/svc/%3A", "/b%3Ase/%3A", "both keep their encoding"},
	}
	for _, test := range tests {
		service := newUpstream(t, says(okResponse))
		route := public(mustParse(t, service.url.String()+test.base))
		route.Path, route.StripPrefix = "/svc", test.strip
		g := newGateway(t, gatewayOptions{}, route)
		response, _ := g.ask(t, get(test.target, ""))
		if response.StatusCode != http.StatusOK {
			t.Errorf("GET %.80q = %d, want 200 (%s)", test.target, response.StatusCode, test.why)
			continue
		}
		got, _, _ := strings.Cut(service.received(t), "\r\n")
		if want := "GET " + test.forwarded + " HTTP/1.1"; got != want {
			t.Errorf("GET %.80q: the service received %.120q, want %.120q (%s)", test.target, got, want, test.why)
		}
	}
}

func TestStripCountsSegments(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, route.Route{
		Name: "a", Path: "/a:b/c", Upstreams: somewhere, Public: true,
	}, route.Route{
		Name: "b", Path: "/b:b/c", Upstreams: public(service.url).Upstreams, Public: true, StripPrefix: true,
	})
	g.ask(t, get("/b%3Ab/c/d", ""))
	if got := service.received(t); !strings.HasPrefix(got, "GET /d HTTP/1.1\r\n") {
		t.Errorf("the service received %q, want the path /d", got)
	}
}

func TestNonCanonicalTargetsContactNobody(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	root := public(service.url)
	root.Name, root.Path = "root", "/"
	g := newGateway(t, gatewayOptions{}, protected(service.url), public(service.url), root)
	for _, target := range []string{
		"//svc/x", "/./svc/x", "/public/../svc/x", "/public/%2e%2e/svc/x", "/public/..%2fsvc/x", "/%73vc/x",
		"/svc%2fx", "/public/..;/svc/x", `/public\..\svc\x`, "/svc%00/x", "/svc/x#y", "/svc?a#b", "/%ff", "/%c0%ae%c0%ae/svc",
		"http://u@gw.example/public", "http://u:p@gw.example/public", "ftp://gw.example/public", "http:///public", "*", "/nowhere%2Fx",
		"/public/;/svc", "/public/%2E./svc", "/public/.%3b/svc", "/svc%5cx", "/ä", "/a%7f",
	} {
		for _, fields := range []string{"", authorized} {
			response, _ := g.ask(t, get(target, fields))
			if response.StatusCode != http.StatusBadRequest {
				t.Errorf("GET %q = %d, want 400", target, response.StatusCode)
			}
		}
		service.nothing(t)
	}
	canary(t, g, service)
}

// canary checks that the gateway still serves, and each identity field once.
func canary(t *testing.T, g *gateway, service *testService) {
	t.Helper()
	response, _ := g.ask(t, get("/svc/canary", authorized))
	if response.StatusCode != http.StatusOK {
		t.Fatalf("canary = %d, want 200", response.StatusCode)
	}
	got := service.received(t)
	for name, want := range map[string]string{
		"X-Snowgate-Client": "orders-worker", "X-Snowgate-Scope": "orders.read orders.write",
		"X-Snowgate-Token-Id": tokenID.String(), "X-Snowgate-Token-Expires": "2026-08-01T12:00:00Z",
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "gw.example", "X-Forwarded-Proto": "http",
	} {
		if diff := cmp.Diff([]string{want}, rawField(got, name)); diff != "" {
			t.Errorf("canary: %s -want +got\n%s", name, diff)
		}
	}
	for _, name := range []string{"X-Request-Id", "Traceparent"} {
		if values := rawField(got, name); len(values) != 1 {
			t.Errorf("canary: %s = %q, want one value", name, values)
		}
	}
	if strings.Contains(got, goodText) {
		t.Error("canary: the service received the token")
	}
}

func TestRefusals(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	limited := public(service.url)
	limited.Name, limited.Path, limited.Methods = "limited", "/limited", []string{"GET", "POST"}
	hosted := public(service.url)
	hosted.Name, hosted.Host, hosted.Path = "hosted", "shop.example", "/hosted"
	g := newGateway(t, gatewayOptions{}, protected(service.url), limited, hosted, route.Route{Name: "auth-only", Path: "/auth-only"})
	tests := []struct {
		raw    string
		status int
		field  string // name: value that the response has
		why    string
	}{
		{get("/nowhere", ""), 404, "", "no route"},
		{get("/svcx", authorized), 404, "", "/svcx is not below /svc"},
		{get("/SVC/x", authorized), 404, "", "case counts"},
		{get("/hosted", ""), 404, "", "another host"},
		{get("/auth-only", authorized), 404, "", "a route without a service"},
		{get("/svc", ""), 401, `WWW-Authenticate: Bearer realm="snowgate"`, "no token"},
		{get("/svc?access_token="+goodText, ""), 401, "", "the query is no place for one"},
		{get("/svc", "Cookie: access_token="+goodText+"\r\n"), 401, "", "nor is a cookie"},
		{get("/svc", "Authorization: Bearer nonsense\r\n"), 401, `WWW-Authenticate: Bearer realm="snowgate", error="invalid_token"`, "not known"},
		{get("/svc", authorized+authorized), 400, `WWW-Authenticate: Bearer realm="snowgate", error="invalid_request"`, "two lines"},
		{get("/svc", "Authorization: Bearer unavailable\r\n"), 503, "Retry-After: 1", "no verdict"},
		{"DELETE /limited HTTP/1.1\r\nHost: h\r\n\r\n", 405, "Allow: GET, POST", "not among the methods"},
		{"HEAD /limited HTTP/1.1\r\nHost: h\r\n\r\n", 405, "Allow: GET, POST", "HEAD has to be named"},
		{"OPTIONS /svc HTTP/1.1\r\nHost: h\r\nOrigin: http://a\r\n\r\n", 401, "", "a CORS preflight is a request like any other"},
		{"TRACE /limited HTTP/1.1\r\nHost: h\r\n\r\n", 405, "", "TRACE"},
		{"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", 405, "", "CONNECT"},
		{"CONNECT /svc HTTP/1.1\r\nHost: h:80\r\n\r\n", 405, "", "CONNECT with a path"},
		{"GET /limited HTTP/1.1\r\nHost:\r\n\r\n", 400, "", "an empty Host"},
		{"GET /limited HTTP/1.1\r\n\r\n", 400, "", "no Host"},
		{"GET /limited HTTP/1.0\r\n\r\n", 400, "", "HTTP/1.0 may leave it out, we do not guess"},
		{"GET /limited HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, "", "two Hosts"},
		{"GET /limited HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "", "not a host"},
	}
	for _, test := range tests {
		response, _ := g.ask(t, test.raw)
		if response.StatusCode != test.status {
			t.Errorf("%q = %d, want %d (%s)", test.raw, response.StatusCode, test.status, test.why)
		}
		name, value, _ := strings.Cut(test.field, ": ")
		if got := response.Header.Get(name); got != value {
			t.Errorf("%q: %s = %q, want %q (%s)", test.raw, name, got, value, test.why)
		}
		service.nothing(t)
	}
	response, _ := g.ask(t, "GET /hosted HTTP/1.1\r\nHost: Shop.EXAMPLE.:99\r\n\r\n")
	if response.StatusCode != http.StatusOK {
		t.Errorf("GET of a host in another spelling = %d, want 200", response.StatusCode)
	}
	service.received(t)
	canary(t, g, service)
}

func TestEncodedSlash(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	route := public(service.url)
	route.AllowEncodedSlash, route.StripPrefix = true, true
	g := newGateway(t, gatewayOptions{}, route)
	if response, _ := g.ask(t, get("/public/a%2fb%3A/c", "")); response.StatusCode != http.StatusOK {
		t.Fatalf("an encoded slash where it is allowed = %d, want 200", response.StatusCode)
	}
	if got := service.received(t); !strings.HasPrefix(got, "GET /a%2fb%3A/c HTTP/1.1\r\n") {
		t.Errorf("the service received %q", got)
	}
	for _, target := range []string{"/public/..%2fx", "/public/a%2F..", "/public%2Fa", "/public/%2e%2fx"} {
		if response, _ := g.ask(t, get(target, "")); response.StatusCode != http.StatusBadRequest {
			t.Errorf("GET %q = %d, want 400", target, response.StatusCode)
		}
	}
	service.nothing(t)
}

func TestRoundRobin(t *testing.T) {
	a, b := newUpstream(t, says(okResponse)), newUpstream(t, says(okResponse))
	route := public(a.url)
	route.Upstreams = append(route.Upstreams, b.url)
	g := newGateway(t, gatewayOptions{}, route)
	for range 6 {
		g.ask(t, get("/public", ""))
	}
	if len(a.requests) != 3 || len(b.requests) != 3 {
		t.Errorf("six requests went %d times to one service and %d times to the other", len(a.requests), len(b.requests))
	}
}

func TestSwapKeepsConnections(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	for range 5 {
		g.ask(t, get("/public", ""))
		table, err := route.NewTable([]route.Route{public(service.url)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.router.Swap(table)
	}
	service.mu.Lock()
	defer service.mu.Unlock()
	if service.connections != 1 {
		t.Errorf("five requests over four reloads took %d connections, want 1", service.connections)
	}
}

func TestEnvironmentProxiesAreIgnored(t *testing.T) {
	nobody := newUpstream(t, says(okResponse))
	t.Setenv("HTTP_PROXY", nobody.url.String())
	t.Setenv("http_proxy", nobody.url.String())
	// net/http exempts loopback from environment proxies, so a name is asked
	// for that resolves nowhere: a 502 says that nobody was asked to help.
	g := newGateway(t, gatewayOptions{}, public(mustParse(t, "http://service.invalid")))
	if response, _ := g.ask(t, get("/public", "")); response.StatusCode != http.StatusBadGateway {
		t.Errorf("GET = %d, want 502", response.StatusCode)
	}
	nobody.nothing(t)
}
