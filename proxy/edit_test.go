package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"snowgate/proxy/route"
)

func TestRewrites(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: secret/1.2\r\nX-Powered-By: php\r\nX_Powered_By: php\r\nX-Kept: 1\r\n\r\n"))
	spec := protected(service.url)
	spec.StripPrefix, spec.AddPrefix, spec.HostHeader = true, "/v2", "orders.internal"
	spec.EditRequest = route.Edits{
		Set:    map[string]string{"x-env": "prod", "Authorization": "Basic c2VydmljZQ=="},
		Remove: []string{"cookie", "user-agent"},
	}
	spec.EditResponse = route.Edits{Set: map[string]string{"Server": "snowgate"}, Remove: []string{"x-powered-by"}}
	g := newGateway(t, gatewayOptions{}, spec)
	response, _ := g.ask(t, get("/svc/items/4%202?a=b", authorized+"X-Env: test\r\nX_Env: test\r\nCookie: a=b\r\nUser-Agent: me\r\nX-Own: 1\r\n"))
	got := service.received(t)
	if !strings.HasPrefix(got, "GET /v2/items/4%202?a=b HTTP/1.1\r\nHost: orders.internal\r\n") {
		t.Errorf("the service got %q", got)
	}
	for name, want := range map[string]string{
		"X-Env": "[prod]", "X_env": "[]", "Authorization": "[Basic c2VydmljZQ==]", "Cookie": "[]", "User-Agent": "[]", "X-Own": "[1]",
		"X-Forwarded-Host": "[gw.example]", "X-Snowgate-Client": "[orders-worker]",
	} {
		if values := fmt.Sprint(rawField(got, name)); values != want {
			t.Errorf("%s: %s, want %s", name, values, want)
		}
	}
	h := response.Header
	if fmt.Sprint(h["Server"], h["X-Powered-By"], h["X_powered_by"], h["X-Kept"]) != "[snowgate] [] [] [1]" {
		t.Errorf("the client got %v", h)
	}
}

func TestHostOfTheUpstream(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	spec := public(service.url)
	spec.UpstreamHost = true
	g := newGateway(t, gatewayOptions{}, spec)
	g.ask(t, get("/public", ""))
	if got := service.received(t); !strings.Contains(got, "\r\nHost: "+service.url.Host+"\r\n") {
		t.Errorf("the service got %q", got)
	}
}

// TestIdentityCannotBeRewritten, in any spelling.
func TestIdentityCannotBeRewritten(t *testing.T) {
	for _, name := range []string{"X-Snowgate-Client", "x_snowgate_scope", "X-Request-Id", "X-Forwarded-For", "Traceparent", "Connection", "TE", "Host", "Content-Length", "a b", ""} {
		for _, edits := range []route.Edits{{Set: map[string]string{name: "x"}}, {Remove: []string{name}}} {
			spec := public(mustParse(t, "http://orders"))
			spec.EditRequest = edits
			if _, err := route.NewTable([]route.Route{spec}, nil); err == nil {
				t.Errorf("%+v of requests were accepted", edits)
			}
			spec.EditRequest, spec.EditResponse = route.Edits{}, edits
			if _, err := route.NewTable([]route.Route{spec}, nil); err == nil {
				t.Errorf("%+v of answers were accepted", edits)
			}
		}
	}
	for why, spec := range map[string]route.Route{
		"a value with a line break": {EditRequest: route.Edits{Set: map[string]string{"X-A": "a\r\nX-Snowgate-Client: b"}}},
		"a prefix with dots":        {AddPrefix: "/../x"},
		"a host with a path":        {HostHeader: "a/b"},
		"two hosts":                 {HostHeader: "a", UpstreamHost: true},
	} {
		spec.Name, spec.Path = "a", "/"
		if _, err := route.NewTable([]route.Route{spec}, nil); err == nil {
			t.Errorf("%s was accepted", why)
		}
	}
}
