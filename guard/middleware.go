package guard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// contextKey is the key of the *Identity in a request's context.
type contextKey struct{}

// FromContext returns the identity that Require has put into a request's context; nil if the
// request did not pass Require.
func FromContext(ctx context.Context) *Identity {
	identity, _ := ctx.Value(contextKey{}).(*Identity)
	return identity
}

// Require returns middleware that lets a request pass if its token is good and has all scopes.
// Other requests get what the gateway answers: 401, 403, or 400 if the credentials cannot be
// read; and 503 with Retry-After if the gateway cannot be asked.
func (g *Guard) Require(scopes ...string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, given, readable := bearer(r.Header.Values("Authorization"))
			switch {
			case !given:
				g.challenge(w, http.StatusUnauthorized, "", "This place needs a bearer token.")
				return
			case !readable:
				g.challenge(w, http.StatusBadRequest, `, error="invalid_request"`, "The Authorization field cannot be read.")
				return
			}
			identity, err := g.Verify(r.Context(), token, scopes...)
			if err != nil {
				g.refuse(w, err, scopes)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, identity)))
		})
	}
}

// bearer reads the Authorization field: one line with the scheme Bearer and one word.
func bearer(lines []string) (token string, given, readable bool) {
	if len(lines) == 0 {
		return "", false, false
	}
	scheme, token, found := strings.Cut(lines[0], " ")
	token = strings.Trim(token, " ")
	if len(lines) > 1 || !found || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,\"") {
		return "", true, false
	}
	return token, true, true
}

// refuse answers an error of Verify.
func (g *Guard) refuse(w http.ResponseWriter, err error, scopes []string) {
	switch {
	case errors.Is(err, ErrInvalid):
		g.challenge(w, http.StatusUnauthorized, `, error="invalid_token"`, "The access token is not valid here.")
	case errors.Is(err, ErrScope):
		g.challenge(w, http.StatusForbidden, `, error="insufficient_scope", scope="`+strings.Join(scopes, " ")+`"`,
			"The access token lacks a scope that this place needs.")
	default:
		w.Header().Set("Retry-After", "1")
		write(w, http.StatusServiceUnavailable, "The access token cannot be checked now.")
	}
}

// challenge answers with the gateway's WWW-Authenticate.
func (g *Guard) challenge(w http.ResponseWriter, status int, parameters, detail string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="snowgate"`+parameters+`, resource_metadata="`+g.metadata+`"`)
	write(w, status, detail)
}

// write answers with a problem document (RFC 9457).
func write(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "title": http.StatusText(status), "detail": detail})
}
