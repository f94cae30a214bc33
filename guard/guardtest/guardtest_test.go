package guardtest_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"snowgate/guard"
	"snowgate/guard/guardtest"
)

func newGuard(t *testing.T, i *guardtest.Issuer, c guard.Credentials) *guard.Guard {
	t.Helper()
	g, err := guard.New(i.URL(), c, guard.Options{Audience: "https://orders.example"})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestIssuer: a service sees each kind of verdict. A guard of its own for each question, because one
// that knows an answer may not ask again.
func TestIssuer(t *testing.T) {
	i := guardtest.New(t)
	orders := []string{"https://orders.example"}
	good := i.Issue(guardtest.Grant{Client: "worker", Scopes: []string{"orders.read"}, Audience: orders})
	revoked := i.Issue(guardtest.Grant{Scopes: []string{"orders.read"}, Audience: orders})
	i.Revoke(revoked)
	for name, test := range map[string]struct {
		token string
		away  bool
		want  error
	}{
		"good":          {good, false, nil},
		"unknown":       {"x" + good[1:], false, guard.ErrInvalid},
		"revoked":       {revoked, false, guard.ErrInvalid},
		"expired":       {i.Issue(guardtest.Grant{Audience: orders, Expiry: time.Now().Add(-time.Second)}), false, guard.ErrInvalid},
		"for others":    {i.Issue(guardtest.Grant{Audience: []string{"https://shop.example"}}), false, guard.ErrInvalid},
		"no scope":      {i.Issue(guardtest.Grant{Audience: orders}), false, guard.ErrScope},
		"a gateway off": {good, true, guard.ErrUnavailable},
	} {
		i.SetAway(test.away)
		identity, err := newGuard(t, i, i.Credentials()).Verify(t.Context(), test.token, "orders.read")
		if !errors.Is(err, test.want) || err == nil && identity.Client != "worker" {
			t.Errorf("%s: %v, %v, want %v", name, identity, err, test.want)
		}
	}
	i.SetAway(false)
	wrong := i.Credentials()
	wrong.Secret = "wrong"
	if _, err := newGuard(t, i, wrong).Verify(t.Context(), good, "orders.read"); !errors.Is(err, guard.ErrUnavailable) {
		t.Errorf("with a wrong secret: %v, want ErrUnavailable", err)
	}
	if i.Asked() != 7 {
		t.Errorf("asked %d times, want 7: what has not the form of a token is refused without a question", i.Asked())
	}
}

// TestService is how a service tests a handler of its own.
func TestService(t *testing.T) {
	i := guardtest.New(t)
	handler := newGuard(t, i, i.Credentials()).Require("orders.read")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(guard.FromContext(r.Context()).Client))
	}))
	request := httptest.NewRequest(http.MethodGet, "/orders/1", http.NoBody)
	request.Header.Set("Authorization", "Bearer "+i.Issue(guardtest.Grant{Scopes: []string{"orders.read"}, Audience: []string{"https://orders.example"}}))
	got := httptest.NewRecorder()
	handler.ServeHTTP(got, request)
	if got.Code != http.StatusOK || got.Body.String() != "test-client" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}
