package integration_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
)

const formType = "Content-Type: application/x-www-form-urlencoded"

// endpoints of the gateway itself that take forms.
var endpoints = []string{"/oauth2/token", "/oauth2/introspect", "/oauth2/revoke"}

// post sends a body as it is to an endpoint.
func (s *site) post(path, body string, fields ...string) gatewaytest.Response {
	return s.Exchange(rawRequest(http.MethodPost, "127.0.0.1", path,
		slices.Concat(fields, []string{fmt.Sprintf("Content-Length: %d", len(body)), "Connection: close"}), body))
}

// basic is the line that authenticates a client.
func basic(id, secret string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(id+":"+secret))
}

// wantOAuth compares a response of an OAuth endpoint: its status, its error and
// what every one has.
func wantOAuth(t *testing.T, what string, got gatewaytest.Response, status int, code string) {
	t.Helper()
	var response struct {
		Error       string `json:"error"`
		AccessToken string `json:"access_token"`
	}
	err := json.Unmarshal([]byte(got.Body), &response)
	if got.StatusCode != status || response.Error != code || code != "" && err != nil {
		t.Errorf("%s = %d %s, want %d %s", what, got.StatusCode, got.Body, status, code)
	}
	if code != "" && response.AccessToken != "" {
		t.Errorf("%s: an error with a token", what)
	}
	if cache := got.Header.Get("Cache-Control"); cache != "no-store" {
		t.Errorf("%s: Cache-Control = %q, want no-store", what, cache)
	}
	if code != "" && got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: Content-Type = %q, want application/json", what, got.Header.Get("Content-Type"))
	}
	challenge := got.Header.Get("WWW-Authenticate")
	if (status == http.StatusUnauthorized) != strings.HasPrefix(challenge, "Basic realm=") {
		t.Errorf("%s: WWW-Authenticate = %q with %d", what, challenge, status)
	}
	if gatewaytest.Leak(got.Body) != "" && code != "" {
		t.Errorf("%s: the answer repeats a secret", what)
	}
}

// TestSecurityForms sends bodies that are no form, or not one form, to each
// endpoint: 400 invalid_request (RFC 6749 §5.2).
func TestSecurityForms(t *testing.T) {
	client := gatewaytest.NewClient("form", "svc.use", "introspect: true")
	s := newSite(t, "", client)
	good := basic(client.ID, client.Secret)
	const grant = "grant_type=client_credentials"
	token := "&token=" + s.token
	tests := []struct {
		query, body string
		fields      []string
		why         string
	}{
		{"", grant + "&" + grant + token, []string{formType, good}, "grant_type twice, the same"},
		{"", grant + "&grant_type=password" + token, []string{formType, good}, "grant_type twice"},
		{"", grant + token + token, []string{formType, good}, "token twice"},
		{"", grant + "&scope=svc.use&scope=" + token, []string{formType, good}, "scope twice, the second empty"},
		{"", grant + token + "&x=1&x=2", []string{formType, good}, "an unknown parameter twice: RFC 6749 §3.2 forbids any"},
		{"", grant + token + "&grant%5Ftype=client_credentials", []string{formType, good}, "the same name in two spellings"},
		{"", grant + token + "&client_id=form&client_id=form&client_secret=" + client.Secret, []string{formType}, "client_id twice"},
		{"?" + grant, grant + token, []string{formType, good}, "a parameter in the query"},
		{"?" + grant, token[1:], []string{formType, good}, "only there"},
		{"?access_token=x", grant + token, []string{formType, good}, "a credential in the query"},
		{"?client_id=form&client_secret=" + client.Secret, grant + token, []string{formType}, "the credentials in the query"},
		{"?x", grant + token, []string{formType, good}, "anything in the query"},
		{"", `{"grant_type":"client_credentials","token":"x"}`, []string{"Content-Type: application/json", good}, "JSON"},
		{"", `{"grant_type":"client_credentials","token":"x"}`, []string{formType, good}, "JSON that says it were a form"},
		{"", grant + token, []string{"Content-Type: application/json", good}, "a form that says it were JSON"},
		{"", grant + token, []string{good}, "no content type"},
		{"", grant + token, []string{"Content-Type:", good}, "an empty one"},
		{"", grant + token, []string{formType, formType, good}, "two"},
		{"", grant + token, []string{"Content-Type: text/plain", good}, "another"},
		{"", grant + token, []string{"Content-Type: multipart/form-data; boundary=x", good}, "the other kind of form"},
		{"", grant + token, []string{formType + ", application/json", good}, "a list"},
		{"", grant + token, []string{formType + "; charset=utf-16", good}, "another charset"},
		{"", grant + token, []string{formType + "; charset=iso-8859-1", good}, "yet another"},
		{"", grant + token, []string{formType + "; charset", good}, "half a parameter"},
		{"", grant + token + "&client_id=form&client_secret=" + client.Secret, []string{formType, good}, "both methods (RFC 6749 §2.3)"},
		{"", grant + token + "&client_secret=x", []string{formType, good}, "half of the other method"},
		{"", grant + token + "&client_id=other", []string{formType, good}, "the id of another client beside it"},
		{"", grant + token, []string{formType, good, good}, "two Authorization lines"},
		{"", grant + token, []string{formType, good, "Authorization:"}, "the second empty"},
		{"", grant + token + "&x=a%00b", []string{formType, good}, "NUL in a value"},
		{"", grant + token + "&x%00=a", []string{formType, good}, "NUL in a name"},
		{"", grant + token + "&x=a\x00b", []string{formType, good}, "NUL, raw"},
		{"", grant + token + "&x=%ff", []string{formType, good}, "no UTF-8"},
		{"", grant + token + "&x=\xff", []string{formType, good}, "no UTF-8, raw"},
		{"", grant + token + "&x=%c0%af", []string{formType, good}, "overlong UTF-8"},
		{"", grant + token + "&x=%ed%a0%80", []string{formType, good}, "a surrogate"},
		{"", grant + token + "&x=%zz", []string{formType, good}, "a broken escape"},
		{"", grant + token + "&x=%", []string{formType, good}, "half an escape"},
		{"", grant + token + ";x=1", []string{formType, good}, "a semicolon"},
		{"", "", []string{formType, good}, "nothing"},
		{"", "grant_type=&token=", []string{formType, good}, "empty values, which count as absent (RFC 6749 §3.1)"},
		{"", "GRANT_TYPE=client_credentials&TOKEN=x", []string{formType, good}, "names in capitals are other names"},
	}
	for _, test := range tests {
		for _, path := range endpoints {
			what := fmt.Sprintf("POST %s with %s", path, test.why)
			wantOAuth(t, what, s.post(path+test.query, test.body, test.fields...), http.StatusBadRequest, "invalid_request")
			s.untouched(t, what)
		}
	}
	if got := s.Get("/canary", s.token); got.StatusCode != http.StatusOK {
		t.Errorf("the token that was named in all of them = %d, want 200", got.StatusCode)
	}
	s.wantSizeLimit(t, good)
}

// wantSizeLimit goes to the limit of a form and beyond.
func (s *site) wantSizeLimit(t *testing.T, good string) {
	t.Helper()
	const limit = 16 << 10
	form := "grant_type=client_credentials&x="
	fits := form + strings.Repeat("y", limit-len(form))
	wantOAuth(t, "a form of 16 KiB", s.post("/oauth2/token", fits, formType, good), http.StatusOK, "")
	for _, path := range endpoints {
		wantOAuth(t, "a form that is a byte larger", s.post(path, fits+"y", formType, good), http.StatusRequestEntityTooLarge, "invalid_request")
		chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(fits)+1, fits+"y")
		got := s.Exchange(rawRequest(http.MethodPost, "x", path, []string{formType, good, "Transfer-Encoding: chunked", "Connection: close"}, chunks))
		wantOAuth(t, "the same in chunks", got, http.StatusRequestEntityTooLarge, "invalid_request")
		wantOAuth(t, "the same from a stranger", s.post(path, fits+"y", formType, basic("x", "y")), http.StatusRequestEntityTooLarge, "invalid_request")
	}
	s.settle(t, "large forms")
}

func TestSecurityTokenRequests(t *testing.T) {
	shop := gatewaytest.NewClient("shop", "a b snowgate:admin", `audiences: ["https://orders.example"]`)
	s := newSite(t, "", shop)
	good := basic(shop.ID, shop.Secret)
	const grant = "grant_type=client_credentials"
	tests := []struct {
		body  string
		field string
		want  int
		code  string
		why   string
	}{
		{grant, good, 200, "", "the ordinary case"},
		{grant, strings.Replace(good, "Basic", "bAsIc", 1), 200, "", "the scheme ignores case"},
		{grant + "&client_id=shop", good, 200, "", "its own id beside it is no second method"},
		{grant + "&client_id=shop&client_secret=" + shop.Secret, "", 200, "", "client_secret_post"},
		{grant + "&unknown=1&x=", good, 200, "", "unknown parameters are ignored (RFC 6749 §3.2)"},
		{grant + "&scope=a", good, 200, "", "a scope it has"},
		{grant + "&scope=b+a+a", good, 200, "", "in any order, also twice"},
		{grant + "&scope=snowgate:admin", good, 200, "", "the one that must be asked for"},
		{grant + "&scope=", good, 200, "", "an empty scope is none"},
		{grant + "&resource=https://orders.example", good, 200, "", "a resource it has"},
		{grant + "&resource=https://orders.example&resource=https://orders.example", good, 200, "", "resource may be repeated (RFC 8707 §2)"},
		{"grant_type=password&username=a&password=b", good, 400, "unsupported_grant_type", "another grant"},
		{"grant_type=authorization_code&code=x", good, 400, "unsupported_grant_type", "another"},
		{"grant_type=refresh_token&refresh_token=x", good, 400, "unsupported_grant_type", "another"},
		{"grant_type=urn:ietf:params:oauth:grant-type:token-exchange", good, 400, "unsupported_grant_type", "another"},
		{"grant_type=CLIENT_CREDENTIALS", good, 400, "unsupported_grant_type", "values are case-sensitive"},
		{"grant_type=client_credentials+", good, 400, "unsupported_grant_type", "a space behind it"},
		{grant + "&scope=c", good, 400, "invalid_scope", "a scope that nobody has"},
		{grant + "&scope=svc.use", good, 400, "invalid_scope", "a scope of another client"},
		{grant + "&scope=a+c", good, 400, "invalid_scope", "one of two: nothing is granted in part"},
		{grant + "&scope=A", good, 400, "invalid_scope", "scopes are case-sensitive"},
		{grant + "&scope=a++b", good, 400, "invalid_scope", "two spaces"},
		{grant + "&scope=+a", good, 400, "invalid_scope", "a space in front"},
		{grant + "&scope=a%09b", good, 400, "invalid_scope", "a tab"},
		{grant + "&scope=a,b", good, 400, "invalid_scope", "a comma"},
		{grant + "&scope=*", good, 400, "invalid_scope", "no wildcards"},
		{grant + "&scope=%22a%22", good, 400, "invalid_scope", "quotes"},
		{grant + "&scope=%c3%a4", good, 400, "invalid_scope", "beyond ASCII"},
		{grant + "&scope=a%0d%0aX:%20y", good, 400, "invalid_scope", "a line end"},
		{grant + "&resource=https://billing.example", good, 400, "invalid_target", "an unknown resource (RFC 8707 §2)"},
		{grant + "&resource=https://orders.example/", good, 400, "invalid_target", "one that is nearly known"},
		{grant + "&resource=orders", good, 400, "invalid_target", "no URI"},
		{grant + "&resource=https://orders.example%23x", good, 400, "invalid_target", "with a fragment"},
		{grant + "&resource=https://orders.example&resource=https://billing.example", good, 400, "invalid_target", "one of two"},
	}
	for _, charset := range []string{"", "; charset=UTF-8", ";charset=utf-8", `; charset="utf-8"`} {
		got := s.post("/oauth2/token", grant, formType+charset, good)
		wantOAuth(t, "a form with "+charset, got, http.StatusOK, "")
	}
	for _, test := range tests {
		fields := []string{formType}
		if test.field != "" {
			fields = append(fields, test.field)
		}
		got := s.post("/oauth2/token", test.body, fields...)
		wantOAuth(t, test.why, got, test.want, test.code)
		s.untouched(t, test.why)
		if test.want == http.StatusOK {
			wantTokenResponse(t, test.why, got.Body)
		}
	}
	s.wantGrantedScope(t, shop)
}

// wantTokenResponse wants exactly what RFC 6749 §5.1 names.
func wantTokenResponse(t *testing.T, what, body string) {
	t.Helper()
	var response map[string]any
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	want := []string{"access_token", "expires_in", "scope", "token_type"}
	if got := slices.Sorted(maps.Keys(response)); !slices.Equal(got, want) {
		t.Errorf("%s: the answer has %v, want %v", what, got, want)
	}
	if text, _ := response["access_token"].(string); len(text) != 70 || response["token_type"] != "Bearer" || response["expires_in"] != 3600.0 {
		t.Errorf("%s: token of %d characters, type %v for %v s", what, len(text), response["token_type"], response["expires_in"])
	}
}

// wantGrantedScope looks at what a token is given without asking: not the scope
// of administrators.
func (s *site) wantGrantedScope(t *testing.T, shop gatewaytest.Credentials) {
	t.Helper()
	for asked, want := range map[string]string{"": "a b", "b": "b", "snowgate:admin": "snowgate:admin"} {
		_, body := s.Post("/oauth2/token", shop, "grant_type", "client_credentials", "scope", asked)
		var response struct{ Scope string }
		_ = json.Unmarshal([]byte(body), &response)
		words := strings.Fields(response.Scope)
		slices.Sort(words)
		if got := strings.Join(words, " "); got != want {
			t.Errorf("the scope for %q = %q, want %q", asked, got, want)
		}
	}
}

// TestSecurityBadCredentials shows every endpoint credentials that are none: one
// response for all, and one that does not tell which half was wrong.
func TestSecurityBadCredentials(t *testing.T) {
	bare := "  - id: bare\n    scopes: [svc.use]\n" // a client without any secret
	s := newSite(t, "", gatewaytest.Credentials{ID: "bare", YAML: bare})
	body := "grant_type=client_credentials&token=" + s.token
	id, secret := s.worker.ID, s.worker.Secret
	encode := base64.StdEncoding.EncodeToString
	tests := []struct{ field, form, why string }{
		{basic("nobody", secret), "", "an unknown client"},
		{basic(id, "wrong"), "", "a wrong secret"},
		{basic(id, secret[:52]+"0"), "", "the last character changed"},
		{basic(id, secret+"x"), "", "a character more"},
		{basic(id, secret[:52]), "", "a character less"},
		{basic(id, strings.ToLower(secret)), "", "another case"},
		{basic(id, " "+secret), "", "a space in front"},
		{basic(id, ""), "", "an empty secret"},
		{basic("bare", ""), "", "an empty secret of a client that has none: unset never equals empty"},
		{basic("bare", "x"), "", "any secret of a client that has none"},
		{basic("", ""), "", "nothing"},
		{basic("", secret), "", "no id"},
		{basic(strings.ToUpper(id), secret), "", "ids are case-sensitive"},
		{basic(id+" ", secret), "", "a space behind the id"},
		{basic(id+"\x00", secret), "", "NUL behind the id"},
		{basic("*", secret), "", "a pattern"},
		{basic("sg:c:"+id, secret), "", "a colon, as in a Redis key"},
		{basic("{"+id+"}", secret), "", "a hash tag of Redis Cluster"},
		{basic(id+"\r\nGET x", secret), "", "a line end"},
		{basic(secret, id), "", "the wrong way round"},
		{basic(id, s.token), "", "a token in place of the secret"},
		{"Authorization: Basic " + encode([]byte(id)), "", "no colon"},
		{"Authorization: Basic", "", "no credentials"},
		{"Authorization: Basic !!!", "", "no base64"},
		{"Authorization: Basic " + encode([]byte(id+":"+secret)) + "x", "", "something behind it"},
		{"Authorization: Basic " + strings.TrimRight(encode([]byte(id+":"+secret)), "=") + "\t", "", "without padding, if it needs any"},
		{"Authorization: " + encode([]byte(id+":"+secret)), "", "no scheme"},
		{"Authorization: Bearer " + s.token, "", "a token: it authenticates no client"},
		{"Authorization: Digest username=worker", "", "another scheme"},
		{"Authorization:", "", "an empty line"},
		{"X: y", "", "none at all"},
		{"X: y", "&client_id=worker", "an id without a secret"},
		{"X: y", "&client_secret=" + secret, "a secret without an id"},
		{"X: y", "&client_id=worker&client_secret=wrong", "a wrong one in the body"},
		{"X: y", "&client_id=nobody&client_secret=wrong", "an unknown one in the body"},
		{"X: y", "&client_id=bare&client_secret=", "an empty one in the body"},
		{"X: y", "&client_id=*&client_secret=*", "a pattern in the body"},
		{"X: y", "&client_id=worker%0d%0ax&client_secret=" + secret, "a line end in the body"},
		{"X: y", "&client_id=" + strings.Repeat("x", 8<<10) + "&client_secret=y", "a long id"},
		{"X: y", "&client_id=worker&client_secret=" + strings.Repeat("x", 8<<10), "a long secret"},
		{"Cookie: client_id=worker; client_secret=" + secret, "", "in a cookie"},
	}
	for _, path := range endpoints {
		var responses []string
		for _, test := range tests {
			what := fmt.Sprintf("POST %s with %s", path, test.why)
			if base := "without padding, if it needs any"; test.why == base && !strings.HasSuffix(basic(id, secret), "=") {
				continue // then it is right
			}
			before := s.redisCalls()
			got := s.post(path, body+test.form, formType, test.field)
			if calls := s.redisCalls() - before; calls > 1 {
				t.Errorf("%s: %v look-ups, want 1 at most", what, calls)
			}
			wantOAuth(t, what, got, http.StatusUnauthorized, "invalid_client")
			s.untouched(t, what)
			responses = append(responses, got.Body+got.Header.Get("WWW-Authenticate"))
		}
		if different := slices.Compact(responses); len(different) != 1 {
			t.Errorf("POST %s: bad credentials get %d different answers: %q", path, len(different), different)
		}
	}
	got := s.post("/oauth2/token", body+"&client_id="+strings.Repeat("x", 64<<10), formType)
	wantOAuth(t, "an id of 64 KiB", got, http.StatusRequestEntityTooLarge, "invalid_request")
}

// redisCalls counts the commands that look something up.
func (s *site) redisCalls() float64 {
	calls, metrics := 0.0, s.Metrics()
	for _, command := range []string{"get", "hget", "hgetall", "mget", "exists", "keys", "scan"} {
		calls += metrics.Sum("snowgate_redis_call_duration_seconds_count", `command="`+command+`"`)
	}
	return calls
}

// TestSecurityEndpointMethods asks the endpoints with other methods and near paths.
func TestSecurityEndpointMethods(t *testing.T) {
	s := newSite(t, `
  - {name: catch-all, path: /, upstreams: [$PUBLIC], public: true}
`)
	for _, path := range endpoints {
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY", "post"} {
			got := s.Exchange(rawRequest(method, "x", path, []string{basic(s.worker.ID, s.worker.Secret), "Connection: close"}, ""))
			if got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Allow") != http.MethodPost || got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s = %d, Allow %q, Cache-Control %q", method, path, got.StatusCode, got.Header.Get("Allow"), got.Header.Get("Cache-Control"))
			}
			s.untouched(t, method+" "+path)
		}
		override := s.Exchange(rawGet("x", path, "X-Http-Method-Override: POST", formType))
		if override.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s with an override = %d, want 405", path, override.StatusCode)
		}
		// Paths near the endpoints do not go to the catch-all route, so that a typing error does
		// not send credentials to a service.
		for near, want := range map[string]int{path + "/": 404, path + "/x": 404, path + "%2f": 400, path + "//": 400, path + ";x": 404, "/oauth2": 404, "/oauth2/": 404} {
			got := s.post(near, "grant_type=client_credentials", formType, basic(s.worker.ID, s.worker.Secret))
			if got.StatusCode != want && got.StatusCode != http.StatusBadRequest {
				t.Errorf("POST %s = %d, want %d", near, got.StatusCode, want)
			}
			s.untouched(t, "POST "+near)
		}
	}
	for _, host := range []string{"beside.test", "x", "[::1]:80"} { // on every host
		if got := s.Exchange(rawGet(host, "/livez")); got.StatusCode != http.StatusOK {
			t.Errorf("GET /livez for %s = %d, want 200", host, got.StatusCode)
		}
		s.untouched(t, "GET /livez")
	}
	for _, path := range []string{"/metrics", "/admin/v1/clients", "/admin", "/debug/pprof/"} { // nothing of the admin listener
		s.Exchange(rawGet("x", path))
		if _, public := s.settle(t, path); len(public) != 1 {
			t.Errorf("GET %s on the public listener is answered by the gateway itself", path)
		}
	}
}

// TestSecurityIntrospection asks about tokens of every kind.
func TestSecurityIntrospection(t *testing.T) {
	reader := gatewaytest.NewClient("reader", "", "introspect: true")
	s := newSite(t, "", reader)
	dead := s.grant(s.worker)
	if status, body := s.Post("/oauth2/revoke", s.worker, "token", dead); status != http.StatusOK {
		t.Fatalf("revoke = %d %s", status, body)
	}
	tests := map[string]string{
		"revoked": dead, "garbage": "garbage", "blank": " ", "the id alone": publicID(s.token), "a client secret": reader.Secret,
		"cut": s.token[:69], "changed": s.token[:69] + "~", "spaced": s.token + " ", "quoted": `"` + s.token + `"`,
		"with a scheme": "Bearer " + s.token, "of 8 KiB": strings.Repeat("x", 8<<10), "a Redis key": "sg:t:" + publicID(s.token), "not ASCII": "ä",
	}
	for name, token := range tests {
		status, body := s.Post("/oauth2/introspect", reader, "token", token)
		if status != http.StatusOK || strings.TrimSpace(body) != `{"active":false}` {
			t.Errorf("introspection of a token that is %s = %d %s", name, status, body)
		}
		s.untouched(t, "introspection of a token that is "+name)
	}
	status, body := s.Post("/oauth2/introspect", reader, "token", s.token, "token_type_hint", "refresh_token", "x", "y")
	var response map[string]any
	if err := json.Unmarshal([]byte(body), &response); err != nil || status != http.StatusOK || response["active"] != true ||
		response["client_id"] != "worker" || response["scope"] != "svc.use" || response["jti"] != publicID(s.token) || gatewaytest.Leak(body) != "" {
		t.Errorf("introspection of a good token = %d %s", status, body)
	}
	for name, field := range map[string]string{
		"a client without the right": basic(s.worker.ID, s.worker.Secret), "nobody": "X: y", "the token itself": bearer(s.token),
		"a wrong secret": basic(reader.ID, "x"), "an empty secret": basic(reader.ID, ""),
	} {
		for _, token := range []string{s.token, dead, "garbage"} {
			got := s.post("/oauth2/introspect", url.Values{"token": {token}}.Encode(), formType, field)
			if got.StatusCode != http.StatusUnauthorized && got.StatusCode != http.StatusForbidden || strings.Contains(got.Body, "active") {
				t.Errorf("introspection by %s = %d %s, want 401 or 403", name, got.StatusCode, got.Body)
			}
		}
	}
	s.settle(t, "introspection")
}

// TestSecurityRevocation revokes what one may and what one may not.
func TestSecurityRevocation(t *testing.T) {
	other := gatewaytest.NewClient("other", "svc.use")
	s := newSite(t, "", other)
	for name, token := range map[string]string{
		"garbage": "garbage", "the id alone": publicID(s.token), "cut": s.token[:69], "changed": s.token[:60] + "0000000000", "a secret": other.Secret,
	} {
		if status, body := s.Post("/oauth2/revoke", s.worker, "token", token); status != http.StatusOK {
			t.Errorf("revocation of %s = %d %s, want 200 (RFC 7009 §2.2)", name, status, body)
		}
		s.untouched(t, "revocation of "+name)
	}
	foreign := s.post("/oauth2/revoke", "token="+s.token, formType, basic(other.ID, other.Secret))
	if foreign.StatusCode != http.StatusBadRequest && foreign.StatusCode != http.StatusForbidden { // RFC 7009 §2.1: refused, informed of the error
		t.Errorf("revocation of another client's token = %d %s, want 400 or 403", foreign.StatusCode, foreign.Body)
	}
	s.untouched(t, "revocation of another client's token")
	for _, field := range []string{"X: y", basic(s.worker.ID, "x"), bearer(s.token)} {
		got := s.post("/oauth2/revoke", "token="+s.token, formType, field)
		wantOAuth(t, "revocation by nobody", got, http.StatusUnauthorized, "invalid_client")
		s.untouched(t, "revocation by nobody")
	}
	doomed := s.grant(s.worker)
	for range 2 { // the second time it is garbage
		got := s.post("/oauth2/revoke", "token="+doomed+"&token_type_hint=nonsense", formType, basic(s.worker.ID, s.worker.Secret))
		wantOAuth(t, "revocation", got, http.StatusOK, "")
		s.wantJudged(t, "a revoked token", "beside.test", "/svc/x", invalid, bearer(doomed))
	}
}

// TestSecurityRegistration starts gateways with clients that must not be: the
// configuration is refused, with exit code 2, and no secret in the reason.
func TestSecurityRegistration(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	for _, id := range []string{"a*", "a:b", "{a}", `a\r\nb`, "a b", "", "ä", "a/b", "a%", strings.Repeat("x", 64<<10)} {
		text := fmt.Sprintf("clients:\n  - id: \"%s\"\n    secrets: [{id: s1, sha256: %s}]\n", id, digest)
		if code, out := checkConfig(t, text); code != 2 || !strings.Contains(out, "client id") && id != "" {
			t.Errorf("a client called %.20q: exit %d, %.200s", id, code, out)
		}
	}
	secret := gatewaytest.NewClient("x", "").Secret
	for why, text := range map[string]string{
		"a secret in place of its digest": "clients:\n  - id: a\n    secrets: [{id: s1, sha256: " + secret + "}]\n",
		"a secret under another key":      "clients:\n  - id: a\n    secret: " + secret + "\n",
		"the digest of nothing":           "clients:\n  - id: a\n    secrets: [{id: s1, sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855}]\n",
		"a route over our own paths":      "routes:\n  - {name: a, path: /oauth2/token, upstreams: [http://x]}\n",
		"a public route with scopes":      "routes:\n  - {name: a, path: /a, upstreams: [http://x], public: true, scopes: [a]}\n",
		"a misspelled key":                "routes:\n  - {name: a, path: /a, upstreams: [http://x], scope: [a]}\n",
		"a path that is not canonical":    "routes:\n  - {name: a, path: /a/../b, upstreams: [http://x]}\n",
		"a path with an encoded letter":   "routes:\n  - {name: a, path: /%61, upstreams: [http://x]}\n",
	} {
		if code, out := checkConfig(t, text); code != 2 || gatewaytest.Leak(out) != "" {
			t.Errorf("%s: exit %d, %s", why, code, out)
		}
	}
}

// checkConfig runs snowgate config -check on a file.
func checkConfig(t *testing.T, text string) (code int, out string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snowgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), gatewaytest.Binary(t), "config", "-check")
	check.Env = []string{"SNOWGATE_CONFIG=" + path}
	output, _ := check.CombinedOutput()
	return check.ProcessState.ExitCode(), string(output)
}
