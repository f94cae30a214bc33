package handlers_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/internal/scope"
	"snowgate/limit"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

// rates applies rates without Redis.
type rates struct {
	clock    *tokenstest.Clock
	arrivals map[string]time.Duration
}

func (l *rates) Allow(_ context.Context, client string, rate limit.Rate) limit.Decision {
	arrival, decision := rate.Take(l.arrivals[client], l.clock.Now().Sub(start))
	l.arrivals[client] = arrival
	return decision
}

// limited is the OAuth endpoints with limits. Its clients are "worker" without a rate and "slow"
// with 2/m.
type limited struct {
	*http.ServeMux
	clock        *tokenstest.Clock
	worker, slow string // their secrets
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	clock := tokenstest.NewClock(start)
	s := &limited{ServeMux: http.NewServeMux(), clock: clock}
	worker, workerDigest := clients.NewSecret()
	slow, slowDigest := clients.NewSecret()
	s.worker, s.slow = worker.Reveal(), slow.Reveal()
	registry := clients.NewRegistry(time.Hour)
	err := registry.ReplaceFile([]clients.Client{
		{ID: "worker", Secrets: []clients.Secret{{ID: "s1", SHA256: workerDigest}}, Scopes: scope.Of("a"), Introspect: clients.IntrospectAny},
		{ID: "slow", Secrets: []clients.Secret{{ID: "s1", SHA256: slowDigest}}, Scopes: scope.Of("a"), Rate: limit.Rate{Count: 2, Per: time.Minute}},
	})
	if err != nil {
		t.Fatal(err)
	}
	service := tokens.NewService(tokens.Config{
		Store: tokenstest.NewStore(clock.Now), Keys: tokens.FixedKeyring(tokens.Key{1}), IDs: new(counter),
		MintTime: func(idgen.ID) time.Time { return start }, Now: clock.Now,
	})
	h := &handlers.OAuth{
		Clients: registry, Tokens: service, Issuer: "https://gw.example", Now: clock.Now,
		Failures: limit.NewFailures(limit.FailuresConfig{
			PerClient: limit.DefaultFailuresPerClient, PerAddress: limit.DefaultFailuresPerAddress, Now: clock.Now,
		}),
		Rates: &rates{clock, make(map[string]time.Duration)},
	}
	s.Handle(handlers.TokenPath, problem.OAuthHandlerFunc(h.Token))
	s.Handle(handlers.IntrospectPath, problem.OAuthHandlerFunc(h.Introspect))
	s.Handle(handlers.RevokePath, problem.OAuthHandlerFunc(h.Revoke))
	return s
}

// ask requests a token from an address. The Authorization header has the given value.
func (s *limited) ask(path, remote, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("grant_type=client_credentials&token=x"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	x := &exchange.Exchange{Remote: netip.MustParseAddr(remote)}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r.WithContext(exchange.NewContext(r.Context(), x)))
	return w
}

func basicAuth(id, secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(url.QueryEscape(id)+":"+url.QueryEscape(secret)))
}

// TestNobodyIsLockedOut: a correct secret always passes, even while somebody fails a thousand times
// a second in the name of the client and from its address.
func TestNobodyIsLockedOut(t *testing.T) {
	s := newLimited(t)
	const address = "192.0.2.1"
	statuses := make(map[int]int)
	for i := range 5000 {
		statuses[s.ask(handlers.TokenPath, address, basicAuth("worker", "wrong")).Code]++
		if i%10 == 0 {
			if w := s.ask(handlers.TokenPath, address, basicAuth("worker", s.worker)); w.Code != http.StatusOK {
				t.Fatalf("the client itself got %d %s after %d failures of others", w.Code, w.Body, i+1)
			}
		}
		s.clock.Advance(time.Millisecond)
	}
	if statuses[http.StatusUnauthorized] != 10 || statuses[http.StatusTooManyRequests] != 4990 {
		t.Errorf("the failures got %v, want 401 for 10 and 429 for the rest", statuses)
	}
}

// TestLimitedFailuresLookAlike: an unknown client and a wrong secret get the same bytes, from the
// first failure to the last.
func TestLimitedFailuresLookAlike(t *testing.T) {
	history := func(id string) string {
		s := newLimited(t)
		var all strings.Builder
		for i := range 30 {
			w := s.ask(handlers.TokenPath, "192.0.2.1", basicAuth(id, "wrong"))
			fmt.Fprintln(&all, w.Code, w.Header(), w.Body)
			s.clock.Advance(time.Duration(i) * 100 * time.Millisecond)
		}
		return all.String()
	}
	known, unknown := history("worker"), history("nobody")
	if known != unknown {
		t.Errorf("a wrong secret:\n%s\nan unknown client:\n%s", known, unknown)
	}
	for _, status := range []string{"401 map", "429 map"} {
		if !strings.Contains(known, status) {
			t.Errorf("no response begins with %s:\n%s", status, known)
		}
	}
}

func TestFailuresAtEveryEndpoint(t *testing.T) {
	for _, path := range []string{handlers.TokenPath, handlers.IntrospectPath, handlers.RevokePath} {
		s := newLimited(t)
		for range 10 {
			if w := s.ask(path, "192.0.2.1", basicAuth("worker", "wrong")); w.Code != http.StatusUnauthorized {
				t.Fatalf("%s: %d", path, w.Code)
			}
		}
		w := s.ask(path, "192.0.2.2", basicAuth("worker", "wrong"))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "6" || w.Header().Get("Www-Authenticate") != "" ||
			object(t, w)["error"] != "temporarily_unavailable" {
			t.Errorf("%s: the eleventh failure got %d %v %s", path, w.Code, w.Header(), w.Body)
		}
		if w := s.ask(path, "192.0.2.2", basicAuth("other", "wrong")); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: another client got %d", path, w.Code)
		}
	}
}

// TestFailuresWithoutID: credentials without a client id count for the address.
func TestFailuresWithoutID(t *testing.T) {
	for _, authorization := range []string{"", "Basic !", "Bearer x", "Basic " + base64.StdEncoding.EncodeToString([]byte("nocolon"))} {
		s := newLimited(t)
		for i := range 60 {
			if w := s.ask(handlers.TokenPath, "192.0.2.1", authorization); w.Code != http.StatusUnauthorized {
				t.Fatalf("%q: failure %d got %d", authorization, i+1, w.Code)
			}
		}
		if w := s.ask(handlers.TokenPath, "192.0.2.1", authorization); w.Code != http.StatusTooManyRequests {
			t.Errorf("%q: failure 61 got %d", authorization, w.Code)
		}
		if w := s.ask(handlers.TokenPath, "192.0.2.2", authorization); w.Code != http.StatusUnauthorized {
			t.Errorf("%q: another address got %d", authorization, w.Code)
		}
	}
}

// TestClientRate follows a client with 2/m through its burst, a refusal, and the wait that the
// refusal asks for.
func TestClientRate(t *testing.T) {
	s := newLimited(t)
	ask := func() *httptest.ResponseRecorder {
		return s.ask(handlers.TokenPath, "192.0.2.1", basicAuth("slow", s.slow))
	}
	for _, state := range []string{`"client";r=1;t=30`, `"client";r=0;t=60`} {
		w := ask()
		if w.Code != http.StatusOK || w.Header().Get("RateLimit") != state || w.Header().Get("RateLimit-Policy") != `"client";q=2;w=60` {
			t.Fatalf("%d %v, want RateLimit: %s", w.Code, w.Header(), state)
		}
	}
	w := ask()
	if w.Code != http.StatusTooManyRequests || object(t, w)["error"] != "temporarily_unavailable" {
		t.Fatalf("the third request got %d %s", w.Code, w.Body)
	}
	if w.Header().Get("RateLimit") != `"client";r=0;t=30` || w.Header().Get("Retry-After") != "30" || w.Header().Get("RateLimit-Policy") != `"client";q=2;w=60` {
		t.Errorf("the refusal says %v", w.Header())
	}
	wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(time.Duration(wait) * time.Second)
	if w := ask(); w.Code != http.StatusOK {
		t.Errorf("after the wait: %d %s", w.Code, w.Body)
	}
}

// TestRateIsForTokens: responses to clients without a rate have no RateLimit fields, and other
// endpoints do not count.
func TestRateIsForTokens(t *testing.T) {
	s := newLimited(t)
	w := s.ask(handlers.TokenPath, "192.0.2.1", basicAuth("worker", s.worker))
	if w.Code != http.StatusOK || w.Header().Get("RateLimit") != "" || w.Header().Get("RateLimit-Policy") != "" {
		t.Errorf("a client without a rate: %d %v", w.Code, w.Header())
	}
	for range 10 {
		if w := s.ask(handlers.RevokePath, "192.0.2.1", basicAuth("slow", s.slow)); w.Code != http.StatusOK || w.Header().Get("RateLimit") != "" {
			t.Fatalf("revocation: %d %v", w.Code, w.Header())
		}
	}
	if w := s.ask(handlers.TokenPath, "192.0.2.1", basicAuth("slow", s.slow)); w.Header().Get("RateLimit") != `"client";r=1;t=30` {
		t.Errorf("after revocations RateLimit is %s, want it untouched", w.Header().Get("RateLimit"))
	}
	// A wrong secret does not use up the rate of the client.
	for range 5 {
		s.ask(handlers.TokenPath, "192.0.2.1", basicAuth("slow", "wrong"))
	}
	if w := s.ask(handlers.TokenPath, "192.0.2.1", basicAuth("slow", s.slow)); w.Header().Get("RateLimit") != `"client";r=0;t=60` {
		t.Errorf("after failures of others RateLimit is %s", w.Header().Get("RateLimit"))
	}
}
