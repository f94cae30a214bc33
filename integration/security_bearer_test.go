package integration_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

const bearerRoutes = `
  - {name: admin, host: bearer.test, path: /admin, upstreams: [$PROTECTED], scopes: [svc.admin, svc.use]}
  - {name: any, host: bearer.test, path: /any, upstreams: [$PROTECTED]}
  - {name: orders, host: bearer.test, path: /orders, upstreams: [$PROTECTED], audience: "https://orders.example"}
  - {name: billing, host: bearer.test, path: /billing, upstreams: [$PROTECTED], audience: "https://billing.example"}
  - {name: open, host: bearer.test, path: /open, upstreams: [$PUBLIC], public: true}
`

// judgement is what is to become of a request with some credentials.
type judgement struct {
	name   string
	status []int
	error  string // in WWW-Authenticate; empty: none may be there
}

// The judgements of RFC 6750 §3.1. Where credentials are neither well-formed nor
// absent, security.md leaves 400 and 401 open: both tell the caller.
var (
	accepted    = judgement{"accepted", []int{200}, ""}
	absent      = judgement{"absent", []int{401}, ""}
	malformed   = judgement{"malformed", []int{400}, "invalid_request"}
	unreadable  = judgement{"unreadable", []int{400, 401}, "*"}
	invalid     = judgement{"invalid", []int{401}, "invalid_token"}
	outscoped   = judgement{"outscoped", []int{403}, "insufficient_scope"}
	unforwarded = judgement{"refused by HTTP", []int{400, 401, 431}, "*"}
)

// wantJudged sends a request to a protected path and compares the response.
func (s *site) wantJudged(t *testing.T, what, host, target string, want judgement, fields ...string) {
	t.Helper()
	got := s.Exchange(rawGet(host, target, fields...))
	if !slices.Contains(want.status, got.StatusCode) {
		t.Errorf("%s = %d %s, want %v (%s)", what, got.StatusCode, got.Body, want.status, want.name)
	}
	challenge := strings.Join(got.Header.Values("WWW-Authenticate"), "|")
	if want.status[0] == http.StatusOK {
		if protected, _ := s.settle(t, what); len(protected) != 1 {
			t.Errorf("%s: the service received %d requests, want 1", what, len(protected))
		}
		return
	}
	s.untouched(t, what)
	switch {
	case want.error == "*":
	case !strings.HasPrefix(challenge, `Bearer realm="snowgate"`) || !strings.Contains(challenge, `resource_metadata="`):
		t.Errorf("%s: WWW-Authenticate = %q", what, challenge)
	case want.error == "" && strings.Contains(challenge, "error"):
		t.Errorf("%s: WWW-Authenticate = %q, want no error", what, challenge)
	case want.error != "" && !strings.Contains(challenge, `error="`+want.error+`"`):
		t.Errorf("%s: WWW-Authenticate = %q, want %s", what, challenge, want.error)
	}
}

func TestSecurityCredentials(t *testing.T) {
	s := newSite(t, bearerRoutes)
	good := s.token
	tests := []struct {
		fields []string
		want   judgement
		why    string
	}{
		{[]string{"Authorization: Bearer " + good}, accepted, "the ordinary case"},
		{[]string{"Authorization: bearer " + good}, accepted, "the scheme ignores case (RFC 9110 §11.1)"},
		{[]string{"Authorization: BEARER " + good}, accepted, "in upper case"},
		{[]string{"aUTHORIZATION:bEaReR " + good}, accepted, "the field name, too; no space needed behind the colon"},
		{[]string{"Authorization: \t Bearer " + good + " \t"}, accepted, "white space around a field value is not part of it (RFC 9110 §5.5)"},
		{nil, absent, "none"},
		{[]string{"Authorization: Basic d29ya2VyOng="}, absent, "another scheme"},
		{[]string{"Authorization: Token " + good}, absent, "another scheme with a good token"},
		{[]string{"Authorization: DPoP " + good}, absent, "another scheme of OAuth"},
		{[]string{"Authorization: Bearerx " + good}, absent, "a scheme that begins like ours"},
		{[]string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}, malformed, "two lines, the same"},
		{[]string{"Authorization: Bearer " + good, "Authorization: Basic d29ya2VyOng="}, malformed, "two lines, two schemes"},
		{[]string{"Authorization: Basic d29ya2VyOng=", "Authorization: Bearer " + good}, malformed, "in the other order"},
		{[]string{"Authorization: Bearer " + good, "authorization: Bearer x"}, malformed, "two lines in two spellings"},
		{[]string{"Authorization:", "Authorization: Bearer " + good}, malformed, "the first empty"},
		{[]string{"Authorization: Bearer " + good, "Authorization:"}, malformed, "the second empty"},
		{[]string{"Authorization: Bearer " + good + ", Bearer " + good}, unreadable, "a list"},
		{[]string{"Authorization: Bearer " + good + "," + good}, unreadable, "a list without space"},
		{[]string{"Authorization: Basic d29ya2VyOng=, Bearer " + good}, unreadable, "a list of schemes"},
		{[]string{`Authorization: Bearer "` + good + `"`}, unreadable, "quotes"},
		{[]string{"Authorization: Bearer '" + good + "'"}, unreadable, "single quotes"},
		{[]string{"Authorization: Bearer " + good + " x"}, unreadable, "a trailing word"},
		{[]string{"Authorization: Bearer x " + good}, unreadable, "a leading word"},
		{[]string{"Authorization: Bearer " + good + ";x"}, unreadable, "a parameter"},
		{[]string{"Authorization: Bearer\t" + good}, unreadable, "a tab is no space (RFC 9110 §11.4)"},
		{[]string{"Authorization: Bearer \t" + good}, unreadable, "a tab behind the space"},
		{[]string{"Authorization: Bearer  " + good}, accepted, "two spaces: RFC 6750 has 1*SP, as RFC 9110 §11.4"},
		{[]string{"Authorization: Bearer"}, unreadable, "no token"},
		{[]string{"Authorization: Bearer "}, unreadable, "an empty token"},
		{[]string{"Authorization:"}, unreadable, "an empty line"},
		{[]string{"Authorization: " + good}, unreadable, "no scheme"},
		{[]string{"Authorization: Bearer" + good}, unreadable, "no space"},
		{[]string{"Authorization: Bearer=" + good}, unreadable, "an equals sign"},
		{[]string{"Authorization: Bearer: " + good}, unreadable, "a colon"},
		{[]string{"Authorization: Bearer token=" + good}, unreadable, "a parameter with a name"},
		{[]string{"Authorization: Bearer Bearer " + good}, unreadable, "the scheme twice"},
		{[]string{"Authorization: Bearer \xc2\xa0" + good}, unreadable, "a no-break space"},
		{[]string{"Authorization: Bearer\x0b" + good}, unforwarded, "a vertical tab"},
		{[]string{"Authorization: Bearer " + good + "\x00"}, unforwarded, "NUL"},
		{[]string{"Authorization : Bearer " + good}, unforwarded, "a space before the colon"},
		{[]string{"Authorization: Bearer " + good + "\rx"}, unforwarded, "a bare CR"},
	}
	for _, test := range tests {
		s.wantJudged(t, fmt.Sprintf("credentials %s", test.why), "beside.test", "/svc/x", test.want, test.fields...)
	}
	// A folded line is a space or an error (RFC 9112 §5.2); both are right.
	s.Exchange(rawGet("beside.test", "/svc/x", "Authorization: Bearer\r\n "+good))
	s.settle(t, "a folded line")
}

// TestSecurityNoCredentials puts a good token where none is looked for. Each
// response is that for no credentials at all.
func TestSecurityNoCredentials(t *testing.T) {
	s := newSite(t, bearerRoutes)
	good := s.token
	places := []struct{ target, field, why string }{
		{"/svc?access_token=" + good, "", "the query (RFC 6750 §2.3)"},
		{"/svc?token=" + good + "&Authorization=Bearer+" + good, "", "the query by other names"},
		{"/svc/" + good, "", "the path"},
		{"/svc/access_token=" + good, "", "the path, with a name"},
		{"/svc", "Cookie: access_token=" + good + "; Authorization=Bearer " + good, "a cookie"},
		{"/svc", "Proxy-Authorization: Bearer " + good, "the field for proxies"},
		{"/svc", "X-Authorization: Bearer " + good, "a field of that kind"},
		{"/svc", "X-Forwarded-Authorization: Bearer " + good, "another"},
		{"/svc", "X-Forwarded-Access-Token: " + good, "another"},
		{"/svc", "X-Access-Token: " + good, "another"},
		{"/svc", "X-Api-Key: " + good, "another"},
		{"/svc", "Authorization_: Bearer " + good, "another spelling"},
		{"/svc", "Authorization.: Bearer " + good, "another spelling"},
		{"/svc", "Sec-WebSocket-Protocol: bearer, " + good, "where browsers put it"},
		{"/svc", "WWW-Authenticate: Bearer " + good, "a field of answers"},
		{"/svc", "Referer: http://x/?access_token=" + good, "a field that quotes a URL"},
		{"/svc", "User-Agent: " + good, "a field that is logged"},
		{"/svc", "X-Snowgate-Client: worker", "the identity itself"},
	}
	for _, place := range places {
		fields := []string{}
		if place.field != "" {
			fields = append(fields, place.field)
		}
		s.wantJudged(t, "a token in "+place.why, "beside.test", place.target, absent, fields...)
	}
	for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain"} { // RFC 6750 §2.2
		body := "access_token=" + good
		text := rawRequest(http.MethodPost, "beside.test", "/svc/x", []string{
			"Content-Type: " + kind, fmt.Sprintf("Content-Length: %d", len(body)), "Connection: close",
		}, body)
		if got := s.Exchange(text); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("a token in a body of %s = %d, want 401", kind, got.StatusCode)
		}
		s.untouched(t, "a token in a body")
	}
	s.wantRedacted(t)
}

// wantRedacted sends credentials that do not look like ours and searches the log.
func (s *site) wantRedacted(t *testing.T) {
	t.Helper()
	const secret = "hunter2hunter2"
	for _, text := range []string{
		rawGet("beside.test", "/svc?access_token="+secret),
		rawGet("beside.test", "/svc/..?access_token="+secret),
		rawGet("beside.test", "/public?a=b;access_token="+secret),
		rawGet("beside.test", "/svc", "Referer: http://x/?access_token="+secret, "User-Agent: access_token="+secret),
		rawGet("beside.test", "/svc", "Authorization: Basic "+secret, "User-Agent: "+secret),
		rawGet("beside.test", "/svc", "Authorization: Bearer "+secret, "Cookie: "+secret),
		rawGet("beside.test", "http://user:"+secret+"@beside.test/svc"),
		rawGet("beside.test", "/svc/%zz?access_token="+secret),
		rawGet("beside.test", "/public/"+secret+"#x", "Authorization: Bearer "+secret),
	} {
		s.Exchange(text)
		s.settle(t, "credentials of others")
	}
	for line := range strings.Lines(s.Log()) {
		if strings.Contains(line, secret) {
			t.Errorf("the log holds credentials: %s", line)
		}
	}
	if strings.Contains(s.ScrapeText(), s.token) {
		t.Error("the metrics hold a token")
	}
}

// base62 is the alphabet of tokens.
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// forgeries returns texts that are no token and are near one, with the reason.
func forgeries(good, other string) map[string]string {
	digest := sha256.Sum256([]byte(good[16:59]))
	whole := sha256.Sum256([]byte(good))
	id := publicID(good)
	list := map[string]string{
		good + "0":                          "one character more",
		good + good:                         "twice as long",
		"0" + good:                          "one in front",
		good + "=":                          "padding",
		good[:69]:                           "one character less",
		good[1:]:                            "without the first",
		good[:59]:                           "without the tag",
		good[:59] + strings.Repeat("0", 11): "an empty tag",
		good[:4]:                            "the prefix alone",
		"sgt_" + id:                         "prefix and id",
		"sgt_" + id + "_":                   "with the separator",
		id:                                  "the id alone",
		good[16:59]:                         "the secret alone",
		hex.EncodeToString(digest[:]):       "the digest that Redis holds",
		hex.EncodeToString(whole[:]):        "the digest of the whole token",
		"sgt_" + id + "_" + hex.EncodeToString(digest[:])[:54]: "a digest as the secret",
		"sg/t/" + id:                                            "what looks like the Redis key",
		strings.ToLower(good):                                   "in lower case",
		strings.ToUpper(good):                                   "in upper case",
		"SGT_" + good[4:]:                                       "the prefix in upper case",
		"sgs_" + good[4:]:                                       "the prefix of client secrets",
		strings.Replace(good, "_", "-", 2):                      "other separators",
		good[:15] + "." + good[16:]:                             "another second separator",
		good[:15] + other[15:]:                                  "the id of one token, secret and tag of another",
		good[:59] + other[59:]:                                  "the tag of another",
		good[:16] + other[16:59] + good[59:]:                    "the secret of another",
		"sgt_00000000000_" + good[16:]:                          "the id zero",
		"sgt_AzL8n0Y58m7_" + good[16:]:                          "the largest id",
		"sgt_zzzzzzzzzzz_" + good[16:]:                          "an id that is too large",
		"sgt_" + id + "_" + strings.Repeat("z", 43) + good[59:]: "a secret that is too large",
		good[:59] + strings.Repeat("z", 11):                     "a tag that is too large",
		strings.Repeat("A", 70):                                 "the length alone",
		"sgt_" + strings.Repeat("A", 8<<10):                     "a long one",
		strings.Repeat("A", 20<<10):                             "a very long one",
		"null":                                                  "a word that programs send",
		"undefined":                                             "another",
		"eyJhbGciOiJub25lIn0.eyJzdWIiOiJ3b3JrZXIifQ.":           "an unsigned JWT",
	}
	for i := range len(good) { // one character changed, at every place
		next := base62[(strings.IndexByte(base62, good[i])+1)%len(base62)]
		list[good[:i]+string(next)+good[i+1:]] = fmt.Sprintf("character %d changed", i)
		list[good[:i]+"~"+good[i+1:]] = fmt.Sprintf("character %d of a wrong alphabet", i)
	}
	return list
}

// TestSecurityForgeries shows tokens that are none: one response for all of them,
// and Redis is not asked.
func TestSecurityForgeries(t *testing.T) {
	s := newSite(t, bearerRoutes)
	other := s.grant(s.worker)
	asked := func() float64 {
		return s.Metrics().Sum("snowgate_redis_call_duration_seconds_count", `command="get"`)
	}
	var responses []string
	before, canaries := asked(), 0.0
	for text, why := range forgeries(s.token, other) {
		s.wantJudged(t, "a token with "+why, "beside.test", "/svc/x", invalid, bearer(text))
		canaries++
		got := s.Exchange(rawGet("beside.test", "/svc/x", bearer(text)))
		body := strings.ReplaceAll(got.Body, got.Header.Get("X-Request-Id"), "")
		responses = append(responses, fmt.Sprint(got.StatusCode, got.Header.Get("WWW-Authenticate"), body))
	}
	if got := asked() - before; got > canaries {
		t.Errorf("Redis was asked %v times for tokens that are none", got-canaries)
	}
	if different := slices.Compact(responses); len(different) != 1 {
		t.Errorf("forged tokens get %d different answers: %q", len(different), different)
	}
	// Other characters are no b64token, so these are malformed, or no token.
	for _, text := range []string{"sg:t:" + publicID(s.token), "{sg}:rev", "%73" + s.token[1:], "*", `\x`, s.token[:69] + "\xc3"} {
		s.wantJudged(t, fmt.Sprintf("the token %q", text), "beside.test", "/svc/x", unreadable, bearer(text))
	}
	if status, body := s.Post("/oauth2/revoke", s.worker, "token", other); status != http.StatusOK {
		t.Fatalf("revoke = %d %s", status, body)
	}
	got := s.Exchange(rawGet("beside.test", "/svc/x", bearer(other)))
	body := strings.ReplaceAll(got.Body, got.Header.Get("X-Request-Id"), "")
	if revoked := fmt.Sprint(got.StatusCode, got.Header.Get("WWW-Authenticate"), body); revoked != responses[0] {
		t.Errorf("a revoked token gets %s, a forged one %s: want one text for all", revoked, responses[0])
	}
}

// TestSecurityScopeAndAudience asks routes in turn, so that a verdict kept from
// one of them would show on the next.
func TestSecurityScopeAndAudience(t *testing.T) {
	plain := gatewaytest.NewClient("plain", "")
	admin := gatewaytest.NewClient("admin", "svc.use svc.admin")
	shop := gatewaytest.NewClient("shop", "svc.use", `audiences: ["https://orders.example", "https://billing.example"]`)
	s := newSite(t, bearerRoutes, plain, admin, shop)
	tokens := map[string]string{
		"worker": s.token, "plain": s.grant(plain), "admin": s.grant(admin), "shop": s.grant(shop),
		"narrow": s.grant(admin, "scope", "svc.admin"), "orders": s.grant(shop, "resource", "https://orders.example"),
	}
	want := map[string]map[string]judgement{
		"/admin":   {"admin": accepted, "worker": outscoped, "plain": outscoped, "narrow": outscoped, "shop": outscoped, "orders": outscoped},
		"/any":     {"admin": accepted, "worker": accepted, "plain": accepted, "narrow": accepted, "shop": accepted, "orders": accepted},
		"/orders":  {"admin": invalid, "worker": invalid, "plain": invalid, "narrow": invalid, "shop": accepted, "orders": accepted},
		"/billing": {"admin": invalid, "worker": invalid, "plain": invalid, "narrow": invalid, "shop": accepted, "orders": invalid},
	}
	for round := range 3 {
		for target, verdicts := range want {
			for who, verdict := range verdicts {
				what := fmt.Sprintf("round %d: GET %s as %s", round, target, who)
				s.wantJudged(t, what, "bearer.test", target, verdict, bearer(tokens[who]))
			}
		}
	}
	got := s.Exchange(rawGet("bearer.test", "/admin", bearer(s.token)))
	if challenge := got.Header.Get("WWW-Authenticate"); !strings.Contains(challenge, `scope="svc.admin svc.use"`) {
		t.Errorf("WWW-Authenticate of a 403 = %q, want the scopes of the route", challenge)
	}
	s.wantScopeField(t, tokens)
}

// wantScopeField looks at the scope that the service is told: the token's.
func (s *site) wantScopeField(t *testing.T, tokens map[string]string) {
	t.Helper()
	s.settle(t, "scopes")
	for who, want := range map[string]string{"plain": "", "admin": "svc.admin svc.use", "narrow": "svc.admin"} {
		s.Exchange(rawGet("bearer.test", "/any", bearer(tokens[who])))
		protected, _ := s.settle(t, "the scope of "+who)
		if len(protected) != 1 {
			t.Fatalf("the service received %d requests of %s, want 1", len(protected), who)
		}
		got := gatewaytest.Header(protected[0], "X-Snowgate-Scope")
		words := strings.Fields(strings.Join(got, " "))
		slices.Sort(words)
		if len(got) != 1 || strings.Join(words, " ") != want {
			t.Errorf("X-Snowgate-Scope of %s = %q, want %q", who, got, want)
		}
	}
}

// TestSecurityExpiry follows a token over its end: good before, never after.
func TestSecurityExpiry(t *testing.T) {
	// slack covers the rounding of the expiry to milliseconds and the difference
	// between the clock of the gateway and that of the test.
	const ttl, slack = 5 * time.Second, 20 * time.Millisecond
	brief := gatewaytest.NewClient("brief", "svc.use", "token_ttl: "+ttl.String())
	reader := gatewaytest.NewClient("reader", "", "introspect: true")
	s := newSite(t, bearerRoutes, brief, reader)
	asked := time.Now()
	token := s.grant(brief)
	answered := time.Now()
	if got := s.Exchange(rawGet("beside.test", "/svc/x", bearer(token))); got.StatusCode != http.StatusOK {
		t.Fatalf("a new token = %d, want 200", got.StatusCode)
	}
	protected, _ := s.settle(t, "a new token")
	expires, err := time.Parse(time.RFC3339, gatewaytest.Header(protected[0], "X-Snowgate-Token-Expires")[0])
	if err != nil || expires.Before(asked.Add(ttl).Truncate(time.Second)) || expires.After(answered.Add(ttl)) {
		t.Errorf("X-Snowgate-Token-Expires = %v %v, want about %v", expires, err, asked.Add(ttl))
	}
	gatewaytest.Eventually(t, ttl+20*time.Second, "the token expires", func() bool {
		begin := time.Now()
		got := s.Get("/canary", token)
		end := time.Now()
		if got.StatusCode == http.StatusOK && begin.After(answered.Add(ttl+slack)) {
			t.Fatalf("%v after its expiry the token = 200", begin.Sub(answered.Add(ttl)))
		}
		if got.StatusCode == http.StatusUnauthorized && end.Before(asked.Add(ttl-slack)) {
			t.Fatalf("%v before its expiry the token = 401", asked.Add(ttl).Sub(end))
		}
		return got.StatusCode == http.StatusUnauthorized
	})
	s.settle(t, "the end of a token")
	for range 3 { // once dead, always dead
		s.wantJudged(t, "an expired token", "beside.test", "/svc/x", invalid, bearer(token))
	}
	status, body := s.Post("/oauth2/introspect", reader, "token", token)
	if status != http.StatusOK || strings.TrimSpace(body) != `{"active":false}` {
		t.Errorf("introspection of an expired token = %d %s", status, body)
	}
	if status, body := s.Post("/oauth2/revoke", brief, "token", token); status != http.StatusOK {
		t.Errorf("revocation of an expired token = %d %s, want 200", status, body)
	}
}

// TestSecurityPublicRoutesIgnoreTokens shows public routes every kind of token:
// they are not looked at and do not make an identity.
func TestSecurityPublicRoutesIgnoreTokens(t *testing.T) {
	s := newSite(t, bearerRoutes)
	for _, fields := range [][]string{{bearer(s.token)}, {bearer("x")}, {bearer(s.token), bearer(s.token)}, {"Authorization:"}, nil} {
		what := fmt.Sprintf("a public route with %d Authorization lines", len(fields))
		if got := s.Exchange(rawGet("bearer.test", "/open", fields...)); got.StatusCode != http.StatusOK {
			t.Errorf("%s = %d, want 200", what, got.StatusCode)
		}
		if protected, public := s.settle(t, what); len(protected) != 0 || len(public) != 1 {
			t.Errorf("%s: the services received %q and %q", what, protected, public)
		}
	}
}
