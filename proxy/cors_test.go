package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
	"snowgate/limit"
	"snowgate/proxy"
	"snowgate/proxy/route"
)

// withCORS returns r with what it says to browsers.
func withCORS(r route.Route, c route.CORS) route.Route {
	r.CORS = &c
	return r
}

var oneOrigin = route.CORS{
	Origins: []string{"https://app.example", "https://*.wide.example"}, RequestHeaders: []string{"Authorization", "X-Trace"},
	ExposedHeaders: []string{"ETag"}, MaxAge: time.Minute,
}

// said returns the fields of h that browsers decide by.
func said(h http.Header) map[string]string {
	found := make(map[string]string)
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			found[name] = strings.Join(values, " | ")
		}
	}
	return found
}

const preflightVary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"

// Preflights are answered by the gateway, without a token, whatever the methods of
// the route are, and the service never sees them.
func TestPreflight(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	only := protected(service.url)
	only.Methods = []string{"GET", "PURGE"}
	g := newGateway(t, gatewayOptions{}, withCORS(only, oneOrigin))
	allowed := func(origin, method string) map[string]string {
		return map[string]string{
			"Vary": preflightVary, "Access-Control-Allow-Origin": origin, "Access-Control-Allow-Methods": method, "Access-Control-Max-Age": "60",
		}
	}
	with := func(m map[string]string, name, value string) map[string]string { m[name] = value; return m }
	refused := map[string]string{"Vary": preflightVary}
	tests := []struct {
		origin, method, headers string
		want                    map[string]string
		cause                   string
	}{
		{"https://app.example", "GET", "", allowed("https://app.example", "GET"), ""},
		{"https://app.example", "PURGE", "", allowed("https://app.example", "PURGE"), ""},
		{"https://a.b.wide.example", "GET", "", allowed("https://a.b.wide.example", "GET"), ""},
		{"https://app.example", "GET", "authorization,x-trace", with(allowed("https://app.example", "GET"), "Access-Control-Allow-Headers", "authorization,x-trace"), ""},
		{"https://app.example", "POST", "", refused, "the method is not allowed"},
		{"https://app.example", "get", "", refused, "the method is not allowed"},
		{"https://app.example", "GET", "authorization,x-other", refused, "a header field is not allowed"},
		{"https://app.example:8443", "GET", "", refused, "the origin is not allowed"},
		{"http://app.example", "GET", "", refused, "the origin is not allowed"},
		{"https://wide.example", "GET", "", refused, "the origin is not allowed"},
		{"https://evilwide.example", "GET", "", refused, "the origin is not allowed"},
		{"https://app.example.evil.example", "GET", "", refused, "the origin is not allowed"},
		{"null", "GET", "", refused, "the origin is not allowed"},
	}
	for _, test := range tests {
		raw := "OPTIONS /svc/x HTTP/1.1\r\nHost: h\r\nOrigin: " + test.origin + "\r\nAccess-Control-Request-Method: " + test.method + "\r\n"
		if test.headers != "" {
			raw += "Access-Control-Request-Headers: " + test.headers + "\r\n"
		}
		response, body := g.ask(t, raw+"\r\n")
		if diff := cmp.Diff(test.want, said(response.Header)); diff != "" || response.StatusCode != http.StatusNoContent || body != "" {
			t.Errorf("%+v = %d (-want +got):\n%s", test, response.StatusCode, diff)
		}
		if line, _ := g.log.next(t); line.Route != "protected" || line.Status != http.StatusNoContent || !strings.HasSuffix(line.Cause, test.cause) || (line.Cause == "") != (test.cause == "") {
			t.Errorf("%+v: the access line is %+v, want cause %q", test, line, test.cause)
		}
	}
	service.nothing(t)
}

// A request that is no preflight is treated like any other.
func TestNoPreflight(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, withCORS(protected(service.url), oneOrigin))
	for _, test := range []struct {
		fields string
		status int
		vary   string
	}{
		{"Origin: https://app.example\r\n", 401, "Origin"},
		{"Access-Control-Request-Method: GET\r\n", 401, "Origin"},
		{"Origin: https://app.example\r\nAccess-Control-Request-Method:\r\n", 401, "Origin"},
		{"Origin:\r\nAccess-Control-Request-Method: GET\r\n", 401, "Origin"},
		{"Origin: https://app.example\r\nOrigin: https://b.example\r\nAccess-Control-Request-Method: GET\r\n", 400, ""},
		{"Origin: https://app.example\r\nAuthorization: Bearer " + goodText + "\r\n", 200, "Origin"},
	} {
		response, _ := g.ask(t, "OPTIONS /svc/x HTTP/1.1\r\nHost: h\r\n"+test.fields+"\r\n")
		if response.StatusCode != test.status || response.Header.Get("Vary") != test.vary {
			t.Errorf("OPTIONS with %q = %d, Vary %q, want %d, %q", test.fields, response.StatusCode, response.Header.Get("Vary"), test.status, test.vary)
		}
	}
	service.received(t)
	service.nothing(t)
	// Other routes, and paths that are refused, have no preflights.
	plain := newGateway(t, gatewayOptions{}, protected(service.url), withCORS(public(service.url), oneOrigin))
	for path, status := range map[string]int{"/svc/x": 401, "/none": 404, "/public%2fx": 400, "/public//x": 400} {
		response, _ := plain.ask(t, "OPTIONS "+path+" HTTP/1.1\r\nHost: h\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n\r\n")
		if response.StatusCode != status || len(said(response.Header)) > 0 {
			t.Errorf("a preflight to %s = %d %v, want %d and nothing about origins", path, response.StatusCode, response.Header, status)
		}
	}
	service.nothing(t)
}

// Every response tells the browser, whoever makes it, and the service's own words
// are gone.
func TestCORSOnEveryResponse(t *testing.T) {
	const talkative = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nVary: Accept\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n" +
		"Access-Control-Expose-Headers: X-Secret\r\nAccess-Control-Allow-Private-Network: true\r\nETag: x\r\n\r\nok"
	service := newUpstream(t, says(talkative))
	spec := withCORS(protected(service.url), oneOrigin)
	spec.MaxBody = 1
	dead := withCORS(public(mustParse(t, "http://127.0.0.1:1")), oneOrigin)
	g := newGateway(t, gatewayOptions{rates: new(rates)}, spec, dead, limitedRoute(service))
	g.ask(t, "GET /limited HTTP/1.1\r\nHost: h\r\n\r\n") // the only one for an hour
	token := "Authorization: Bearer " + goodText + "\r\n"
	told := func(vary string) map[string]string {
		return map[string]string{
			"Vary": vary, "Access-Control-Allow-Origin": "https://app.example",
			"Access-Control-Expose-Headers": "Www-Authenticate, Retry-After, Ratelimit, Ratelimit-Policy, X-Request-Id, Etag",
		}
	}
	tests := []struct {
		request string
		status  int
		vary    string
	}{
		{"GET /svc/x HTTP/1.1\r\nHost: h\r\n" + token, 200, "Origin | Accept"},
		{"GET /svc/x HTTP/1.1\r\nHost: h\r\n", 401, "Origin"},
		{"GET /svc/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a b\r\n", 400, "Origin"},
		{"GET /svc/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer unavailable\r\n", 503, "Origin"},
		{"POST /svc/x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n" + token, 413, "Origin"},
		{"GET /public/x HTTP/1.1\r\nHost: h\r\n", 502, "Origin"},
		{"GET /limited/x HTTP/1.1\r\nHost: h\r\n", 429, "Origin"},
	}
	for _, test := range tests {
		response, _ := g.ask(t, test.request+"Origin: https://app.example\r\n\r\n")
		if diff := cmp.Diff(told(test.vary), said(response.Header)); diff != "" || response.StatusCode != test.status {
			t.Errorf("%q = %d, want %d (-want +got):\n%s", test.request, response.StatusCode, test.status, diff)
		}
		response, _ = g.ask(t, test.request+"Origin: https://other.example\r\n\r\n")
		if diff := cmp.Diff(map[string]string{"Vary": test.vary}, said(response.Header)); diff != "" {
			t.Errorf("%q of another origin = %d (-want +got):\n%s", test.request, response.StatusCode, diff)
		}
		response, _ = g.ask(t, test.request+"\r\n")
		if diff := cmp.Diff(map[string]string{"Vary": test.vary}, said(response.Header)); diff != "" {
			t.Errorf("%q without Origin = %d (-want +got):\n%s", test.request, response.StatusCode, diff)
		}
	}
}

func limitedRoute(service *testService) route.Route {
	spec := withCORS(public(service.url), oneOrigin)
	spec.Name, spec.Path, spec.Rate = "limited", "/limited", limit.Rate{Count: 1, Per: time.Hour}
	return spec
}

// A route that leaves the matter to its service passes on what that says.
func TestServiceSpeaksOfOrigins(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAccess-Control-Allow-Origin: *\r\nStrict-Transport-Security: max-age=1\r\n\r\n"))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	response, _ := g.ask(t, "OPTIONS /public HTTP/1.1\r\nHost: h\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n\r\n")
	if diff := cmp.Diff(map[string]string{"Access-Control-Allow-Origin": "*"}, said(response.Header)); diff != "" || response.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("%d %v (-want +got):\n%s", response.StatusCode, response.Header, diff)
	}
	if request := service.received(t); rawField(request, "Origin") == nil || rawField(request, "Access-Control-Request-Method") == nil {
		t.Errorf("the service received %q", request)
	}
}

func TestCORSWithCredentialsAndAnyHeader(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{},
		withCORS(public(service.url), route.CORS{Origins: []string{"https://app.example"}, RequestHeaders: []string{"*"}, Credentials: true}),
		withCORS(protected(service.url), route.CORS{Origins: []string{"*"}, ExposedHeaders: []string{"ETag", "*"}}))
	response, _ := g.ask(t, "OPTIONS /public HTTP/1.1\r\nHost: h\r\nOrigin: https://app.example\r\nAccess-Control-Request-Method: DELETE\r\nAccess-Control-Request-Headers: authorization,x-any\r\n\r\n")
	want := map[string]string{
		"Vary": preflightVary, "Access-Control-Allow-Origin": "https://app.example", "Access-Control-Allow-Methods": "DELETE",
		"Access-Control-Allow-Headers": "authorization,x-any", "Access-Control-Allow-Credentials": "true",
	}
	if diff := cmp.Diff(want, said(response.Header)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	response, _ = g.ask(t, "GET /svc HTTP/1.1\r\nHost: h\r\nOrigin: null\r\n\r\n")
	want = map[string]string{"Vary": "Origin", "Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "*"}
	if diff := cmp.Diff(want, said(response.Header)); diff != "" || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d (-want +got):\n%s", response.StatusCode, diff)
	}
	// A header field that needs no permission is not added to a list without it.
	response, _ = g.ask(t, "OPTIONS /svc HTTP/1.1\r\nHost: h\r\nOrigin: https://b.example\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\r\n")
	if response.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("content-type is allowed by no list: %v", response.Header)
	}
}

func TestCORSFaults(t *testing.T) {
	u := mustParse(t, "http://u")
	tests := []struct {
		cors route.CORS
		want string
	}{
		{route.CORS{}, "there is no origin"},
		{route.CORS{Origins: []string{"https://a/"}}, `origin "https://a/" has more than scheme, host and port`},
		{route.CORS{Origins: []string{"*"}, Credentials: true}, "credentials of every origin"},
		{route.CORS{Origins: []string{"https://a"}, Credentials: true, ExposedHeaders: []string{"*"}}, "exposes nothing"},
		{route.CORS{Origins: []string{"*"}, Methods: []string{"POST"}}, `method "POST" is not allowed on the route`},
		{route.CORS{Origins: []string{"*"}, Methods: []string{"TRACE"}}, `method "TRACE" is not allowed on the route`},
		{route.CORS{Origins: []string{"*"}, MaxAge: time.Millisecond}, "is not a number of seconds"},
	}
	for _, test := range tests {
		spec := withCORS(public(u), test.cors)
		spec.Methods = []string{"GET"}
		if _, err := route.NewTable([]route.Route{spec}, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("NewTable with %+v = %v, want %q", test.cors, err, test.want)
		}
	}
}

// routerOf returns a router with one route.
func routerOf(t *testing.T, spec route.Route) *proxy.Router {
	t.Helper()
	table, err := route.NewTable([]route.Route{spec}, nil)
	if err != nil {
		t.Fatal(err)
	}
	router := newRouter()
	router.Swap(table)
	t.Cleanup(router.Close)
	return router
}

// requestFor returns a request to the public route as it comes to package proxy.
func requestFor(t *testing.T, method string) *http.Request {
	t.Helper()
	path, err := canonical.ParsePath("/public")
	if err != nil {
		t.Fatal(err)
	}
	return httptest.NewRequestWithContext(exchange.NewContext(t.Context(), &exchange.Exchange{Path: path}), method, "/public", nil)
}

// The methods of a route hold for a preflight that another proxy describes.
func TestForwardAuthHasNoPreflights(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	spec := withCORS(public(service.url), oneOrigin)
	spec.Methods = []string{"GET"}
	router := routerOf(t, spec)
	for method, status := range map[string]int{"OPTIONS": 403, "GET": 200} {
		r := requestFor(t, method)
		r.Header = http.Header{"Origin": {"https://app.example"}, "Access-Control-Request-Method": {"GET"}}
		w := httptest.NewRecorder()
		proxy.MatchForwardAuth(router)(http.HandlerFunc(proxy.Verdict)).ServeHTTP(w, r)
		if w.Code != status || len(said(w.Header())) > 0 {
			t.Errorf("a verdict on %s = %d %v, want %d and nothing about origins", method, w.Code, w.Header(), status)
		}
	}
}

// A route without cors is asked nothing and told nothing.
func TestCrossOriginCostsNothing(t *testing.T) {
	router := routerOf(t, public(mustParse(t, "http://127.0.0.1:1")))
	r := requestFor(t, "GET")
	r.Header.Set("Origin", "https://app.example")
	w := httptest.NewRecorder()
	var passed *http.Request
	proxy.Match(router)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { passed = r })).ServeHTTP(w, r)
	handler := proxy.CrossOrigin()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if n := testing.AllocsPerRun(100, func() { handler.ServeHTTP(w, passed) }); n > 0 || len(w.Header()) > 0 {
		t.Errorf("%v allocations, header %v", n, w.Header())
	}
}
