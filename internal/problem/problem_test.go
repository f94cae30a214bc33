package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"snowgate/clients"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// respond lets write respond to a request that carries an exchange.
func respond(write func(http.ResponseWriter, *http.Request, error), err error) (*httptest.ResponseRecorder, *exchange.Exchange) {
	x := &exchange.Exchange{RequestID: "0123"}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	w := httptest.NewRecorder()
	write(w, r.WithContext(exchange.NewContext(r.Context(), x)), err)
	return w, x
}

func TestWrite(t *testing.T) {
	challenge := problem.Challenge{ResourceMetadata: "https://gw.example/.well-known/oauth-protected-resource"}
	metadata := `, resource_metadata="https://gw.example/.well-known/oauth-protected-resource"`
	private := errors.New("dial 10.1.2.3: secret detail")
	tests := []struct {
		name   string
		err    error
		status int
		header [2]string // name and value
	}{
		{"described", problem.New(http.StatusNotFound, "Nothing here.", private), 404, [2]string{}},
		{"described and wrapped", fmt.Errorf("x: %w", problem.New(http.StatusTeapot, "", private)), 418, [2]string{}},
		{"method", problem.MethodNotAllowed("GET, HEAD"), 405, [2]string{"Allow", "GET, HEAD"}},
		{"undescribed", private, 500, [2]string{}},
		{"store", fmt.Errorf("%w: %w", tokens.ErrUnavailable, private), 503, [2]string{"Retry-After", "1"}},
		{"too large", fmt.Errorf("x: %w", &http.MaxBytesError{Limit: 1}), 413, [2]string{}},
		{"caller gone", context.Canceled, 499, [2]string{}},
		{"no credentials", challenge.Missing(), 401, [2]string{"Www-Authenticate", `Bearer realm="snowgate"` + metadata}},
		{"malformed", challenge.Malformed("x"), 400, [2]string{"Www-Authenticate", `Bearer realm="snowgate", error="invalid_request"` + metadata}},
		{"invalid", challenge.Refused(tokens.ErrExpired), 401, [2]string{"Www-Authenticate", `Bearer realm="snowgate", error="invalid_token"` + metadata}},
		{"audience", challenge.Refused(tokens.ErrAudience), 401, [2]string{"Www-Authenticate", `Bearer realm="snowgate", error="invalid_token"` + metadata}},
		{"scope", challenge.Refused(&tokens.InsufficientScopeError{Required: scope.Of("a", "b")}), 403,
			[2]string{"Www-Authenticate", `Bearer realm="snowgate", error="insufficient_scope", scope="a b"` + metadata}},
		{"no credentials, scope", problem.Challenge{Scope: "a"}.Missing(), 401, [2]string{"Www-Authenticate", `Bearer realm="snowgate", scope="a"`}},
		{"invalid, scope", problem.Challenge{Scope: "a b"}.Refused(tokens.ErrExpired), 401,
			[2]string{"Www-Authenticate", `Bearer realm="snowgate", error="invalid_token", scope="a b"`}},
		// Not a verdict on the token, so not one word about the token.
		{"store while judging", challenge.Refused(tokens.ErrUnavailable), 503, [2]string{"Www-Authenticate", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, x := respond(problem.Write, tt.err)
			if w.Code != tt.status {
				t.Errorf("status = %d, want %d", w.Code, tt.status)
			}
			if name, want := tt.header[0], tt.header[1]; name != "" && w.Header().Get(name) != want {
				t.Errorf("%s = %q, want %q", name, w.Header().Get(name), want)
			}
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if got["status"] != float64(tt.status) || got["type"] != "about:blank" || got["request_id"] != "0123" || got["title"] == "" {
				t.Errorf("body = %v", got)
			}
			if strings.Contains(w.Body.String(), "secret detail") || x.Cause == nil {
				t.Errorf("body = %s, cause = %v: the cause is for the log only", w.Body, x.Cause)
			}
		})
	}
}

// Every way for a token to be invalid gets the same response to the byte.
func TestInvalidTokensLookAlike(t *testing.T) {
	var first string
	for _, err := range []error{tokens.ErrMalformed, tokens.ErrForged, tokens.ErrUnknown, tokens.ErrExpired, tokens.ErrAudience} {
		w, _ := respond(problem.Write, problem.Challenge{}.Refused(fmt.Errorf("x: %w", err)))
		got := fmt.Sprint(w.Code, w.Header(), w.Body)
		if first == "" {
			first = got
		}
		if got != first {
			t.Errorf("%v: %s\nwant %s", err, got, first)
		}
	}
}

func TestHeadHasNoBody(t *testing.T) {
	for _, write := range []func(http.ResponseWriter, *http.Request, error){problem.Write, problem.OAuth} {
		w := httptest.NewRecorder()
		write(w, httptest.NewRequest(http.MethodHead, "/", nil), problem.New(404, "x", nil))
		if w.Body.Len() > 0 {
			t.Errorf("HEAD gets a body: %s", w.Body)
		}
	}
}

func TestOAuth(t *testing.T) {
	private := errors.New("secret detail")
	tests := []struct {
		err    error
		status int
		code   string
		header [2]string
	}{
		{problem.InvalidRequest("x"), 400, "invalid_request", [2]string{}},
		{problem.UnsupportedGrantType(), 400, "unsupported_grant_type", [2]string{}},
		{problem.IntrospectionForbidden(), 403, "unauthorized_client", [2]string{}},
		{fmt.Errorf("%w: %w", clients.ErrUnauthenticated, private), 401, "invalid_client", [2]string{"Www-Authenticate", `Basic realm="snowgate", charset="UTF-8"`}},
		{fmt.Errorf("%w: %w", clients.ErrInvalidScope, private), 400, "invalid_scope", [2]string{}},
		{fmt.Errorf("%w: %w", clients.ErrInvalidTarget, private), 400, "invalid_target", [2]string{}},
		{fmt.Errorf("%w: %w", tokens.ErrForeignToken, private), 400, "invalid_grant", [2]string{}},
		{fmt.Errorf("%w: %w", tokens.ErrUnavailable, private), 503, "temporarily_unavailable", [2]string{"Retry-After", "1"}},
		{&http.MaxBytesError{}, 413, "invalid_request", [2]string{}},
		{private, 500, "server_error", [2]string{}},
	}
	for _, tt := range tests {
		w, x := respond(problem.OAuth, tt.err)
		var got map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if w.Code != tt.status || got["error"] != tt.code || x.Cause == nil {
			t.Errorf("%v: %d %v, want %d %s", tt.err, w.Code, got, tt.status, tt.code)
		}
		if name, want := tt.header[0], tt.header[1]; name != "" && w.Header().Get(name) != want {
			t.Errorf("%v: %s = %q, want %q", tt.err, name, w.Header().Get(name), want)
		}
		// RFC 6749 §5.2: error_description is %x20-21 / %x23-5B / %x5D-7E.
		for _, c := range got["error_description"] {
			if c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
				t.Errorf("%v: error_description %q has %q", tt.err, got["error_description"], c)
			}
		}
		if strings.Contains(w.Body.String(), "secret detail") {
			t.Errorf("%v: the caller is told the cause: %s", tt.err, w.Body)
		}
	}
}
