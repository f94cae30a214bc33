package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/middleware"
	"snowgate/tokens"
)

// judge accepts the token "good" and counts the calls.
type judge struct{ asked []string }

func (j *judge) ValidateFrom(ctx context.Context, text string, _ netip.Addr) (tokens.Token, error) {
	j.asked = append(j.asked, text)
	switch text {
	case "good":
		return tokens.Token{ID: 42, Client: "worker", Scope: "a b", Audience: []string{"https://here"}}, nil
	case "down":
		return tokens.Token{}, tokens.ErrUnavailable
	case "cancelled":
		return tokens.Token{}, context.Canceled
	default:
		return tokens.Token{}, tokens.ErrForged
	}
}

func TestAuthenticate(t *testing.T) {
	here := tokens.Requirement{Scope: "a", Audience: "https://here"}
	const bearer, metadata = `Bearer realm="snowgate"`, `, resource_metadata="https://m"`
	malformed := bearer + `, error="invalid_request"` + metadata
	invalid := bearer + `, error="invalid_token"` + metadata
	tests := []struct {
		lines     []string
		required  tokens.Requirement
		status    int
		challenge string
		asked     bool
		why       string
	}{
		{[]string{"Bearer good"}, here, 200, "", true, ""},
		{[]string{"bEARER good"}, here, 200, "", true, "schemes know no case"},
		{[]string{"Bearer   good"}, here, 200, "", true, "several spaces (RFC 6750 §2.1)"},
		{nil, here, 401, bearer + metadata, false, "no credentials"},
		{[]string{"Basic dXNlcjpwYXNz"}, here, 401, bearer + metadata, false, "another scheme"},
		{[]string{`Digest username="x", realm="y"`}, here, 401, bearer + metadata, false, "another scheme"},
		{[]string{"good"}, here, 401, bearer + metadata, false, "a token for a scheme"},
		{[]string{"BearerX good"}, here, 401, bearer + metadata, false, "another scheme"},
		{[]string{"Basic x, Bearer good"}, here, 401, bearer + metadata, false, "a list that begins with another scheme"},
		{[]string{"Bearer good", "Bearer good"}, here, 400, malformed, false, "two lines"},
		{[]string{"Bearer good", "Basic x"}, here, 400, malformed, false, "two lines of two schemes"},
		{[]string{"", "Bearer good"}, here, 400, malformed, false, "two lines, one empty"},
		{[]string{""}, here, 400, malformed, false, "empty"},
		{[]string{"Bearer"}, here, 400, malformed, false, "no token"},
		{[]string{"Bearer "}, here, 400, malformed, false, "an empty token"},
		{[]string{"Bearer  "}, here, 400, malformed, false, "two spaces and nothing"},
		{[]string{" Bearer good"}, here, 400, malformed, false, "a space in front"},
		{[]string{"Bearer good "}, here, 400, malformed, false, "a space behind"},
		{[]string{"Bearer\tgood"}, here, 400, malformed, false, "a tab"},
		{[]string{"Bearer \tgood"}, here, 400, malformed, false, "a space and a tab"},
		{[]string{"Bearer good good"}, here, 400, malformed, false, "trailing words"},
		{[]string{"Bearer good, Bearer good"}, here, 400, malformed, false, "a list"},
		{[]string{"Bearer good,bad"}, here, 400, malformed, false, "a list without spaces"},
		{[]string{`Bearer "good"`}, here, 400, malformed, false, "quotes"},
		{[]string{`"Bearer" good`}, here, 400, malformed, false, "a quoted scheme"},
		{[]string{"Bearer: good"}, here, 400, malformed, false, "a colon"},
		{[]string{"Bearer=good"}, here, 400, malformed, false, "an equals sign"},
		{[]string{"Bearer good\x00"}, here, 400, malformed, false, "NUL"},
		{[]string{"Bearer göod"}, here, 400, malformed, false, "not ASCII"},
		{[]string{"Bearer a=b"}, here, 400, malformed, false, "padding in the middle"},
		{[]string{"Bearer ="}, here, 400, malformed, false, "only padding"},
		{[]string{"Bearer a-._~+/b=="}, here, 401, invalid, true, "a b64token, not ours"},
		{[]string{"Bearer Good"}, here, 401, invalid, true, "tokens know case"},
		{[]string{"Bearer " + strings.Repeat("x", 30_000)}, here, 401, invalid, true, "length is for the validator"},
		{[]string{"Bearer good"}, tokens.Requirement{Audience: "https://there"}, 401, invalid, true, "another audience"},
		{[]string{"Bearer good"}, tokens.Requirement{Scope: "a c"}, 403, bearer + `, error="insufficient_scope", scope="a c"` + metadata, true, "a scope is missing"},
		{[]string{"Bearer down"}, here, 503, "", true, "no verdict is no refusal"},
		{[]string{"Bearer cancelled"}, here, 499, "", true, "the caller went away"},
	}
	for _, test := range tests {
		j := new(judge)
		x := new(exchange.Exchange)
		reached := false
		handler := middleware.Authenticate(j, func(*http.Request) problem.Challenge { return problem.Challenge{ResourceMetadata: "https://m"} },
			func(*http.Request) (tokens.Requirement, bool) { return test.required, true },
		)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
		r := httptest.NewRequest("GET", "/?access_token=good", nil)
		r.Header.Set("Cookie", "access_token=good; Authorization=Bearer good")
		r.Header.Set("X-Authorization", "Bearer good")
		r.Header.Set("Proxy-Authorization", "Bearer good")
		if test.lines != nil {
			r.Header["Authorization"] = test.lines
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(exchange.NewContext(r.Context(), x)))
		if w.Code != test.status || w.Header().Get("WWW-Authenticate") != test.challenge {
			t.Errorf("%.60q = %d, %q, want %d, %q (%s)",
				test.lines, w.Code, w.Header().Get("WWW-Authenticate"), test.status, test.challenge, test.why)
		}
		if reached != (test.status == 200) || x.Token.IsZero() == reached {
			t.Errorf("%.60q: reached %t with token %v (%s)", test.lines, reached, x.Token, test.why)
		}
		if (len(j.asked) > 0) != test.asked {
			t.Errorf("%.60q: the validator was asked %.60q, want asked: %t (%s)", test.lines, j.asked, test.asked, test.why)
		}
		if retry := w.Header().Get("Retry-After"); (retry != "") != (test.status == 503) {
			t.Errorf("%.60q: Retry-After = %q (%s)", test.lines, retry, test.why)
		}
	}
}

func TestAuthenticateWhereNoTokenIsNeeded(t *testing.T) {
	j := new(judge)
	x := new(exchange.Exchange)
	handler := middleware.Authenticate(j, func(*http.Request) problem.Challenge { return problem.Challenge{} },
		func(*http.Request) (tokens.Requirement, bool) { return tokens.Requirement{}, false },
	)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header["Authorization"] = []string{"Bearer good", "Bearer good"}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r.WithContext(exchange.NewContext(r.Context(), x)))
	if w.Code != 200 || !x.Token.IsZero() || x.Client != "" || len(j.asked) > 0 {
		t.Errorf("response %d, token %v, validator asked %q", w.Code, x.Token, j.asked)
	}
}
