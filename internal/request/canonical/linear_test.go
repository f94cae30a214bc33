package canonical_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"snowgate/integration/lineartest"
	"snowgate/internal/request/canonical"
)

// TestLinear: parsing targets and hosts takes time linear in their size.
func TestLinear(t *testing.T) {
	path := func(text string) { _, _ = canonical.ParsePath(text) }
	host := func(text string) { _, _ = canonical.Host(text) }
	origin := func(text string) { _ = canonical.ValidOrigin(text) }
	prefix := func(text string) { _ = canonical.ValidPrefix(text) }
	cases := []lineartest.Case{
		lineartest.Strings("ParsePath, one segment", "/", "a", "", path),
		lineartest.Strings("ParsePath, segments", "", "/a", "", path),
		lineartest.Strings("ParsePath, segments that begin with a dot", "", "/.a", "", path),
		lineartest.Strings("ParsePath, parameters", "/a", ";b=c", "", path),
		lineartest.Strings("ParsePath, segments with parameters", "", "/.a;b", "", path),
		lineartest.Strings("ParsePath, encoded text", "/", "%C3%A4", "", path),
		lineartest.Strings("ParsePath, encoded slashes", "/a", "%2Fa", "", path),
		lineartest.Strings("ParsePath, encoded slashes and dots", "/a", "%2F.a;", "", path),
		lineartest.Strings("ParsePath, encoded slashes and segments", "/a", "%2Fa/b", "", path),
		lineartest.Strings("ParsePath, an empty segment at the end", "", "/a", "//", path),
		lineartest.Strings("ParsePath, wrong UTF-8 at the end", "/", "%C3%A4", "%FF", path),
		lineartest.Strings("Host, labels", "", "a.", "a", host),
		lineartest.Strings("Host, capitals", "", "A", "", host),
		lineartest.Strings("Host, dots", "", ".", "", host),
		lineartest.Strings("Host, a port", "a:", "1", "", host),
		lineartest.Strings("Host, an address", "[", "1:", "]", host),
		lineartest.Strings("Host, a zone", "[fe80::1%", "a", "]", host),
		lineartest.Strings("ValidOrigin, labels", "https://", "a.", "a", origin),
		lineartest.Strings("ValidOrigin, asterisks", "https://", "*.", "a", origin),
		lineartest.Strings("ValidPrefix, segments", "", "/a", "", prefix),
		request("FromRequest, a path", "", "/a"),
		request("FromRequest, a query", "/a?", "b=c&"),
		request("FromRequest, an absolute target", "http://h", "/a"),
	}
	lineartest.Run(t, cases)
}

// request returns a case of FromRequest. Its target begins with before, followed by pieces.
func request(name, before, piece string) lineartest.Case {
	return lineartest.Case{Name: name, Prepare: func(size int) func() {
		target := before + strings.Repeat(piece, size/len(piece))
		u, err := url.ParseRequestURI(target)
		if err != nil {
			panic(err)
		}
		r := &http.Request{Method: http.MethodGet, URL: u, RequestURI: target, Host: "h", ProtoMajor: 1, ProtoMinor: 1}
		return func() { _, _ = canonical.FromRequest(r) }
	}}
}
