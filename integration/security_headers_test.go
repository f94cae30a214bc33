package integration_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// separators are the characters of a field name (RFC 9110 §5.6.2) that are
// neither letters nor digits.
const separators = "!#$%&'*+-.^_`|~"

const headerRoutes = `
  - {name: pass, host: pass.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use], pass_token: true}
  - {name: pass-public, host: pass.test, path: /public, upstreams: [$PUBLIC], public: true, pass_token: true}
`

// bothServices sends fields once to the protected service, with a token, and once
// to the public one, and returns what they received. Both must answer 200.
func (s *site) bothServices(t *testing.T, what string, fields ...string) (protected, public string) {
	t.Helper()
	for target, own := range map[string][]string{"/svc/x": {bearer(s.token)}, "/public/x": nil} {
		text := rawRequest(http.MethodGet, "below.test", target, slices.Concat(own, fields), "")
		if target == "/public/x" {
			text = strings.ReplaceAll(text, "below.test", "beside.test")
		}
		if got := s.Exchange(text); got.StatusCode != http.StatusOK {
			t.Errorf("%s: GET %s = %d %s, want 200", what, target, got.StatusCode, got.Body)
		}
	}
	judged, open := s.settle(t, what)
	if len(judged) != 1 || len(open) != 1 {
		t.Fatalf("%s: the services received %q and %q, want one request each", what, judged, open)
	}
	return judged[0], open[0]
}

// spellings are the ways to write a field name that some service folds into it.
func spellings(name string) []string {
	list := []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(name, "-", "")}
	for i := range separators {
		c := string(separators[i])
		list = append(list, strings.ReplaceAll(name, "-", c), strings.ToLower(strings.Replace(name, "-", c, 1)), name+c, c+name)
	}
	return list
}

// TestSecurityForgedIdentity sends every identity field in every spelling. What
// [site.settle] checks is the point: none arrives but ours.
func TestSecurityForgedIdentity(t *testing.T) {
	s := newSite(t, headerRoutes)
	for _, name := range slices.Concat(tokenFields, requestFields, []string{"X-Snowgate", "X-Snowgate-Admin"}) {
		var fields []string
		for _, spelling := range spellings(name) {
			fields = append(fields, spelling+": forged", spelling+":forged again")
		}
		protected, public := s.bothServices(t, name, fields...)
		for _, got := range []string{protected, public} {
			if strings.Contains(got, "forged") {
				t.Errorf("a forged %s arrives: %q", name, got)
			}
		}
	}
}

// TestSecurityHeaderSyntax breaks the syntax of a header to get a field past the
// gateway. Either it is refused or the field does not arrive.
func TestSecurityHeaderSyntax(t *testing.T) {
	s := newSite(t, headerRoutes)
	tests := []struct {
		lines string
		want  int // 0: 200 or 400, RFC 9112 leaves the choice
		why   string
	}{
		{"X-Snowgate-Client : forged", 400, "a space before the colon (RFC 9112 §5.1)"},
		{"X-Snowgate-Client\t: forged", 400, "a tab before the colon"},
		{" X-Snowgate-Client: forged", 0, "a space before the name: a continuation of the line above (obs-fold, §5.2)"},
		{"X-A: b\r\n X-Snowgate-Client: forged", 0, "a folded line"},
		{"X-A: b\r\n\tX-Snowgate-Client: forged", 0, "folded with a tab"},
		{"X-A: b\rX-Snowgate-Client: forged", 400, "a bare CR ends no line (§2.2)"},
		{"X-A: b\nX-Snowgate-Client: forged", 0, "a bare LF may end one (§2.2)"},
		{"X-A: b\x00\r\nX-Snowgate-Client: forged", 400, "NUL in a value"},
		{"X-Snowgate-Client\x00: forged", 400, "NUL in a name"},
		{"X-Snowgate-Client", 400, "no colon"},
		{": forged", 400, "no name"},
		{"X-Snowgate-Cl\xc3\xadent: forged", 400, "a name beyond ASCII"},
		{"X-Snowgate-Client\xe2\x80\x8b: forged", 400, "an invisible character in a name"},
		{"X-\xe2\x84\xaanowgate: forged", 400, "the Kelvin sign, which folds to k"},
		{"X-Snowgate(Client): forged", 400, "a delimiter in a name"},
		{"\"X-Snowgate-Client\": forged", 400, "quotes around a name"},
		{"X-Snowgate-Client;: forged", 400, "a semicolon in a name"},
		{"X-A: b\x0bX-Snowgate-Client: forged", 400, "a vertical tab"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("%q (%s)", test.lines, test.why)
		for _, target := range []string{"/svc/x", "/public/x"} {
			text := "GET " + target + " HTTP/1.1\r\nHost: beside.test\r\n" + bearer(s.token) + "\r\n" + test.lines + "\r\nConnection: close\r\n\r\n"
			got := s.Exchange(text)
			if got.StatusCode != test.want && (test.want != 0 || got.StatusCode != http.StatusOK && got.StatusCode != http.StatusBadRequest) {
				t.Errorf("GET %s with %s = %d, want %d", target, what, got.StatusCode, test.want)
			}
			protected, public := s.protected.Requests(), s.public.Requests()
			for _, raw := range slices.Concat(protected, public) {
				for _, f := range fieldsOf(raw) {
					if strings.HasPrefix(fold(f.name), "xsnowgate") && f.value == "forged" {
						t.Errorf("%s arrives: %q", what, raw)
					}
				}
			}
			if fields := "X-A: b X-Snowgate-Client: forged"; len(protected) > 0 && strings.Contains(protected[0], fields) {
				s.protected.Reset() // it is the value of another field, on one line
			}
			if len(public) > 0 && strings.Contains(public[0], "X-A: b X-Snowgate-Client: forged") {
				s.public.Reset()
			}
			s.settle(t, what)
		}
	}
}

// TestSecurityConnectionField names our fields in Connection, which makes them
// hop-by-hop fields of the client's (RFC 9110 §7.6.1). They are not the client's.
func TestSecurityConnectionField(t *testing.T) {
	s := newSite(t, headerRoutes)
	all := strings.Join(slices.Concat(tokenFields, requestFields), ", ")
	tests := []struct {
		lines []string
		why   string
	}{
		{[]string{"Connection: X-Snowgate-Client"}, "as it is spelled"},
		{[]string{"Connection: x-snowgate-client"}, "in lower case"},
		{[]string{"CONNECTION: X-SNOWGATE-CLIENT"}, "in upper case"},
		{[]string{"Connection: keep-alive", "Connection: X-Snowgate-Client"}, "on a second line"},
		{[]string{"Connection:", "Connection: X-Snowgate-Client"}, "behind an empty line"},
		{[]string{"Connection: ", "Connection:", "connection: X-Snowgate-Token-Id, close"}, "behind several"},
		{[]string{"Connection: ,, X-Snowgate-Scope\t,close"}, "in an odd list"},
		{[]string{"Connection: " + all}, "all of them"},
		{[]string{"Connection: " + strings.ToLower(all)}, "all of them in lower case"},
		{[]string{"Proxy-Connection: X-Snowgate-Client"}, "in a field that some take for Connection"},
		{[]string{"Keep-Alive: X-Snowgate-Client"}, "in another hop-by-hop field"},
		{[]string{"Trailer: X-Snowgate-Client"}, "announced for the trailer"},
		{[]string{"TE: X-Snowgate-Client"}, "in TE"},
		{[]string{"Connection: Host, Content-Length, Transfer-Encoding"}, "what the framing and the routing need"},
		{[]string{"Connection: Upgrade, X-Snowgate-Client", "Upgrade: websocket"}, "with an upgrade that is not allowed here"},
		{[]string{"Connection: X_Snowgate_Client, X-Snowgate-Client", "X_Snowgate_Client: forged"}, "with a forged one beside it"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("%q (%s)", test.lines, test.why)
		for _, raw := range slices.Collect(pair(s.bothServices(t, what, test.lines...))) {
			for _, name := range []string{"Connection", "Upgrade", "Proxy-Connection", "Keep-Alive", "Trailer"} {
				if got := gatewaytest.Header(raw, name); len(got) > 0 {
					t.Errorf("%s: %s arrives as %q", what, name, got)
				}
			}
			if got := gatewaytest.Header(raw, "Host"); len(got) != 1 {
				t.Errorf("%s: Host arrives as %q", what, got)
			}
		}
	}
	s.checkNamedBodyFields(t)
}

// pair yields two values one after the other.
func pair(a, b string) func(func(string) bool) {
	return func(yield func(string) bool) { _ = yield(a) && yield(b) }
}

// checkNamedBodyFields names the length of a body in Connection: it stays.
func (s *site) checkNamedBodyFields(t *testing.T) {
	t.Helper()
	const what = "POST with Connection: Content-Length"
	fields := []string{bearer(s.token), "Content-Length: 5", "Connection: close, Content-Length, Content-Type"}
	if got := s.Exchange(rawRequest(http.MethodPost, "beside.test", "/svc/x", fields, "hello")); got.StatusCode != http.StatusOK {
		t.Errorf("%s = %d, want 200", what, got.StatusCode)
	}
	protected, _ := s.settle(t, what)
	if len(protected) != 1 || !strings.HasSuffix(protected[0], "\r\n\r\nhello") ||
		len(gatewaytest.Header(protected[0], "Content-Length")) != 1 {
		t.Errorf("%s: the service received %q", what, protected)
	}
}

// TestSecurityStrangersHearsay sends what only proxies may say, and what turns a
// request into another one, from a peer that nobody trusts.
func TestSecurityStrangersHearsay(t *testing.T) {
	s := newSite(t, headerRoutes)
	const mark = "203.0.113.9"
	names := []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
		"X-Forwarded-Server", "X-Forwarded-User", "X-Forwarded-Email", "X-Forwarded-Groups", "X-Forwarded-Access-Token",
		"X-Forwarded-Client-Cert", "X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Scheme", "X-Forwarded-Ssl",
		"X-Forwarded-By", "X-Forwarded-Anything", "X-Forwarded", "Forwarded", "X-Real-Ip", "True-Client-Ip",
		"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override",
		"Proxy", "Proxy-Authorization", "Proxy-Connection", "X-Client-Ip", "Client-Ip", "X-Cluster-Client-Ip",
		"Cf-Connecting-Ip", "Fastly-Client-Ip", "X-Original-Forwarded-For", "X-Original-Host",
	}
	for _, name := range names {
		var fields []string
		for _, spelling := range spellings(name) {
			if spelling != "Forwarded" && strings.EqualFold(spelling, "Host") {
				continue
			}
			fields = append(fields, spelling+": "+mark)
		}
		for raw := range pair(s.bothServices(t, name, fields...)) {
			for _, f := range fieldsOf(raw) {
				if strings.Contains(f.value, mark) {
					t.Errorf("%s of a stranger arrives as %s: %s", name, f.name, f.value)
				}
			}
			if got := gatewaytest.Header(raw, "X-Forwarded-For"); len(got) != 1 || got[0] != "127.0.0.1" {
				t.Errorf("with %s: X-Forwarded-For = %q, want the peer", name, got)
			}
			if got := gatewaytest.Header(raw, "X-Forwarded-Proto"); len(got) != 1 || got[0] != "http" {
				t.Errorf("with %s: X-Forwarded-Proto = %q, want http", name, got)
			}
		}
	}
}

// TestSecurityTrustedProxy is the same from a peer in TRUSTED_PROXIES: it may say
// how a request came to it, in the usual spelling, and nothing else.
func TestSecurityTrustedProxy(t *testing.T) {
	s := newSiteWith(t, gatewaytest.Options{Env: []string{"SNOWGATE_TRUSTED_PROXIES=127.0.0.0/8"}}, headerRoutes)
	fields := []string{
		"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.example",
		"X-Real-Ip: 203.0.113.9", "X-Request-Id: edge-1",
		"X_Forwarded_For: forged", "X.Real.Ip: forged", "X_Request_Id: forged", "X-Original-Url: /forged", "Proxy: forged",
		"X-Snowgate-Client: forged", "X_Snowgate_Client: forged", "Connection: X-Forwarded-For, X-Snowgate-Client",
	}
	for raw := range pair(s.bothServices(t, "a trusted proxy", fields...)) {
		for name, want := range map[string]string{
			"X-Forwarded-For": "203.0.113.9, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example",
			"X-Request-Id": "edge-1",
		} {
			if got := gatewaytest.Header(raw, name); len(got) != 1 || got[0] != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	}
	for _, id := range []string{"a b", "a\tb", strings.Repeat("x", 200), `{"a":1}`, "a/b", ""} {
		for raw := range pair(s.bothServices(t, "a bad request id", "X-Request-Id: "+id)) {
			if got := gatewaytest.Header(raw, "X-Request-Id"); len(got) != 1 || got[0] == id {
				t.Errorf("X-Request-Id %.20q arrives as %.40q, want a new one", id, got)
			}
		}
	}
	// Routing does not follow the forwarded host, whoever says it.
	got := s.Exchange(rawGet("beside.test", "/svc/x", "X-Forwarded-Host: below.test", "X-Forwarded-Uri: /public/x"))
	if got.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a forwarded public path = %d, want 401", got.StatusCode)
	}
	s.untouched(t, "a forwarded public path")
}

// TestSecurityNothingInvented looks at an ordinary request: what the client did
// not say is not said, apart from our fields.
func TestSecurityNothingInvented(t *testing.T) {
	s := newSite(t, headerRoutes)
	protected, public := s.bothServices(t, "no fields")
	known := slices.Concat(tokenFields, requestFields, []string{"Host"})
	for raw := range pair(protected, public) {
		for _, f := range fieldsOf(raw) {
			if !slices.ContainsFunc(known, func(name string) bool { return strings.EqualFold(name, f.name) }) {
				t.Errorf("the gateway invents %s: %s", f.name, f.value)
			}
		}
	}
	fields := []string{"Accept-Encoding: br;q=1, *;q=0", "User-Agent: x", "Cookie: a=b; c", "X-Custom: 1", "X-Custom: 2", "If-Match: \"1\""}
	for raw := range pair(s.bothServices(t, "ordinary fields", fields...)) {
		for _, line := range fields {
			if !strings.Contains(raw, "\r\n"+line+"\r\n") {
				t.Errorf("%q does not arrive as it is: %q", line, raw)
			}
		}
	}
}

// TestSecurityAuthorizationForwarded looks at who gets to see the client's
// Authorization: only the service of a route with pass_token.
func TestSecurityAuthorizationForwarded(t *testing.T) {
	s := newSite(t, headerRoutes)
	tests := []struct {
		host, target, why string
		fields            []string
		want              []string // Authorization, as it arrives
	}{
		{"beside.test", "/svc/x", "without pass_token", []string{bearer(s.token)}, nil},
		{"beside.test", "/public/x", "a public route without pass_token", []string{bearer(s.token)}, nil},
		{"beside.test", "/public/x", "a Basic one", []string{"Authorization: Basic c2VjcmV0"}, nil},
		{"beside.test", "/public/x", "two of them", []string{bearer("a"), bearer("b")}, nil},
		{"beside.test", "/public/x", "other spellings", []string{"Authorization_: Basic c2VjcmV0", "AUTHORIZATION.: Basic c2VjcmV0"}, nil},
		{"pass.test", "/svc/x", "with pass_token", []string{bearer(s.token)}, []string{"Bearer " + s.token}},
		{"pass.test", "/svc/x", "with another spelling beside it", []string{bearer(s.token), "Authorization_: forged"}, []string{"Bearer " + s.token}},
		{"pass.test", "/public/x", "public with pass_token", []string{"Authorization: Basic c2VjcmV0"}, []string{"Basic c2VjcmV0"}},
	}
	for _, test := range tests {
		if got := s.Exchange(rawGet(test.host, test.target, test.fields...)); got.StatusCode != http.StatusOK {
			t.Errorf("%s: GET %s = %d, want 200", test.why, test.target, got.StatusCode)
		}
		protected, public := s.settle(t, test.why)
		for _, raw := range slices.Concat(protected, public) {
			var got []string
			for _, f := range fieldsOf(raw) {
				if fold(f.name) == "authorization" {
					got = append(got, f.value)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %d Authorization fields arrive, want %d", test.why, len(got), len(test.want))
			}
		}
	}
}

// TestSecurityTrailers puts identity behind a body, where only some look.
func TestSecurityTrailers(t *testing.T) {
	s := newSite(t, headerRoutes)
	const chunks = "5\r\nhello\r\n0\r\n"
	tests := []struct {
		announced, trailer, why string
	}{
		{"X-Snowgate-Client", "X-Snowgate-Client: forged\r\n", "announced"},
		{"X_Snowgate_Client, X-Checksum", "X_Snowgate_Client: forged\r\nX-Checksum: forged\r\n", "in another spelling"},
		{"X-Forwarded-For", "X-Forwarded-For: forged\r\n", "a forwarding field"},
		{"", "X-Snowgate-Client: forged\r\n", "not announced"},
	}
	for _, test := range tests {
		for _, target := range []string{"/svc/x", "/public/x"} {
			fields := []string{bearer(s.token), "Transfer-Encoding: chunked", "Connection: close"}
			if test.announced != "" {
				fields = append(fields, "Trailer: "+test.announced, "TE: trailers")
			}
			got := s.Exchange(rawRequest(http.MethodPost, "beside.test", target, fields, chunks+test.trailer+"\r\n"))
			if got.StatusCode != http.StatusOK && got.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: POST %s = %d, want 200 or 400", test.why, target, got.StatusCode)
			}
			protected, public := s.settle(t, test.why)
			for _, raw := range slices.Concat(protected, public) {
				if strings.Contains(raw, "forged") || len(gatewaytest.Header(raw, "Trailer")) > 0 || !strings.HasSuffix(raw, "0\r\n\r\n") {
					t.Errorf("%s: a trailer arrives: %q", test.why, raw)
				}
			}
		}
	}
}

// TestSecurityResponsesKeepIdentity lets services say our fields to the caller, in
// interim responses, headers and trailers.
func TestSecurityResponsesKeepIdentity(t *testing.T) {
	var said string
	for _, name := range slices.Concat(tokenFields, requestFields) {
		said += name + ": leaked\r\n" + strings.ReplaceAll(name, "-", "_") + ": leaked\r\n" + strings.ToLower(name) + ": leaked\r\n"
	}
	talker := gatewaytest.NewRecorder(t, "HTTP/1.1 103 Early Hints\r\n"+said+"Link: </a>\r\n\r\n"+
		"HTTP/1.1 200 OK\r\n"+said+"X-Own: kept\r\nConnection: X-Request-Id\r\nTransfer-Encoding: chunked\r\n"+
		"Trailer: X-Snowgate-Client, X-Request-Id, X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: kept\r\n"+said+"\r\n")
	s := newSite(t, `
  - {name: talk, host: talk.test, path: /svc, upstreams: [`+talker.URL+`], scopes: [svc.use]}
  - {name: talk-public, host: talk.test, path: /public, upstreams: [`+talker.URL+`], public: true}
`)
	for _, target := range []string{"/svc/x", "/public/x"} {
		raw := s.Send(rawGet("talk.test", target, bearer(s.token), "TE: trailers"), 5*time.Second)
		if strings.Contains(raw, "leaked") {
			t.Errorf("GET %s: the answer repeats our fields: %q", target, raw)
		}
		if !strings.Contains(raw, "X-Own: kept\r\n") || !strings.Contains(raw, "ok") {
			t.Errorf("GET %s: the answer lacks what the service said: %q", target, raw)
		}
		if n := strings.Count(strings.ToLower(raw), "\nx-request-id:"); n != 1 {
			t.Errorf("GET %s: %d X-Request-Id in the answer, want 1: %q", target, n, raw)
		}
		s.settle(t, target)
	}
}
