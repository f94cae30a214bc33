package middleware

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"snowgate/integration/lineartest"
	"snowgate/internal/request/canonical"
	"snowgate/internal/request/exchange"
)

// lines returns n different field lines, each of format with a number.
func lines(format string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return list
}

// heads returns a case of a function of a request. change makes the worst request.
func heads(name string, size int, change func(r *http.Request, size int), f func(r *http.Request)) lineartest.Case {
	return lineartest.Case{Name: name, Size: size, Prepare: func(size int) func() {
		r := httptest.NewRequest(http.MethodGet, "/a", nil)
		change(r, size)
		return func() { f(r) }
	}}
}

// field returns a change that sets one field to piece, repeated.
func field(name, before, piece string) func(r *http.Request, size int) {
	return func(r *http.Request, size int) {
		r.Header[name] = []string{lineartest.Repeat(before, piece, "", size)}
	}
}

// fieldLines returns a change that sets one field many times.
func fieldLines(name, format string) func(r *http.Request, size int) {
	return func(r *http.Request, size int) { r.Header[name] = lines(format, size) }
}

// manyFields is a change that sets many fields.
func manyFields(format string) func(r *http.Request, size int) {
	return func(r *http.Request, size int) {
		for _, name := range lines(format, size) {
			r.Header[name] = []string{"v"}
		}
	}
}

// TestLinear: all code that reads a request head before a token is accepted takes time linear in
// its size. Fields count as fields, the rest in bytes.
func TestLinear(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	peer := netip.MustParseAddr("192.0.2.1")
	caller := func(r *http.Request) { remote(r, proxies, peer, true) }
	bearer := func(r *http.Request) { _, _ = bearerToken(r.Header) }
	spelling := func(r *http.Request) { _ = refuseSpellings(r.Header) }
	described := func(r *http.Request) { _, _, _ = describedRequest(r) }
	name := func(r *http.Request) { requestID(r, true) }
	encoded := func(r *http.Request, size int) {
		raw := lineartest.Repeat("/a", "%2Fa", "", size)
		r.URL.Path, r.URL.RawPath = "", raw
	}
	agreed := func(r *http.Request) {
		path, _ := canonical.ParsePath(r.URL.RawPath)
		agree(r.URL, path)
	}
	cases := []lineartest.Case{
		heads("bearerToken, digits", 0, field("Authorization", "Bearer ", "a"), bearer),
		heads("bearerToken, padding", 0, field("Authorization", "Bearer a", "="), bearer),
		heads("bearerToken, spaces", 0, field("Authorization", "Bearer ", " "), bearer),
		heads("bearerToken, a scheme", 0, field("Authorization", "B", "e"), bearer),
		heads("bearerToken, lines", 1000, fieldLines("Authorization", "Bearer %d"), bearer),
		heads("remote, entries of a line", 0, field("X-Forwarded-For", "192.0.2.1", ",192.0.2.1"), caller),
		heads("remote, commas", 0, field("X-Forwarded-For", "192.0.2.1", ","), caller),
		heads("remote, lines", 1000, fieldLines("X-Forwarded-For", "192.0.2.%[1]d, 2001:db8::%[1]x"), caller),
		heads("remote, addresses of trusted proxies in lines", 500, fieldLines("X-Forwarded-For", "2001:db8::%x"), caller),
		heads("remote, a zone", 0, field("X-Forwarded-For", "[fe80::1%", "a"), caller),
		heads("requestID", 0, field("X-Request-Id", "", "a"), name),
		heads("refuseSpellings, fields", 1000, manyFields("X-%d"), spelling),
		heads("refuseSpellings, spellings", 1000, manyFields("X_Snowgate_%d"), spelling),
		heads("refuseSpellings, forwarding fields", 1000, manyFields("X_Forwarded-_For%d"), spelling),
		heads("refuseSpellings, a long name", 0, func(r *http.Request, size int) {
			r.Header[lineartest.Repeat("X", "_", "Snowgate", size)] = []string{"v"}
		}, spelling),
		heads("agree", 0, encoded, agreed),
		heads("Weight, fields", 1000, manyFields("X-%d"), func(r *http.Request) { (&visit{request: r}).Weight() }),
	}
	for _, piece := range []string{"/a", "%C3%A4", "%2F", "/.a;", "?a=b&"} {
		cases = append(cases, heads("describedRequest, "+piece, 0, func(r *http.Request, size int) {
			r.Header["X-Forwarded-Method"], r.Header["X-Forwarded-Host"] = []string{"GET"}, []string{strings.Repeat("a.", size/2) + "b"}
			r.Header["X-Forwarded-Uri"] = []string{"/x" + strings.Repeat(piece, size/len(piece))}
		}, described))
	}
	lineartest.Run(t, cases)
}

// TestLinearRedaction: keeping secrets out of access lines takes linear time.
func TestLinearRedaction(t *testing.T) {
	said := func(line, text string) {
		var found secrets
		found.add(line)
		found.clean(text, maxLoggedTarget)
	}
	shown := func(text string) { said("Bearer abcdefghijklmnop", text) }
	words := func(text string) { said(text, text[:min(len(text), 4096)]) }
	lineartest.Run(t, []lineartest.Case{
		lineartest.Strings("clean, parameters with tokens", "/?", "access_token=&", "", shown),
		lineartest.Strings("clean, prefixes of tokens", "/", "sgt_", "", shown),
		lineartest.Strings("clean, prefixes of secrets", "/", "sgs_", "", shown),
		lineartest.Strings("clean, encoded text", "/", "%73gt%5F", "", shown),
		lineartest.Strings("clean, a word of the credentials", "/", "abcdefghijklmnop", "", shown),
		lineartest.Strings("clean, letters", "/", "aB3", "", shown),
		lineartest.Strings("clean, control characters", "/", "\x00", "", shown),
		lineartest.Strings("clean, control characters beyond ASCII", "/", "\u202e", "", shown),
		lineartest.Numbers("add, words that differ", "Bearer", " abcdefgh%d", "", words),
		lineartest.Strings("add, one word many times", "Bearer", " redacted", "", words),
		lineartest.Strings("add, signs between words", "Bearer", " =,;", "", words),
		lineartest.Numbers("add, parameters", "Digest a=b", `, x%d="abcdefgh"`, "", words),
		lineartest.Strings("add, Basic", "Basic ", "YWJj", "", words),
		heads("secretsOf, lines", 1000, fieldLines("Authorization", "Bearer abcdefgh%d"), func(r *http.Request) { secretsOf(r, false) }),
		heads("secretsOf, proxy's lines", 1000, fieldLines("Proxy-Authorization", "Basic abcdefgh%d"), func(r *http.Request) { secretsOf(r, false) }),
	})
}

// TestLinearChain: all middleware together, with its access line and refusals, takes linear time.
func TestLinearChain(t *testing.T) {
	handler := http.NotFoundHandler()
	handler = NoEncodedSlash()(handler)
	handler = Canonical()(handler)
	handler = Framing()(handler)
	handler = Drain(NewDrainer())(handler)
	handler = Recover()(handler)
	handler = Observe(Observation{Log: zerolog.New(nothing{}), TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})(handler)
	chain := func(r *http.Request) {
		sent := *r
		u := *r.URL
		sent.URL = &u
		handler.ServeHTTP(httptest.NewRecorder(), sent.WithContext(exchange.NewContext(r.Context(), &exchange.Exchange{})))
	}
	var cases []lineartest.Case
	for _, piece := range []string{"/a", "/.a;b", "%C3%A4", "%2Fa", "/..", "//", "?a=b", "?access_token=&", "@a"} {
		cases = append(cases, heads("target of "+piece, 0, func(r *http.Request, size int) {
			target := "/x" + strings.Repeat(piece, size/len(piece))
			u, err := r.URL.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			r.RequestURI, r.URL = target, u
		}, chain))
	}
	for _, name := range []string{"User-Agent", "Authorization", "Host", "Cookie", "X-Forwarded-For", "X-Request-Id", "Expect", "Upgrade", "Connection"} {
		for _, piece := range []string{"a", "a,", "%41 ", "sgt_", "access_token=&", "192.0.2.1,"} {
			cases = append(cases, heads(name+" of "+piece, 0, field(name, "", piece), chain))
		}
	}
	cases = append(cases, heads("fields", 1000, manyFields("X-%d"), chain))
	lineartest.Run(t, cases)
}

// nothing is a destination for logs that nobody reads.
type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
