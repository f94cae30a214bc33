package handlers_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

// start is the time at which every test begins.
var start = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// server is the OAuth endpoints with a store in memory.
type server struct {
	*http.ServeMux
	clock  *tokenstest.Clock
	store  *tokenstest.Store
	secret string // of the client "worker"
	other  string // of the client "other", which may introspect
	orders string // of the client "orders-api", which may introspect what is meant for it
}

// counter makes ids 1, 2, 3 …, all issued at start.
type counter struct{ n atomic.Int64 }

func (c *counter) Next(context.Context) (idgen.ID, error) { return idgen.ID(c.n.Add(1)), nil }

func newServer(t testing.TB) *server {
	t.Helper()
	clock := tokenstest.NewClock(start)
	s := &server{ServeMux: http.NewServeMux(), clock: clock, store: tokenstest.NewStore(clock.Now)}
	worker, workerDigest := clients.NewSecret()
	other, otherDigest := clients.NewSecret()
	orders, ordersDigest := clients.NewSecret()
	s.secret, s.other, s.orders = worker.Reveal(), other.Reveal(), orders.Reveal()
	registry := clients.NewRegistry(time.Hour)
	err := registry.ReplaceFile([]clients.Client{
		{ID: "worker", Secrets: []clients.Secret{{ID: "s1", SHA256: workerDigest}},
			Scopes:    scope.Of("orders.read", "orders.write", clients.AdminScope),
			Audiences: []string{"https://orders.example", "https://billing.example"}, TokenTTL: 90 * time.Second},
		{ID: "other", Secrets: []clients.Secret{{ID: "s1", SHA256: otherDigest}}, Introspect: clients.IntrospectAny},
		{ID: "orders-api", Secrets: []clients.Secret{{ID: "s1", SHA256: ordersDigest}},
			Audiences: []string{"https://orders.example"}, Introspect: clients.IntrospectAudience},
	})
	if err != nil {
		t.Fatal(err)
	}
	service := tokens.NewService(tokens.Config{
		Store: s.store, Keys: tokens.FixedKeyring(tokens.Key{1}), IDs: new(counter),
		MintTime: func(idgen.ID) time.Time { return start }, Now: clock.Now,
	})
	h := &handlers.OAuth{Clients: registry, Tokens: service, Issuer: "https://gw.example", Now: clock.Now}
	s.Handle(handlers.TokenPath, problem.OAuthHandlerFunc(h.Token))
	s.Handle(handlers.IntrospectPath, problem.OAuthHandlerFunc(h.Introspect))
	s.Handle(handlers.RevokePath, problem.OAuthHandlerFunc(h.Revoke))
	return s
}

// post sends body, with the credentials user, "id:secret", unless user is empty.
func (s *server) post(path, user, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if user != "" {
		r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user)))
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			r.Header.Del(header[i])
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func (s *server) token(t *testing.T) string {
	t.Helper()
	w := s.post(handlers.TokenPath, "worker:"+s.secret, "grant_type=client_credentials")
	var response struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil || response.AccessToken == "" {
		t.Fatalf("no token: %d %s", w.Code, w.Body)
	}
	return response.AccessToken
}

// object decodes a JSON response.
func object(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%d %q: %v", w.Code, w.Body, err)
	}
	return got
}

func TestTokenResponse(t *testing.T) {
	s := newServer(t)
	w := s.post(handlers.TokenPath, "worker:"+s.secret, "grant_type=client_credentials")
	got := object(t, w)
	bearer, err := tokens.ParseBearer(got["access_token"].(string))
	if err != nil {
		t.Fatal(err)
	}
	delete(got, "access_token")
	// RFC 6749 §5.1, and nothing else. The admin scope is granted only on request.
	want := map[string]any{"token_type": "Bearer", "expires_in": 90.0, "scope": "orders.read orders.write"}
	if d := cmp.Diff(want, got); w.Code != http.StatusOK || d != "" {
		t.Errorf("%d, response differs (-want +got):\n%s", w.Code, d)
	}
	for name, want := range map[string]string{"Content-Type": "application/json", "Cache-Control": "no-store", "Pragma": "no-cache"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	record, err := s.store.Load(t.Context(), bearer.ID())
	if err != nil || !record.Digest.Equal(bearer.Digest()) || record.Token.Client != "worker" {
		t.Errorf("stored: %+v, %v", record, err)
	}
}

func TestTokenRequests(t *testing.T) {
	s := newServer(t)
	good, grant := "worker:"+s.secret, "grant_type=client_credentials"
	posted := "&client_id=worker&client_secret=" + s.secret
	tests := []struct {
		name       string
		user, body string
		header     []string
		status     int
		code       string // the error parameter, or the scope if there is no error
	}{
		{"basic", good, grant, nil, 200, "orders.read orders.write"},
		{"body", "", grant + posted, nil, 200, "orders.read orders.write"},
		{"form-encoded basic", "worker:" + url.QueryEscape(s.secret), grant, nil, 200, "orders.read orders.write"},
		{"charset", good, grant, []string{"Content-Type", "", "Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}, 200, "orders.read orders.write"},
		{"one scope", good, grant + "&scope=orders.read", nil, 200, "orders.read"},
		{"asked order", good, grant + "&scope=orders.write+orders.read", nil, 200, "orders.write orders.read"},
		{"empty scope is absent", good, grant + "&scope=", nil, 200, "orders.read orders.write"},
		{"admin when asked", good, grant + "&scope=snowgate:admin", nil, 200, "snowgate:admin"},
		{"unknown parameter", good, grant + "&unknown=x", nil, 200, "orders.read orders.write"},
		{"same client_id beside basic", good, grant + "&client_id=worker", nil, 200, "orders.read orders.write"},
		{"resource", good, grant + "&resource=https://orders.example", nil, 200, "orders.read orders.write"},
		{"resources", good, grant + "&resource=https://orders.example&resource=https://billing.example", nil, 200, "orders.read orders.write"},

		{"no grant type", good, "", nil, 400, "invalid_request"},
		{"empty grant type is absent", good, "grant_type=", nil, 400, "invalid_request"},
		{"password", good, "grant_type=password&username=u&password=p", nil, 400, "unsupported_grant_type"},
		{"refresh", good, "grant_type=refresh_token&refresh_token=x", nil, 400, "unsupported_grant_type"},
		{"case of the grant type", good, "grant_type=Client_Credentials", nil, 400, "unsupported_grant_type"},
		{"unknown scope", good, grant + "&scope=nope", nil, 400, "invalid_scope"},
		{"one scope too many", good, grant + "&scope=orders.read+nope", nil, 400, "invalid_scope"},
		{"malformed scope", good, grant + "&scope=a++b", nil, 400, "invalid_scope"},
		{"unknown resource", good, grant + "&resource=https://nope.example", nil, 400, "invalid_target"},
		{"resource with fragment", good, grant + "&resource=https://orders.example%23x", nil, 400, "invalid_target"},

		{"repeated parameter", good, grant + "&" + grant, nil, 400, "invalid_request"},
		{"repeated scope", good, grant + "&scope=orders.read&scope=orders.write", nil, 400, "invalid_request"},
		{"both ways to authenticate", good, grant + posted, nil, 400, "invalid_request"},
		{"another client_id beside basic", good, grant + "&client_id=other", nil, 400, "invalid_request"},
		{"two Authorization lines", good, grant, []string{"Authorization", "Basic eDp5"}, 400, "invalid_request"},
		{"JSON", good, `{"grant_type":"client_credentials"}`, []string{"Content-Type", "", "Content-Type", "application/json"}, 400, "invalid_request"},
		{"no content type", good, grant, []string{"Content-Type", ""}, 400, "invalid_request"},
		{"two content types", good, grant, []string{"Content-Type", "text/plain"}, 400, "invalid_request"},
		{"another charset", good, grant, []string{"Content-Type", "", "Content-Type", "application/x-www-form-urlencoded; charset=latin1"}, 400, "invalid_request"},
		{"bad escape", good, grant + "&scope=%zz", nil, 400, "invalid_request"},
		{"semicolon", good, grant + ";scope=x", nil, 400, "invalid_request"},
		{"NUL", good, grant + "&scope=%00", nil, 400, "invalid_request"},
		{"NUL in a name", good, grant + "&a%00=b", nil, 400, "invalid_request"},
		{"bad UTF-8", good, grant + "&scope=%ff", nil, 400, "invalid_request"},

		{"no credentials", "", grant, nil, 401, "invalid_client"},
		{"wrong secret", "worker:sgs_wrong", grant, nil, 401, "invalid_client"},
		{"empty secret", "worker:", grant, nil, 401, "invalid_client"},
		{"unknown client", "nobody:" + s.secret, grant, nil, 401, "invalid_client"},
		{"somebody else's secret", "other:" + s.secret, grant, nil, 401, "invalid_client"},
		{"id only", "", grant + "&client_id=worker", nil, 401, "invalid_client"},
		{"another scheme", "", grant, []string{"Authorization", "Bearer " + s.secret}, 401, "invalid_client"},
		{"no base64", "", grant, []string{"Authorization", "Basic ***"}, 401, "invalid_client"},
		{"no colon", "worker", grant, nil, 401, "invalid_client"},
		{"wrong secret and wrong grant", "worker:x", "grant_type=password", nil, 401, "invalid_client"}, // without credentials, a caller learns nothing
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := s.post(handlers.TokenPath, tt.user, tt.body, tt.header...)
			got := object(t, w)
			code, _ := got["error"].(string)
			if tt.status == http.StatusOK {
				code, _ = got["scope"].(string)
			}
			if w.Code != tt.status || code != tt.code {
				t.Errorf("= %d %v, want %d %q", w.Code, got, tt.status, tt.code)
			}
			if w.Header().Get("Cache-Control") != "no-store" {
				t.Error("the response may be stored")
			}
			if challenge := w.Header().Get("WWW-Authenticate"); strings.HasPrefix(challenge, "Basic ") != (tt.status == 401) {
				t.Errorf("WWW-Authenticate = %q with %d", challenge, w.Code)
			}
		})
	}
}

func TestParametersInTheQuery(t *testing.T) {
	s := newServer(t)
	for _, query := range []string{"?grant_type=client_credentials", "?x=1", "?"} {
		w := s.post(handlers.TokenPath+query, "worker:"+s.secret, "grant_type=client_credentials")
		if got := object(t, w); w.Code != 400 || got["error"] != "invalid_request" {
			t.Errorf("POST %s = %d %v, want invalid_request", query, w.Code, got)
		}
	}
}

func TestOtherMethods(t *testing.T) {
	s := newServer(t)
	for _, path := range []string{handlers.TokenPath, handlers.IntrospectPath, handlers.RevokePath} {
		for _, method := range []string{"GET", "HEAD", "PUT", "OPTIONS", "DELETE"} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != 405 || w.Header().Get("Allow") != "POST" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s = %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

func TestUnknownClientLooksLikeAWrongSecret(t *testing.T) {
	s := newServer(t)
	a := s.post(handlers.TokenPath, "worker:wrong", "grant_type=client_credentials")
	b := s.post(handlers.TokenPath, "nobody:wrong", "grant_type=client_credentials")
	if a.Code != b.Code || a.Body.String() != b.Body.String() || cmp.Diff(a.Header(), b.Header()) != "" {
		t.Errorf("wrong secret: %d %s %v; unknown client: %d %s %v", a.Code, a.Body, a.Header(), b.Code, b.Body, b.Header())
	}
}

func TestIntrospection(t *testing.T) {
	s := newServer(t)
	token := s.token(t)
	asker := "other:" + s.other
	active := map[string]any{
		"active": true, "scope": "orders.read orders.write", "client_id": "worker", "sub": "worker", "token_type": "Bearer",
		"exp": float64(start.Unix() + 90), "iat": float64(start.Unix()), "nbf": float64(start.Unix()),
		"aud": []any{"https://orders.example", "https://billing.example"}, "iss": "https://gw.example", "jti": "00000000001",
	}
	if d := cmp.Diff(active, object(t, s.post(handlers.IntrospectPath, asker, "token="+token))); d != "" {
		t.Errorf("active token (-want +got):\n%s", d)
	}
	for name, text := range map[string]string{
		"garbage": "x", "damaged": token[:len(token)-1] + "!", "the id alone": "00000000001", "unknown": strings.Replace(token, "sgt_0", "sgt_1", 1),
	} {
		w := s.post(handlers.IntrospectPath, asker, "token="+url.QueryEscape(text))
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != `{"active":false}` {
			t.Errorf("%s: %d %s, want exactly inactive", name, w.Code, got)
		}
	}
	s.clock.Advance(90 * time.Second)
	if got := strings.TrimSpace(s.post(handlers.IntrospectPath, asker, "token="+token).Body.String()); got != `{"active":false}` {
		t.Errorf("expired: %s", got)
	}
}

// TestIntrospectionByAudience: the policy of the caller decides which tokens of others it sees. By
// audience, it sees the tokens for its own audiences, without their other audiences.
func TestIntrospectionByAudience(t *testing.T) {
	s := newServer(t)
	grant := func(resources string) string {
		w := s.post(handlers.TokenPath, "worker:"+s.secret, "grant_type=client_credentials"+resources)
		token, _ := object(t, w)["access_token"].(string)
		return token
	}
	const orders, billing = "&resource=https://orders.example", "&resource=https://billing.example"
	tests := []struct {
		asker, resources string
		want             any // the audiences in the response; nil: inactive
	}{
		{"orders-api:" + s.orders, orders, []any{"https://orders.example"}},
		{"orders-api:" + s.orders, orders + billing, []any{"https://orders.example"}},
		{"orders-api:" + s.orders, billing, nil},
		{"other:" + s.other, orders + billing, []any{"https://orders.example", "https://billing.example"}},
		{"other:" + s.other, billing, []any{"https://billing.example"}},
	}
	for _, tt := range tests {
		w := s.post(handlers.IntrospectPath, tt.asker, "token="+grant(tt.resources))
		got := object(t, w)
		if tt.want == nil {
			if text := strings.TrimSpace(w.Body.String()); w.Code != 200 || text != `{"active":false}` {
				t.Errorf("%.10s asks about a token for %q: %d %s, want exactly inactive", tt.asker, tt.resources, w.Code, text)
			}
		} else if diff := cmp.Diff(tt.want, got["aud"]); diff != "" || got["active"] != true || got["client_id"] != "worker" {
			t.Errorf("%.10s asks about a token for %q: %v (-want +got):\n%s", tt.asker, tt.resources, got, diff)
		}
	}
}

func TestIntrospectionNeedsTheRight(t *testing.T) {
	s := newServer(t)
	token := s.token(t)
	tests := []struct {
		name, user, body string
		status           int
		code             string
	}{
		{"nobody", "", "token=" + token, 401, "invalid_client"},
		{"wrong secret", "other:x", "token=" + token, 401, "invalid_client"},
		{"without the right", "worker:" + s.secret, "token=" + token, 403, "unauthorized_client"},
		{"without a token", "other:" + s.other, "", 400, "invalid_request"},
	}
	for _, tt := range tests {
		w := s.post(handlers.IntrospectPath, tt.user, tt.body)
		if got := object(t, w); w.Code != tt.status || got["error"] != tt.code {
			t.Errorf("%s: %d %v, want %d %s", tt.name, w.Code, got, tt.status, tt.code)
		}
	}
}

func TestRevocation(t *testing.T) {
	s := newServer(t)
	token := s.token(t)
	alive := func() bool {
		return object(t, s.post(handlers.IntrospectPath, "other:"+s.other, "token="+token))["active"] == true
	}
	// RFC 7009 §2.1: a client cannot revoke the token of another client.
	if w := s.post(handlers.RevokePath, "other:"+s.other, "token="+token); w.Code != 400 || object(t, w)["error"] != "invalid_grant" || !alive() {
		t.Errorf("foreign token: %d %s, alive %v", w.Code, w.Body, alive())
	}
	if w := s.post(handlers.RevokePath, "", "token="+token); w.Code != 401 || !alive() {
		t.Errorf("without credentials: %d, alive %v", w.Code, alive())
	}
	if w := s.post(handlers.RevokePath, "worker:"+s.secret, ""); w.Code != 400 {
		t.Errorf("without a token: %d", w.Code)
	}
	// A wrong hint does not hide the token (§2.1).
	if w := s.post(handlers.RevokePath, "worker:"+s.secret, "token_type_hint=refresh_token&token="+token); w.Code != 200 || w.Body.Len() != 0 || alive() {
		t.Errorf("own token: %d %q, alive %v", w.Code, w.Body, alive())
	}
	for _, text := range []string{token, "x", "sgt_", "00000000001"} { // §2.2: invalid tokens are accepted
		if w := s.post(handlers.RevokePath, "worker:"+s.secret, "token="+text); w.Code != 200 {
			t.Errorf("revoke %.8q: %d", text, w.Code)
		}
	}
}

func TestStoreTroubleIsNeverAVerdict(t *testing.T) {
	s := newServer(t)
	token := s.token(t)
	s.store.Fail(func(string) error { return errors.New("down") })
	for name, w := range map[string]*httptest.ResponseRecorder{
		"token":      s.post(handlers.TokenPath, "worker:"+s.secret, "grant_type=client_credentials"),
		"introspect": s.post(handlers.IntrospectPath, "other:"+s.other, "token="+token),
		"revoke":     s.post(handlers.RevokePath, "worker:"+s.secret, "token="+token),
	} {
		if got := object(t, w); w.Code != 503 || w.Header().Get("Retry-After") == "" || got["error"] != "temporarily_unavailable" ||
			w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("%s with the store down: %d %v %v", name, w.Code, got, w.Header())
		}
	}
}

func TestErrorsDoNotRepeatSecrets(t *testing.T) {
	s := newServer(t)
	for _, body := range []string{"grant_type=" + s.secret, "grant_type=client_credentials&scope=" + s.secret, "resource=" + s.secret + "&grant_type=client_credentials", s.secret + "=%zz"} {
		if w := s.post(handlers.TokenPath, "worker:"+s.secret, body); strings.Contains(w.Body.String(), "sgs_") {
			t.Errorf("the response repeats the secret: %s", w.Body)
		}
	}
}

func FuzzForm(f *testing.F) {
	for _, seed := range []string{"grant_type=client_credentials", "a=b&a=c", "%zz", "a;b", "scope=%00", "resource=a&resource=b", "=", "&&", "\xff"} {
		f.Add(seed, "Basic d29ya2VyOng=")
	}
	clock := tokenstest.NewClock(start)
	registry := clients.NewRegistry(time.Hour)
	h := &handlers.OAuth{Clients: registry, Now: clock.Now}
	f.Fuzz(func(t *testing.T, body, authorization string) {
		r := httptest.NewRequest(http.MethodPost, handlers.TokenPath, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header["Authorization"] = []string{authorization}
		w := httptest.NewRecorder()
		problem.OAuthHandlerFunc(h.Token).ServeHTTP(w, r)
		// No client is registered, so authentication always fails.
		if w.Code != 400 && w.Code != 401 {
			t.Errorf("%q with %q = %d", body, authorization, w.Code)
		}
	})
}

// FuzzTokenRequest lets a known client ask for any scope and resource. The response is a permitted
// token, or an error of RFC 6749 §5.2.
func FuzzTokenRequest(f *testing.F) {
	for _, seed := range [][2]string{
		{"", ""}, {"orders.read", "https://orders.example"}, {"orders.read orders.write", "https://billing.example"}, {"a  b", "x"},
		{" ", "https://orders.example#"}, {"orders.read\x00", "\xff"}, {clients.AdminScope, "https://orders.example/"}, {"\"\\", "//"},
	} {
		f.Add(seed[0], seed[1])
	}
	s := newServer(f)
	allowed := scope.Of("orders.read", "orders.write", clients.AdminScope)
	f.Fuzz(func(t *testing.T, asked, resource string) {
		form := url.Values{"grant_type": {"client_credentials"}, "scope": {asked}, "resource": {resource}}
		w := s.post(handlers.TokenPath, "worker:"+s.secret, form.Encode())
		got := object(t, w)
		granted, _ := got["scope"].(string)
		code, _ := got["error"].(string)
		switch {
		case w.Code == http.StatusOK && allowed.Contains(scope.List(granted)) && code == "" &&
			(scope.List(granted).Has(clients.AdminScope) == scope.List(asked).Has(clients.AdminScope)):
		case w.Code == http.StatusBadRequest && slices.Contains([]string{"invalid_request", "invalid_scope", "invalid_target"}, code):
		default:
			t.Errorf("scope %q, resource %q: %d %v", asked, resource, w.Code, got)
		}
	})
}
