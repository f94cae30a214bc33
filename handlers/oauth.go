// Package handlers holds the HTTP endpoints of the gateway itself. Each one
// decodes its request, makes one call into the domain, and encodes the response;
// errors are returned and become responses in package problem.
package handlers

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"snowgate/clients"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/tokens"
)

// authenticator finds the client with an id and a secret.
type authenticator interface {
	// Authenticate returns clients.ErrUnauthenticated both for an unknown id and for a wrong
	// secret.
	Authenticate(id, secret string, now time.Time) (*clients.Client, error)
}

// tokenService issues, validates and revokes tokens.
type tokenService interface {
	Issue(ctx context.Context, grant tokens.Claims) (tokens.Bearer, tokens.Token, error)
	Validate(ctx context.Context, text string) (tokens.Token, error)
	Revoke(ctx context.Context, text, client string) error
}

// OAuth serves the token, introspection and revocation endpoints. It is safe for concurrent use.
// Its fields must not change once it serves.
type OAuth struct {
	Clients authenticator
	Tokens  tokenService
	// Issuer is the issuer identifier (RFC 8414 §2).
	Issuer string
	// Now is the clock for the expiry of client secrets.
	Now func() time.Time
	// Failures limits failed authentications; nil: no limit.
	Failures failureLimiter
	// Rates limits the token requests of clients that have a rate; nil: no limit.
	Rates rateLimiter
}

// Token is the token endpoint (RFC 6749 §3.2) with the client credentials grant (§4.4).
func (h *OAuth) Token(w http.ResponseWriter, r *http.Request) error {
	client, f, err := h.authenticate(r)
	if err != nil {
		return err
	}
	if err := h.spend(w, r, client); err != nil {
		return err
	}
	switch f.get("grant_type") {
	case "client_credentials":
	case "":
		return problem.InvalidRequest("The grant_type is missing.")
	default:
		return problem.UnsupportedGrantType()
	}
	grant, err := client.Grant(f.get("scope"), nonEmpty(f["resource"]))
	if err != nil {
		return err
	}
	bearer, token, err := h.Tokens.Issue(r.Context(), tokens.Claims{
		Client: client.ID, Generation: client.Generation,
		Scope: grant.Scope, Audience: grant.Audience, TTL: grant.TTL,
	})
	if err != nil {
		return err
	}
	exchange.From(r.Context()).TokenID = token.ID.String()
	return WriteJSON(w, http.StatusOK, tokenResponse{
		AccessToken: bearer.Reveal(),
		TokenType:   "Bearer",
		ExpiresIn:   int64(grant.TTL / time.Second),
		Scope:       token.Scope.String(),
	})
}

// tokenResponse is the response of RFC 6749 §5.1. An empty scope is omitted, because the grammar of
// §3.3 has no empty list.
type tokenResponse struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope,omitempty"`
}

// Introspect is the introspection endpoint (RFC 7662). The caller must be a client with the right
// to introspect. It sees only the tokens that its policy covers; all others are reported as
// inactive (§2.2).
func (h *OAuth) Introspect(w http.ResponseWriter, r *http.Request) error {
	client, f, err := h.authenticate(r)
	if err != nil {
		return err
	}
	if !client.CanIntrospect() {
		return problem.IntrospectionForbidden()
	}
	text := f.get("token")
	if text == "" {
		return problem.InvalidRequest("The token is missing.")
	}
	token, err := h.inspect(r.Context(), client, text)
	switch {
	case err == nil:
		exchange.From(r.Context()).TokenID = token.ID.String()
		return WriteJSON(w, http.StatusOK, h.describe(&token, client))
	case isInvalid(err):
		// §2.2: only the member active, whatever the reason.
		exchange.From(r.Context()).Cause = err
		return WriteJSON(w, http.StatusOK, inactive{})
	default:
		return err
	}
}

// Revoke is the revocation endpoint (RFC 7009).
func (h *OAuth) Revoke(w http.ResponseWriter, r *http.Request) error {
	client, f, err := h.authenticate(r)
	if err != nil {
		return err
	}
	text := f.get("token")
	if text == "" {
		return problem.InvalidRequest("The token is missing.")
	}
	// The gateway has one type of token, so it may ignore token_type_hint (§2.1).
	if err := h.Tokens.Revoke(r.Context(), text, client.ID); err != nil {
		return err
	}
	if bearer, err := tokens.ParseBearer(text); err == nil {
		exchange.From(r.Context()).TokenID = bearer.ID().String()
	}
	// §2.2: 200 for an invalid token, too. Clients ignore the body.
	w.WriteHeader(http.StatusOK)
	return nil
}

// nonEmpty drops parameters without a value, which count as omitted (RFC 6749 §3.2).
func nonEmpty(values []string) []string {
	var kept []string
	for _, value := range values {
		if value != "" {
			kept = append(kept, value)
		}
	}
	return kept
}

// WriteJSON responds with v as JSON. It ignores write errors: the caller has gone away.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
	return nil
}
