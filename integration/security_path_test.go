package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

// refusedTargets have more than one reading, or none. Whoever sends one gets 400
// whatever he shows, and nobody is contacted.
var refusedTargets = []struct{ target, why string }{
	{"//svc/x", "some servers merge slashes"},
	{"/svc//x", "also behind the prefix"},
	{"/public//../svc/x", "a dot segment removes another segment when slashes are merged first"},
	{"///svc/x", "any number of them"},
	{"/public//", "at the end"},
	{"/./svc/x", "dot segments are removed by most servers"},
	{"/svc/./x", "behind the prefix"},
	{"/public/.", "at the end"},
	{"/public/..", "at the end it leads out of the route"},
	{"/public/../svc/x", "dot-dot leads out of the public route"},
	{"/public/x/../../svc/x", "two levels"},
	{"/../svc/x", "above the root is the root"},
	{"/svc/../svc/x", "even if it leads back"},
	{"/public/%2e%2e/svc/x", "encoded dots are dots"},
	{"/public/%2E%2E/svc/x", "in upper case"},
	{"/public/.%2e/svc/x", "half encoded"},
	{"/public/%2e./svc/x", "the other half"},
	{"/%2e/svc/x", "one dot"},
	{"/public/..%2fsvc/x", "an encoded slash ends a segment for who decodes first"},
	{"/public/..%2Fsvc/x", "in upper case"},
	{"/public%2f..%2fsvc/x", "on both sides"},
	{"/public/x%2f..%2f..%2fsvc/x", "two levels"},
	{"/public/%2e%2e%2fsvc/x", "all of it encoded"},
	{"/%73vc/x", "an encoded letter is that letter"},
	{"/s%76c/x", "in the middle"},
	{"/sv%63", "at the end"},
	{"/public/%7e", "any unreserved character: here a tilde"},
	{"/public/%2d%5F%30", "dash, underscore, digit"},
	{"/svc%2fx", "an encoded slash, on a route that does not allow it"},
	{"/svc%2Fx", "in upper case"},
	{"/svc%2f", "at the end"},
	{"/%2fsvc/x", "at the beginning"},
	{"/public/a%2fb", "on a public route, too"},
	{"/livez%2f", "on a path of the gateway itself"},
	{"/public/..;/svc/x", "servlet containers strip parameters before they remove dot segments"},
	{"/public/..;a=b/svc/x", "with a name and a value"},
	{"/public/..;a;b/svc/x", "with several"},
	{"/public/.;/..;/svc/x", "with a single dot"},
	{"/public/..%3b/svc/x", "encoded"},
	{"/public/..%3Ba/svc/x", "encoded in upper case"},
	{"/;/svc/x", "an empty segment once the parameter is stripped"},
	{"/;a=b/svc/x", "with a name"},
	{"/public/;/x", "in the middle"},
	{`/public\..\svc\x`, "a backslash is a slash on Windows"},
	{`/public/..\svc/x`, "one of them"},
	{`/svc\x`, "behind the prefix"},
	{`\svc\x`, "at the beginning"},
	{"/public/..%5csvc/x", "encoded"},
	{"/public/..%5Csvc/x", "in upper case"},
	{"/svc%00/x", "NUL ends a string in C"},
	{"/%00/svc/x", "at the beginning"},
	{"/public/x%00", "at the end"},
	{"/public/..%00/svc/x", "behind dots"},
	{"/svc\x00/x", "raw"},
	{"/svc/x%0d%0aX-Snowgate-Client:%20forged", "encoded line ends split headers"},
	{"/svc/x%0A", "line feed"},
	{"/public/%09", "tab"},
	{"/public/%1b", "escape"},
	{"/public/%7f", "DEL"},
	{"/public/%c2%85", "NEL, a control character of Unicode"},
	{"/public\tx", "a raw tab"},
	{"/public/x\x7f", "raw DEL"},
	{"/public/x\x01", "a raw control character"},
	{"/svc/x#fragment", "a fragment is not part of a request (RFC 9112 §3.2.1)"},
	{"/public#/../svc/x", "cut off by some, kept by others"},
	{"/public/x?q#f", "behind the query"},
	{"/public/x#", "empty"},
	{"#/svc/x", "at the beginning"},
	{"/public/%ff", "no UTF-8"},
	{"/public/%c3", "half a character"},
	{"/public/%c3%28", "a wrong continuation"},
	{"/public/%ed%a0%80", "a surrogate"},
	{"/public/%f4%90%80%80", "beyond U+10FFFF"},
	{"/public/\xff", "raw bytes that are not UTF-8"},
	{"/public/\xc3\xa4", "raw bytes, although they are UTF-8: they have to be encoded"},
	{"/public/%c0%ae%c0%ae/svc/x", "overlong dots"},
	{"/public/..%c0%afsvc/x", "an overlong slash"},
	{"/public/..%e0%80%afsvc/x", "in three bytes"},
	{"/public/..%f0%80%80%afsvc/x", "in four bytes"},
	{"/public/..%c1%9csvc/x", "an overlong backslash"},
	{"/public/%c0%80", "an overlong NUL"},
	{"/public/%u002e%u002e/svc/x", "the encoding of IIS"},
	{"/public/%", "a percent alone"},
	{"/public/%2", "half an escape"},
	{"/public/%zz", "no hexadecimal digits"},
	{"/public/%%32%65", "one escape within another"},
	{"/public/%+2e", "a sign"},
	{"/public/a b", "a raw space: three words are no request line"},
	{"/public/<x>", "must be encoded (RFC 3986 §2)"},
	{`/public/"x"`, "a quote"},
	{"/public/[x]", "brackets"},
	{"/public/{x}|^`", "others that must be encoded"},
	{"*", "the asterisk-form is for OPTIONS, and there it names no service"},
	{"svc/x", "no path at all"},
	{"", "nothing"},
	{"?x", "a query alone"},
	{"beside.test", "the authority-form is for CONNECT"},
	{"beside.test:80", "with a port"},
	{"//beside.test/svc/x", "a network-path reference (RFC 3986 §4.2)"},
	{"http:/svc/x", "a URL without a host"},
	{"http:svc/x", "opaque"},
	{"http:///svc/x", "an empty host"},
	{"http://", "nothing but the scheme"},
	{"ftp://beside.test/svc/x", "another scheme"},
	{"file:///svc/x", "another scheme without a host"},
	{"javascript:/svc/x", "no scheme of ours"},
	{"http://user@beside.test/svc/x", "userinfo (RFC 9110 §4.2.4)"},
	{"http://user:password@beside.test/svc/x", "userinfo with a password"},
	{"http://@beside.test/svc/x", "empty userinfo"},
	{"http://below.test@beside.test/svc/x", "userinfo that looks like a host"},
	{`http://beside.test\@below.test/svc/x`, "a backslash before the at sign"},
	{"http://beside.test%40below.test/svc/x", "an encoded at sign"},
	{"http://beside%2etest/svc/x", "an encoded host"},
	{"http://beside.test:http/svc/x", "a port that is no number"},
	{"http://beside.test:99999/svc/x", "a port out of range"},
	{"http://[::1/svc/x", "half an address"},
	{"http://[::1%25eth0]/svc/x", "a zone"},
	{"http://beside.test/public/../svc/x", "the same rules behind a host"},
	{"http://beside.test//svc/x", "an empty segment behind a host"},
	{"http://beside.test/%73vc/x", "an encoded letter behind a host"},
	{`http://beside.test\svc\x`, "backslashes behind a host"},
	{"http://beside.test/svc/x#f", "a fragment behind a host"},
	{"http://beside.test#/svc/x", "a fragment in place of the path"},
	{"HTTP://beside.test/public/..;/svc/x", "the scheme ignores case, the rules stay"},
}

func TestSecurityRefusedTargets(t *testing.T) {
	s := newSite(t, "")
	for _, test := range refusedTargets {
		for _, host := range arrangements {
			for _, fields := range [][]string{nil, {bearer(s.token)}} {
				what := fmt.Sprintf("GET %q for %s with %d fields (%s)", test.target, host, len(fields), test.why)
				got := s.Exchange(rawGet(host, test.target, fields...))
				if got.StatusCode != http.StatusBadRequest {
					t.Errorf("%s = %d %s, want 400", what, got.StatusCode, got.Body)
				}
				s.untouched(t, what)
			}
		}
	}
}

// TestSecurityNeighbouringPaths asks for paths that are near /svc and are not in
// it. With a public catch-all they are public, and none of them may be one that
// the service takes for /svc.
func TestSecurityNeighbouringPaths(t *testing.T) {
	s := newSite(t, "")
	tests := []struct {
		target           string
		beside, below    int // statuses without a token
		forwardedByBelow string
		why              string
	}{
		{"/SVC/x", 404, 200, "/SVC/x", "case counts: another path"},
		{"/Svc/x", 404, 200, "/Svc/x", "one letter of it"},
		{"/svcx", 404, 200, "/svcx", "the prefix ends at a segment boundary"},
		{"/svc-x/y", 404, 200, "/svc-x/y", "with a dash"},
		{"/svc.", 404, 200, "/svc.", "with a dot"},
		{"/svc.json", 404, 200, "/svc.json", "with a suffix"},
		{"/svc%20/x", 404, 200, "/svc%20/x", "a space has to be encoded and is part of the name"},
		{"/svc%3F/x", 404, 200, "/svc%3F/x", "an encoded question mark begins no query"},
		{"/svc%23/x", 404, 200, "/svc%23/x", "an encoded number sign begins no fragment"},
		{"/sv/c", 404, 200, "/sv/c", "nothing is put together"},
		{"/public/%252e%252e/svc", 200, 200, "/public/%252e%252e/svc", "decoded once, never twice"},
		{"/public/%252e%252e%252fsvc/x", 200, 200, "/public/%252e%252e%252fsvc/x", "with a slash that is encoded twice"},
		{"/public/%2573vc", 200, 200, "/public/%2573vc", "a letter that is encoded twice"},
		{"/%2573vc/x", 404, 200, "/%2573vc/x", "the same at the beginning"},
		{"/public/...", 200, 200, "/public/...", "three dots are a name"},
		{"/public/..x/svc", 200, 200, "/public/..x/svc", "dots that begin a name"},
		{"/public/svc/x", 200, 200, "/public/svc/x", "the prefix is one at the beginning only"},
		{"/public/%EF%BC%8E%EF%BC%8E/svc", 200, 200, "/public/%EF%BC%8E%EF%BC%8E/svc", "full-width dots are not dots"},
		{"/public/..%EF%BC%8Fsvc", 200, 200, "/public/..%EF%BC%8Fsvc", "a full-width slash is not a slash"},
		{"/svc", 401, 401, "", "the prefix itself"},
		{"/svc/", 401, 401, "", "with a slash"},
		{"/svc/x;v=1", 401, 401, "", "parameters behind the prefix"},
		{"/svc/%252e%252e/public", 401, 401, "", "dots that are encoded twice do not lead out"},
		{"/svc/public", 401, 401, "", "the longest prefix wins, not the last"},
	}
	for _, test := range tests {
		for i, want := range []int{test.beside, test.below} {
			what := fmt.Sprintf("GET %q for %s (%s)", test.target, arrangements[i], test.why)
			got := s.Exchange(rawGet(arrangements[i], test.target))
			if got.StatusCode != want {
				t.Errorf("%s = %d %s, want %d", what, got.StatusCode, got.Body, want)
			}
			protected, public := s.settle(t, what)
			if len(protected) > 0 || (len(public) > 0) != (want == http.StatusOK) {
				t.Errorf("%s: the services received %q and %q", what, protected, public)
			}
			if len(public) == 1 && i == 1 && targetOf(public[0]) != test.forwardedByBelow {
				t.Errorf("%s: the target forwarded = %q, want %q", what, targetOf(public[0]), test.forwardedByBelow)
			}
		}
	}
}

// TestSecurityReadingsOfThePrefix asks for targets that are canonical, and that
// a service still reads as /svc if it strips parameters (RFC 3986 §3.3 leaves
// that to it) or takes an encoded slash for one. The route of neither reading may
// be passed by: 400, or 401 as for /svc, but never the public catch-all.
func TestSecurityReadingsOfThePrefix(t *testing.T) {
	s := newSite(t, `
  - {name: slash-svc, host: slash.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use], allow_encoded_slash: true}
  - {name: slash-all, host: slash.test, path: /, upstreams: [$PUBLIC], public: true, allow_encoded_slash: true}
  - {name: mixed-svc, host: mixed.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use]}
  - {name: mixed-all, host: mixed.test, path: /, upstreams: [$PUBLIC], public: true, allow_encoded_slash: true}
  - {name: deep-all, host: deep.test, path: /a, upstreams: [$PUBLIC], public: true, allow_encoded_slash: true}
  - {name: deep-svc, host: deep.test, path: /a/svc, upstreams: [$PROTECTED], scopes: [svc.use]}
  - {name: nested-svc, host: nested.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use], allow_encoded_slash: true}
  - {name: nested-admin, host: nested.test, path: /svc/admin, upstreams: [$PROTECTED], scopes: [svc.admin]}
`)
	tests := []struct{ host, target, why string }{
		{"below.test", "/svc;x/y", "a servlet container reads /svc/y"},
		{"below.test", "/svc;/y", "an empty parameter"},
		{"below.test", "/svc;jsessionid=1", "the parameter that everybody knows"},
		{"below.test", "/svc%3Bx/y", "an encoded semicolon, for who decodes first"},
		{"beside.test", "/public;v=1/x", "a parameter on a public prefix: no route of that name, or two readings"},
		{"slash.test", "/svc%2fy", "the catch-all allows an encoded slash; who decodes it reads /svc/y"},
		{"slash.test", "/svc%2Fy/z", "in upper case"},
		{"mixed.test", "/svc%2fy", "the protected route does not allow it, and is not asked"},
		{"mixed.test", "/svc;x%2fy", "both"},
		{"mixed.test", "/%2fsvc/y", "who merges slashes after decoding reads /svc/y"},
		{"deep.test", "/a%2fsvc/y", "deeper down"},
		{"deep.test", "/a/svc%2fy", "behind a prefix that is open"},
		{"deep.test", "/a;x/svc/y", "a parameter in a segment above"},
		{"nested.test", "/svc/admin;x/y", "the token is good for the outer route and not for the inner one"},
		{"nested.test", "/svc;x/admin/y", "a parameter in the outer one: no route by one reading, the inner one by the other"},
		{"nested.test", "/svc/admin%2fy", "an encoded slash behind the inner one"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("GET %q for %s (%s)", test.target, test.host, test.why)
		var fields []string
		if test.host == "nested.test" {
			fields = []string{bearer(s.token)}
		}
		switch got := s.Exchange(rawGet(test.host, test.target, fields...)); got.StatusCode {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound: // 404: no such route
		default:
			t.Errorf("%s = %d, want 400, 401, 403 or 404", what, got.StatusCode)
		}
		s.untouched(t, what)
	}
}

// TestSecurityQuery sends queries that proxies like to tidy up.
func TestSecurityQuery(t *testing.T) {
	s := newSite(t, "")
	queries := []struct{ query, why string }{
		{"?", "an empty one is not none"},
		{"?a=1&a=2&b", "the ordinary case"},
		{"?a;b;c=d", "semicolons"},
		{"?a=%zz&b=%", "broken escapes"},
		{"?a=%2e%2e%2f&b=%00%ff", "escapes that a path must not have"},
		{"?/../svc/x", "a path"},
		{"?next=/public/../svc/x//", "a path as a value"},
		{"??a=?&&&==", "odd punctuation"},
		{"?a=b|c{d}^`\"<>[]\\", "characters that should be encoded"},
		{"?q=\xc3\xa4\xff", "raw bytes beyond ASCII"},
		{"?access_token=0123456789abcdef", "a credential of somebody else: hidden in the log, and not taken away"},
		{"?%61=%41+%20", "escapes that are not needed"},
		{"?" + strings.Repeat("a&", 10_000) + "a", "10 001 parameters"},
		{"?" + strings.Repeat("%26", 3000), "a long one"},
	}
	for _, test := range queries {
		target := "/svc/x" + test.query
		what := fmt.Sprintf("GET %.80q (%s)", target, test.why)
		if got := s.Exchange(rawGet("below.test", target)); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token = %d, want 401: the query takes no part in matching", what, got.StatusCode)
		}
		s.untouched(t, what)
		if got := s.Exchange(rawGet("below.test", target, bearer(s.token))); got.StatusCode != http.StatusOK {
			t.Errorf("%s = %d %s, want 200", what, got.StatusCode, got.Body)
		}
		if protected, public := s.settle(t, what); len(protected) != 1 || len(public) != 0 || targetOf(protected[0]) != target {
			t.Errorf("%s: the services received %.200q and %.200q", what, protected, public)
		}
	}
	if strings.Contains(s.Log(), "0123456789abcdef") {
		t.Error("the log holds the value of access_token")
	}
	if strings.Contains(s.Log(), "next=") {
		t.Error("the log holds a query")
	}
}

// TestSecurityQueryIsNoPath asks a public path with a query that names a
// protected one, and the other way round.
func TestSecurityQueryIsNoPath(t *testing.T) {
	s := newSite(t, "")
	tests := []struct {
		target      string
		want        int
		public, why string
	}{
		{"/public?/svc/x", 200, "/public?/svc/x", "the prefix in the query"},
		{"/public/x?/../../svc/x", 200, "/public/x?/../../svc/x", "dots in the query"},
		{"/svc?/public", 401, "", "a public prefix in the query"},
		{"/svc/x?x=/public/", 401, "", "as a value"},
		{"/public%3F/../svc/x", 400, "", "an encoded question mark begins no query, so these are dots in a path"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("GET %q (%s)", test.target, test.why)
		if got := s.Exchange(rawGet("beside.test", test.target)); got.StatusCode != test.want {
			t.Errorf("%s = %d, want %d", what, got.StatusCode, test.want)
		}
		protected, public := s.settle(t, what)
		if len(protected) > 0 || test.public == "" && len(public) > 0 ||
			test.public != "" && (len(public) != 1 || targetOf(public[0]) != test.public) {
			t.Errorf("%s: the services received %q and %q", what, protected, public)
		}
	}
}

func TestSecurityStripPrefix(t *testing.T) {
	s := newSite(t, `
  - {name: strip, host: strip.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use], strip_prefix: true}
  - {name: deep, host: strip.test, path: /svc/deep/er, upstreams: [$PROTECTED], scopes: [svc.use], strip_prefix: true}
  - {name: slash, host: strip.test, path: /slash, upstreams: [$PROTECTED], scopes: [svc.use], strip_prefix: true, allow_encoded_slash: true}
  - {name: odd, host: strip.test, path: "/a:b,c", upstreams: [$PROTECTED], scopes: [svc.use], strip_prefix: true}
  - {name: root, host: root.test, path: /, upstreams: [$PROTECTED], scopes: [svc.use], strip_prefix: true}
`)
	tests := []struct {
		host, target string
		want         int
		forwarded    string
		why          string
	}{
		{"strip.test", "/svc", 200, "/", "nothing left is the root"},
		{"strip.test", "/svc/", 200, "/", "a slash is left"},
		{"strip.test", "/svc?q", 200, "/?q", "a query behind nothing"},
		{"strip.test", "/svc/x/y/", 200, "/x/y/", "the slash at the end stays"},
		{"strip.test", "/svc/svc", 200, "/svc", "once"},
		{"strip.test", "/svc/deep/er/x", 200, "/x", "the longest prefix"},
		{"strip.test", "/svc/deep", 200, "/deep", "not yet the longest"},
		{"strip.test", "/svc/deep/erx", 200, "/deep/erx", "at a segment boundary"},
		{"strip.test", "/svc/a:b", 200, "/a:b", "no scheme"},
		{"strip.test", "/svc/a%3Ab%20c", 200, "/a%3Ab%20c", "the encoding stays"},
		{"strip.test", "/svc/%252e%252e/x", 200, "/%252e%252e/x", "not decoded twice"},
		{"strip.test", "/svc/http://x", 400, "", "an empty segment"},
		{"strip.test", "/svc//evil.test/x", 400, "", "what is left would be a network-path reference"},
		{"strip.test", "/svc/..", 400, "", "what is left would be a dot segment"},
		{"strip.test", "/svc/../x", 400, "", "the same with something behind it"},
		{"strip.test", "/svc/.%2e/x", 400, "", "encoded"},
		{"strip.test", "/svc/..;/x", 400, "", "with a parameter"},
		{"strip.test", "/svc/;x", 400, "", "an empty segment with a parameter"},
		{"strip.test", `/svc/\evil.test`, 400, "", "a backslash"},
		{"strip.test", "/svcx", 404, "", "not a prefix, so nothing to strip"},
		{"strip.test", "/svc%2f..", 400, "", "no encoded slash here"},
		{"strip.test", "/slash/a%2fb%2F", 200, "/a%2fb%2F", "an encoded slash where it is allowed, in its own spelling"},
		{"strip.test", "/slash/%2fevil.test/x", 200, "/%2fevil.test/x", "it begins with a real slash"},
		{"strip.test", "/slash/%2f..%2fx", 400, "", "dots between encoded slashes"},
		{"strip.test", "/slash/a%2f..", 400, "", "dots behind one"},
		{"strip.test", "/slash/a%2f.%2e", 400, "", "encoded, too"},
		{"strip.test", "/slash%2fa", 400, "", "an encoded slash is no segment boundary"},
		{"strip.test", "/a:b,c/x", 200, "/x", "a prefix of odd characters"},
		{"strip.test", "/a%3Ab%2Cc/x", 200, "/x", "the same prefix, encoded: the bytes are longer than the route's"},
		{"root.test", "/", 200, "/", "nothing to strip"},
		{"root.test", "/x?y", 200, "/x?y", "nothing to strip, with a query"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("GET %q for %s (%s)", test.target, test.host, test.why)
		got := s.Exchange(rawGet(test.host, test.target, bearer(s.token)))
		if got.StatusCode != test.want {
			t.Errorf("%s = %d %s, want %d", what, got.StatusCode, got.Body, test.want)
		}
		protected, _ := s.settle(t, what)
		if forwarded := targets(protected); forwarded != test.forwarded {
			t.Errorf("%s: the target forwarded = %q, want %q", what, forwarded, test.forwarded)
		}
		if got := s.Exchange(rawGet(test.host, test.target)); got.StatusCode == http.StatusOK {
			t.Errorf("%s without a token = 200", what)
		}
		s.untouched(t, what+" without a token")
	}
}

// targets joins the targets of raw requests.
func targets(requests []string) string {
	var list []string
	for _, raw := range requests {
		list = append(list, targetOf(raw))
	}
	return strings.Join(list, " ")
}

// TestSecurityHost sends hosts in every shape. In each, first.test has the
// protected service behind /x, second.test the public one.
func TestSecurityHost(t *testing.T) {
	s := newSite(t, `
  - {name: first, host: first.test, path: /x, upstreams: [$PROTECTED], scopes: [svc.use]}
  - {name: second, host: second.test, path: /x, upstreams: [$PUBLIC], public: true}
  - {name: address, host: "[::1]", path: /x, upstreams: [$PUBLIC], public: true}
`)
	const refused, unknown, isPublic, isProtected = 400, 404, 200, 401
	tests := []struct {
		target, lines string
		want          int
		why           string
	}{
		{"/x", "Host: second.test", isPublic, "the ordinary case"},
		{"/x", "Host: SECOND.Test", isPublic, "case does not count"},
		{"/x", "Host: second.test:80", isPublic, "nor does the port"},
		{"/x", "Host: second.test:12345", isPublic, "whichever it is"},
		{"/x", "Host: second.test:", isPublic, "an empty port (RFC 3986 §3.2.3)"},
		{"/x", "Host: second.test.", isPublic, "nor does the dot of a fully qualified name"},
		{"/x", "Host: Second.Test.:8080", isPublic, "nor all of them"},
		{"/x", "host:second.test", isPublic, "the field name ignores case and needs no space"},
		{"/x", "Host: \t second.test \t", isPublic, "white space around a value is not part of it (RFC 9110 §5.5)"},
		{"/x", "Host: [::1]:80", isPublic, "an address"},
		{"/x", "Host: [0:0:0:0:0:0:0:1]", isPublic, "the same address, written out"},
		{"/x", "Host: FIRST.TEST.", isProtected, "what does not count does not open either"},
		{"/x", "Host: first.test:443", isProtected, "a port"},
		{"/x", "Host: third.test", unknown, "nobody's"},
		{"/x", "Host: sub.second.test", unknown, "no wildcards"},
		{"/x", "Host: second.test.evil.test", unknown, "no prefixes"},
		{"/x", "Host: xsecond.test", unknown, "no suffixes"},
		{"/x", "Host: second", unknown, "part of a name"},
		{"/x", "Host: second.test..", unknown, "one dot is taken off, not two"},
		{"/x", "Host: 127.0.0.1", unknown, "an address without this path"},
		{"/x", "Host: second.test\r\nX-Forwarded-Host: first.test", isPublic, "a forwarding field of a stranger"},
		{"/x", "Host: first.test\r\nX-Forwarded-Host: second.test", isProtected, "in the other direction"},
		{"/x", "Host: first.test\r\nX-Host: second.test\r\nX-Original-Host: second.test\r\nForwarded: host=second.test", isProtected, "others"},
		{"/x", "Host: first.test\r\nX-Original-Url: /y\r\nX-Rewrite-Url: /y", isProtected, "a path in a field"},
		{"/x", "Host:", refused, "empty"},
		{"/x", "Host:  ", refused, "blank"},
		{"/x", "Host: .", refused, "nothing but the dot"},
		{"/x", "Host: :80", refused, "nothing but the port"},
		{"/x", "X: y", refused, "none (RFC 9112 §3.2)"},
		{"/x", "Host: second.test\r\nHost: second.test", refused, "two, the same"},
		{"/x", "Host: second.test\r\nHost: first.test", refused, "two different ones"},
		{"/x", "Host: second.test\r\nhOST: first.test", refused, "in another spelling"},
		{"/x", "Host: second.test\r\nHost:", refused, "the second empty"},
		{"/x", "Host: second.test, first.test", refused, "a list"},
		{"/x", "Host: second.test first.test", refused, "two words"},
		{"/x", "Host: user@second.test", refused, "userinfo"},
		{"/x", "Host: second.test/y", refused, "a path"},
		{"/x", "Host: second.test?y", refused, "a query"},
		{"/x", "Host: second.test#y", refused, "a fragment"},
		{"/x", `Host: second.test\first.test`, refused, "a backslash"},
		{"/x", "Host: http://second.test", refused, "a URL"},
		{"/x", "Host: %73econd.test", refused, "encoded"},
		{"/x", "Host: second.test:80:80", refused, "two ports"},
		{"/x", "Host: second.test:http", refused, "a port that is no number"},
		{"/x", "Host: second.test:-1", refused, "a negative port"},
		{"/x", "Host: second.test:65536", refused, "a port out of range"},
		{"/x", "Host: [::1", refused, "half an address"},
		{"/x", "Host: [::1]x", refused, "something behind an address"},
		{"/x", "Host: [fe80::1%25eth0]", refused, "a zone"},
		{"/x", "Host: [second.test]", refused, "a name in brackets"},
		{"/x", "Host: second.test\x00", refused, "NUL"},
		{"/x", "Host: s\xc3\xa9cond.test", refused, "beyond ASCII"},
		{"/x", "Host : second.test", refused, "a space before the colon (RFC 9112 §5.1)"},
		{"/x", " Host: second.test", refused, "a space before the first field"},
		{"/x", "Host: second.test\r\nHost : first.test", refused, "a second one with a space"},
		{"http://second.test/x", "Host: second.test", isPublic, "absolute-form routes like origin-form"},
		{"HTTP://SECOND.TEST.:81/x", "Host: second.test", isPublic, "with the same freedom"},
		{"https://second.test/x", "Host: second.test", isPublic, "https"},
		{"http://second.test/x", "Host: first.test", isPublic, "the target's host is the host (RFC 9112 §3.2.2)"},
		{"http://first.test/x", "Host: second.test", isProtected, "in the other direction"},
		{"http://third.test/x", "Host: second.test", unknown, "nobody's"},
		{"http://second.test", "Host: second.test", unknown, "no path is the root, where no route is"},
		{"http://second.test/x", "Host: second.test\r\nHost: first.test", refused, "two lines beside it"},
		{"http://second.test/x", "Host: fir st", refused, "no host beside it"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("GET %s with %q (%s)", test.target, test.lines, test.why)
		text := "GET " + test.target + " HTTP/1.1\r\n" + test.lines + "\r\nConnection: close\r\n\r\n"
		if got := s.Exchange(text); got.StatusCode != test.want {
			t.Errorf("%s = %d %s, want %d", what, got.StatusCode, got.Body, test.want)
		}
		protected, public := s.settle(t, what)
		if len(protected) > 0 || (len(public) == 1) != (test.want == isPublic) {
			t.Errorf("%s: the services received %q and %q", what, protected, public)
		}
	}
	s.checkForwardedHost(t)
}

// checkForwardedHost looks at the host that the service is told: the one that
// was judged, once.
func (s *site) checkForwardedHost(t *testing.T) {
	t.Helper()
	text := "GET http://first.test/x HTTP/1.1\r\nHost: second.test\r\n" + bearer(s.token) + "\r\nConnection: close\r\n\r\n"
	if got := s.Exchange(text); got.StatusCode != http.StatusOK {
		t.Errorf("absolute-form with a token = %d, want 200", got.StatusCode)
	}
	protected, _ := s.settle(t, "absolute-form")
	for _, raw := range protected {
		for _, name := range []string{"Host", "X-Forwarded-Host"} {
			if got := gatewaytest.Header(raw, name); len(got) != 1 || got[0] != "first.test" {
				t.Errorf("%s = %q, want first.test", name, got)
			}
		}
		if !strings.HasPrefix(raw, "GET /x HTTP/1.1\r\n") {
			t.Errorf("forwarded = %q, want origin-form", raw)
		}
	}
	if text := "GET /x HTTP/1.0\r\n\r\n"; s.Exchange(text).StatusCode != http.StatusBadRequest {
		t.Error("HTTP/1.0 without a Host was not refused")
	}
	s.untouched(t, "HTTP/1.0 without a Host")
}
