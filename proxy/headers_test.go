package proxy_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ours are the fields that only the gateway sets, in the spelling it uses.
var ours = []string{
	"X-Snowgate-Client", "X-Snowgate-Scope", "X-Snowgate-Token-Id", "X-Snowgate-Token-Expires",
	"X-Request-Id", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Traceparent",
}

// separators are all characters of a field name (RFC 9110 §5.6.2) that are
// neither letters nor digits.
const separators = "!#$%&'*+-.^_`|~"

// spellings returns other ways to write name that CGI-like services fold.
func spellings(name string) []string {
	var found []string
	for _, c := range separators {
		found = append(found,
			strings.ReplaceAll(name, "-", string(c)),
			strings.ToLower(strings.Replace(name, "-", string(c), 1)),
			name+string(c))
	}
	return append(found, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", ""))
}

func folded(name string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(separators, c) {
			return -1
		}
		return c
	}, strings.ToLower(name))
}

func TestForgedIdentityNeverArrives(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, protected(service.url), public(service.url))
	foreign := []string{"X-Snowgate-Admin", "X-Snowgate", "X-SnowgateClient"} // of the family
	for _, name := range slices.Concat(ours, foreign) {
		for _, spelling := range spellings(name) {
			forged := spelling + ": forged\r\n" + spelling + ": forged again\r\n"
			for _, raw := range []string{get("/svc", authorized+forged), get("/public", forged)} {
				if response, _ := g.ask(t, raw); response.StatusCode != http.StatusOK {
					t.Fatalf("%q = %d, want 200", raw, response.StatusCode)
				}
				got := service.received(t)
				if strings.Contains(got, "forged") {
					t.Errorf("%q arrives: %q", spelling, got)
				}
				for _, arrived := range rawNames(got) {
					if slices.Contains(ours, arrived) {
						continue
					}
					if folded(arrived) == folded(name) {
						t.Errorf("%q arrives as %q", spelling, arrived)
					}
				}
			}
		}
	}
	canary(t, g, service)
}

func TestPublicRoutesCarryNoIdentity(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	g.ask(t, get("/public", authorized))
	got := service.received(t)
	for _, name := range rawNames(got) {
		if strings.HasPrefix(name, "X-Snowgate") || name == "Authorization" {
			t.Errorf("a public route carries %s: %q", name, got)
		}
	}
}

func TestConnectionCannotRemoveIdentity(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, protected(service.url))
	all := strings.Join(ours, ", ")
	for _, fields := range []string{
		"Connection: X-Snowgate-Client\r\n",
		"Connection: x-snowgate-client\r\nConnection: X-REQUEST-ID\r\n",
		"Connection:\r\nConnection: X-Snowgate-Client\r\n",
		"Connection: \r\nConnection: close, X-Snowgate-Client\r\n",
		"Connection: ,, X-Snowgate-Token-Id ,keep-alive\r\n",
		"Connection: " + all + "\r\n",
		"Connection: " + strings.ToLower(all) + "\r\n",
		"Proxy-Connection: X-Snowgate-Client\r\n",
		"Connection: Upgrade, X-Snowgate-Client\r\nUpgrade: websocket\r\n",
	} {
		g.ask(t, get("/svc", authorized+fields))
		got := service.received(t)
		for _, name := range ours {
			if values := rawField(got, name); len(values) != 1 {
				t.Errorf("with %q %s arrives as %q, want once", fields, name, values)
			}
		}
		if values := rawField(got, "Connection"); len(values) > 0 {
			t.Errorf("with %q Connection arrives as %q", fields, values)
		}
	}
	canary(t, g, service)
}

// hearsay are fields by which proxies tell how a request came to them.
var hearsay = []string{
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
	"X-Forwarded-Server", "X-Forwarded-User", "X-Forwarded", "X-Real-Ip", "Forwarded", "True-Client-Ip",
	"X-Client-Ip", "Client-Ip", "X-Cluster-Client-Ip", "Cf-Connecting-Ip",
}

// poison are fields that turn a request into another one.
var poison = []string{
	"X-Original-Url", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "Proxy",
	"X-Original-Uri", "Proxy-Authorization", "Http2-Settings", "Keep-Alive", "Proxy-Connection",
	"Content_Length", "Transfer_Encoding", "Transfer.Encoding", "Content.Length", "X_Http_Method_Override", "X.Original.Url",
}

func TestUntrustedPeer(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{trusted: "192.0.2.0/24"}, public(service.url))
	for _, name := range slices.Concat(hearsay, poison) {
		for _, spelling := range []string{name, strings.ReplaceAll(name, "-", "_"), strings.ToLower(name)} {
			g.ask(t, get("/public", spelling+": 203.0.113.9\r\n"))
			if got := service.received(t); strings.Contains(got, "203.0.113.9") {
				t.Errorf("%q of a stranger arrives: %q", spelling, got)
			}
		}
	}
}

func TestTrustedPeer(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{trusted: "127.0.0.0/8"}, public(service.url))
	g.ask(t, get("/public", "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 198.51.100.7, 192.0.2.1\r\n"+
		"X-Forwarded-Host: shop.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\nX-Real-Ip: 203.0.113.9\r\n"+
		"Forwarded: for=203.0.113.9\r\nX-Request-Id: from-the-edge.1\r\nX-Original-Url: /admin\r\n"+
		"X_Forwarded_For: forged\r\nX_Forwarded_Port: forged\r\nX_Real_Ip: forged\r\n"))
	got := service.received(t)
	for name, want := range map[string][]string{
		"X-Forwarded-For":   {"203.0.113.9, 198.51.100.7, 192.0.2.1, 127.0.0.1"},
		"X-Forwarded-Host":  {"shop.example"},
		"X-Forwarded-Proto": {"https"},
		"X-Forwarded-Port":  {"443"},
		"X-Real-Ip":         {"203.0.113.9"},
		"Forwarded":         {"for=203.0.113.9"},
		"X-Request-Id":      {"from-the-edge.1"},
		"X-Original-Url":    nil,
	} {
		if diff := cmp.Diff(want, rawField(got, name)); diff != "" {
			t.Errorf("%s of a trusted proxy, -want +got\n%s", name, diff)
		}
	}
	if strings.Contains(got, "forged") {
		t.Errorf("another spelling arrives from a trusted proxy: %q", got)
	}
	for _, forbidden := range []string{"a b", strings.Repeat("x", 129), "a/b", "ä", "a;b"} {
		g.ask(t, get("/public", "X-Request-Id: "+forbidden+"\r\n"))
		if id := rawField(service.received(t), "X-Request-Id"); len(id) != 1 || len(id[0]) != 32 {
			t.Errorf("X-Request-Id %.40q of a trusted proxy arrives as %q, want a new one", forbidden, id)
		}
	}
}

func TestTraceparent(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	const (
		trace  = "0af7651916cd43dd8448eb211c80319c"
		parent = "b7ad6b7169203331"
	)
	tests := []struct {
		sent []string
		kept bool
		why  string
	}{
		{[]string{"00-" + trace + "-" + parent + "-01"}, true, "valid"},
		{[]string{"00-" + trace + "-" + parent + "-00"}, true, "not sampled"},
		{[]string{"cc-" + trace + "-" + parent + "-01-future"}, true, "a later version may be longer"},
		{nil, false, "none"},
		{[]string{"00-" + trace + "-" + parent + "-01-more"}, false, "version 00 may not"},
		{[]string{"cc-" + trace + "-" + parent + "-01.more"}, false, "a later version goes on with a dash"},
		{[]string{"ff-" + trace + "-" + parent + "-01"}, false, "version ff is none"},
		{[]string{"00-" + strings.ToUpper(trace) + "-" + parent + "-01"}, false, "upper case"},
		{[]string{"00-" + strings.Repeat("0", 32) + "-" + parent + "-01"}, false, "no trace"},
		{[]string{"00-" + trace + "-0000000000000000-01"}, false, "no parent"},
		{[]string{"00_" + trace + "_" + parent + "_01"}, false, "other separators"},
		{[]string{"00-" + trace + "-" + parent}, false, "too short"},
		{[]string{"00-" + trace + "-" + parent + "-01", "00-" + trace + "-" + parent + "-01"}, false, "twice"},
	}
	for _, test := range tests {
		fields := "Tracestate: v=1\r\n"
		for _, value := range test.sent {
			fields += "traceparent: " + value + "\r\n"
		}
		g.ask(t, get("/public", fields))
		request := service.received(t)
		got := rawField(request, "Traceparent")
		switch {
		case test.kept && !slices.Equal(got, test.sent):
			t.Errorf("traceparent %q arrives as %q, want it unchanged (%s)", test.sent, got, test.why)
		case !test.kept && (len(got) != 1 || !isFreshTrace(got[0], request)):
			t.Errorf("traceparent %q arrives as %q, want a new one named like the request (%s)", test.sent, got, test.why)
		}
		if kept := len(rawField(request, "Tracestate")) == 1; kept != test.kept {
			t.Errorf("traceparent %q: tracestate kept = %t, want %t (%s)", test.sent, kept, test.kept, test.why)
		}
	}
}

func isFreshTrace(value, request string) bool {
	parts := strings.Split(value, "-")
	return len(parts) == 4 && parts[0] == "00" && parts[1] == rawField(request, "X-Request-Id")[0] && len(parts[2]) == 16
}

func TestNothingIsInvented(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	response, _ := g.ask(t, get("/public", ""))
	got := rawNames(service.received(t))
	slices.Sort(got)
	want := []string{"Host", "Traceparent", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields the service received, -want +got\n%s", diff)
	}
	if kind, guessed := response.Header["Content-Type"]; guessed {
		t.Errorf("the answer got a Content-Type %q that the service did not send", kind)
	}
}

func TestAuthorization(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	passing := protected(service.url)
	passing.Name, passing.Path, passing.PassToken = "passing", "/passing", true
	g := newGateway(t, gatewayOptions{}, protected(service.url), public(service.url), passing)
	tests := []struct {
		path string
		want []string
		why  string
	}{
		{"/svc", nil, "the token stays here"},
		{"/public", nil, "on public routes too"},
		{"/passing", []string{"Bearer " + goodText}, "passed on as it came"},
	}
	for _, test := range tests {
		g.ask(t, get(test.path, authorized+"Proxy-Authorization: Basic eDp5\r\nAuthorization_: Bearer x\r\n"))
		got := service.received(t)
		if diff := cmp.Diff(test.want, rawField(got, "Authorization")); diff != "" {
			t.Errorf("%s: Authorization, -want +got (%s)\n%s", test.path, test.why, diff)
		}
		if strings.Contains(got, "Proxy-Auth") || strings.Contains(got, "Authorization_") {
			t.Errorf("%s: the service received %q", test.path, got)
		}
	}
}

func TestRequestTrailersAreNotForwarded(t *testing.T) {
	service := newUpstream(t, says(okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	g.ask(t, "POST /public HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Snowgate-Client, X-Sum\r\n\r\n"+
		"5\r\nhello\r\n0\r\nX-Snowgate-Client: forged\r\nX-Sum: 1\r\n\r\n")
	got := service.received(t)
	if strings.Contains(got, "Trailer") || strings.Contains(got, "forged") || strings.Contains(got, "X-Sum") {
		t.Errorf("the service received %q", got)
	}
	if !strings.HasSuffix(got, "\r\n\r\n5\r\nhello\r\n0\r\n\r\n") {
		t.Errorf("the service received %q, want the body in one chunk and no trailer", got)
	}
}

func TestResponsesDoNotLeakIdentity(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 200 OK\r\nX-Snowgate-Client: leak\r\nx_snowgate_token_id: leak\r\n"+
		"X-Request-Id: leak\r\nX.Request.Id: leak\r\nX-Forwarded-For: leak\r\nTraceparent: leak\r\nAlt-Svc: leak\r\n"+
		"Connection: X-Hop\r\nX-Hop: leak\r\nKeep-Alive: leak\r\nProxy-Authenticate: leak\r\nX-Kept: yes\r\n"+
		"Transfer-Encoding: chunked\r\nTrailer: X-Snowgate-Scope, X-Sum\r\n\r\n"+
		"2\r\nok\r\n0\r\nX-Snowgate-Scope: leak\r\nX-Sum: 1\r\nX-Snowgate-Client: leak\r\n\r\n"))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send(get("/public", "Connection: close\r\n"))
	var raw strings.Builder
	if _, err := c.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(raw.String(), "leak") {
		t.Errorf("the answer leaks: %q", raw.String())
	}
	if n := strings.Count(raw.String(), "X-Request-Id:"); n != 1 {
		t.Errorf("the answer has %d X-Request-Id fields, want 1: %q", n, raw.String())
	}
	if !strings.Contains(raw.String(), "X-Kept: yes") || !strings.Contains(raw.String(), "\r\n0\r\nX-Sum: 1\r\n\r\n") {
		t.Errorf("the answer lost something: %q", raw.String())
	}
}

func TestUnannouncedTrailersDoNotLeak(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"2\r\nok\r\n0\r\nX-Snowgate-Scope: leak\r\nX-Request-Id: leak\r\nContent-Length: 9\r\nConnection: close\r\nX-Sum: 1\r\n\r\n"))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	response, _ := g.ask(t, get("/public", ""))
	if diff := cmp.Diff(http.Header{"X-Sum": {"1"}}, response.Trailer); diff != "" {
		t.Errorf("trailer, -want +got\n%s", diff)
	}
}

func TestInterimResponses(t *testing.T) {
	service := newUpstream(t, says("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: X-Hop\r\nX-Hop: leak\r\n"+
		"Keep-Alive: leak\r\nUpgrade: leak\r\nX-Snowgate-Client: leak\r\nX-Request-Id: leak\r\n\r\n"+
		"HTTP/1.1 102 Processing\r\n\r\n"+okResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	c := dial(t, g.address())
	c.send(get("/public", "Connection: close\r\n"))
	var raw strings.Builder
	if _, err := c.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	interim, final, _ := strings.Cut(raw.String(), "HTTP/1.1 200 OK\r\n")
	if want := "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"; interim != want {
		t.Errorf("interim answers = %q, want %q", interim, want)
	}
	if strings.Count(final, "X-Request-Id: ") != 1 || strings.Contains(final, "leak") || strings.Contains(final, "Link") {
		t.Errorf("final answer = %q, want one X-Request-Id and nothing of the interim ones", final)
	}
	if access, _ := g.log.next(t); access.Status != http.StatusOK {
		t.Errorf("logged status = %d, want that of the final answer", access.Status)
	}
}
