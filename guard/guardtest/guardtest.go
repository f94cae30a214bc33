// Package guardtest is a stand-in for a snowgate gateway, for the tests of services that use package
// guard. It needs the standard library only.
package guardtest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/guard"
)

// Issuer issues tokens and answers the questions of guards about them, on a port of the loopback
// interface. Its methods may be called concurrently.
type Issuer struct {
	server      *httptest.Server
	credentials guard.Credentials

	mu     sync.Mutex
	issued map[string]Grant
	away   bool
	asked  int
}

// Grant is what a token stands for.
type Grant struct {
	// Client is who the token was issued to; "test-client" if empty.
	Client string
	// Scopes and Audience are those of the token.
	Scopes, Audience []string
	// Expiry is the end of the token, an hour from its issue if zero.
	Expiry time.Time
	// TokenID is the id of the token. Issue sets it.
	TokenID string
}

// New starts an Issuer that ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{credentials: guard.Credentials{ID: "test-service", Secret: rand.Text()}, issued: make(map[string]Grant)}
	i.server = httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(i.server.Close)
	return i
}

// URL is the issuer, as [guard.New] takes it.
func (i *Issuer) URL() string { return i.server.URL }

// Credentials are those of the service, as [guard.New] takes them. Others are refused.
func (i *Issuer) Credentials() guard.Credentials { return i.credentials }

// Issue returns a new token. It has the form of one of a gateway, but no gateway accepts it.
func (i *Issuer) Issue(g Grant) (token string) {
	if g.Client == "" {
		g.Client = "test-client"
	}
	if g.Expiry.IsZero() {
		g.Expiry = time.Now().Add(time.Hour)
	}
	text := rand.Text() + rand.Text() + rand.Text()
	g.TokenID = text[:11]
	token = "sgt_" + g.TokenID + "_" + text[11:65]
	i.mu.Lock()
	defer i.mu.Unlock()
	i.issued[token] = g
	return token
}

// Revoke ends a token. A guard that asked about it just before may accept it for another second.
func (i *Issuer) Revoke(token string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.issued, token)
}

// SetAway has the issuer answer every question with 503, or no more.
func (i *Issuer) SetAway(away bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.away = away
}

// Asked returns how many questions about tokens have come.
func (i *Issuer) Asked() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

// introspection is RFC 7662 §2.2.
type introspection struct {
	Active    bool     `json:"active"`
	Scope     string   `json:"scope,omitempty"`
	Client    string   `json:"client_id,omitempty"`
	TokenType string   `json:"token_type,omitempty"`
	Expiry    int64    `json:"exp,omitempty"`
	TokenID   string   `json:"jti,omitempty"`
	Audience  []string `json:"aud,omitempty"`
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	id, err1 := url.QueryUnescape(id)
	secret, err2 := url.QueryUnescape(secret)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	switch {
	case r.URL.Path != "/oauth2/introspect" || r.Method != http.MethodPost:
		refuse(w, http.StatusNotFound, "not_found")
	case i.away:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable")
	case err1 != nil || err2 != nil || id != i.credentials.ID || secret != i.credentials.Secret:
		refuse(w, http.StatusUnauthorized, "invalid_client")
	default:
		write(w, http.StatusOK, i.introspect(r.PostFormValue("token")))
	}
}

// introspect answers the question about a token. The caller holds i.mu.
func (i *Issuer) introspect(token string) introspection {
	g, known := i.issued[token]
	if !known || !time.Now().Before(g.Expiry) {
		return introspection{}
	}
	return introspection{
		Active: true, Scope: strings.Join(g.Scopes, " "), Client: g.Client, TokenType: "Bearer",
		Expiry: g.Expiry.Unix(), TokenID: g.TokenID, Audience: g.Audience,
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	write(w, status, map[string]string{"error": code, "error_description": fmt.Sprintf("guardtest answers with %d", status)})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
