package integration_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// tokenMarks are the characters of a field name that are neither letters nor digits
// (RFC 9110 §5.6.2).
const tokenMarks = "!#$%&'*+-.^_`|~"

// forgedNames returns names that a service which reads `_`, `.` and such as `-` may take for one of
// ours, none of them in the spelling that is ours: some that are known, and some of a seed.
func forgedNames(seed uint64) []string {
	list := []string{
		"X_Snowgate_Client", "X.Snowgate.Client", "x-snowgate_client", "X!Snowgate#Client", "X_SNOWGATE_TOKEN_ID", "X--Snowgate-Scope",
		"XSnowgateClient", "-X-Snowgate-Client", "X-Snowgate-Client_", "X-Snowgate-TokenId", "X-Snowgate-Token.Expires", "X-Snowgate-Admin",
	}
	random := rand.New(rand.NewPCG(seed, seed))
	for _, name := range identityHeaders {
		for range 4 {
			var b strings.Builder
			for _, c := range []byte(name) {
				switch {
				case c != '-' && random.IntN(2) == 0:
					b.WriteString(strings.ToLower(string(c)))
				case c != '-':
					b.WriteByte(c)
				default:
					for range 1 + random.IntN(2) {
						b.WriteByte(tokenMarks[random.IntN(len(tokenMarks))])
					}
				}
			}
			if !strings.EqualFold(b.String(), name) {
				list = append(list, b.String())
			}
		}
	}
	return list
}

// TestForwardAuthRefusesSpellings checks that the gateway refuses what proxies that pass on their
// client's header fields would pass on to the service as well.
func TestForwardAuthRefusesSpellings(t *testing.T) {
	t.Parallel()
	g, token := judge(t)
	names := append(forgedNames(21), "X_Request_Id", "x.forwarded.for", "X_Forwarded_Uri", "X_HTTP_Method_Override", "Author_ization")
	for _, name := range names {
		for _, ask := range []described{{"GET", "/orders/1", "a.example", token}, {"GET", "/orders/1", "a.example", ""}, {"GET", "/free", "a.example", ""}} {
			got := g.Exchange("GET /oauth2/auth HTTP/1.1\r\nHost: g\r\nConnection: close\r\nX-Forwarded-Method: " + ask.method +
				"\r\nX-Forwarded-Uri: " + ask.uri + "\r\nX-Forwarded-Host: " + ask.host + authorization(ask.token) + "\r\n" + name + ": forged\r\n\r\n")
			if got.StatusCode != http.StatusBadRequest || !strings.Contains(strings.ToLower(got.Body), jsonText(strings.ToLower(name))) {
				t.Errorf("%q on %s = %d %s, want 400 that names it", name, ask.uri, got.StatusCode, got.Body)
			}
		}
	}
	for _, name := range append([]string{"X-Request-Id", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Real-Ip", "Traceparent", "X-Snow", "X_Own"}, identityHeaders...) {
		if got := verdict(g, described{"GET", "/orders/1", "a.example", token}, name, "1"); got.StatusCode != http.StatusOK {
			t.Errorf("%s in its own spelling = %d %s, want 200", name, got.StatusCode, got.Body)
		}
	}
}

// authorization returns the line that shows token, nothing for none.
func authorization(token string) string {
	if token == "" {
		return ""
	}
	return "\r\nAuthorization: Bearer " + token
}

// jsonText returns text as it stands within a JSON string, where a quotation mark or & may be escaped.
func jsonText(text string) string {
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], "&", `\u0026`)
}
