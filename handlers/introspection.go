package handlers

import (
	"errors"

	"snowgate/tokens"
)

// introspection is the answer for an active token (RFC 7662 §2.2).
type introspection struct {
	Active    bool     `json:"active"`
	Scope     string   `json:"scope,omitempty"`
	ClientID  string   `json:"client_id"`
	TokenType string   `json:"token_type"`
	ExpiresAt int64    `json:"exp"`
	IssuedAt  int64    `json:"iat"`
	NotBefore int64    `json:"nbf"`
	Subject   string   `json:"sub"`
	Audience  []string `json:"aud,omitempty"`
	Issuer    string   `json:"iss"`
	TokenID   string   `json:"jti"`
}

// inactive is the answer for every other token: exactly {"active":false}.
type inactive struct {
	Active bool `json:"active"`
}

// describe tells what a token stands for. The subject of a client's own token
// is the client (RFC 9068 §2.2). exp is rounded down, so that nobody trusts the
// token longer than the gateway does.
func (h *OAuth) describe(token *tokens.Token) introspection {
	return introspection{
		Active:    true,
		Scope:     token.Scope.String(),
		ClientID:  token.Client,
		TokenType: "Bearer",
		ExpiresAt: token.ExpiresAt.Unix(),
		IssuedAt:  token.IssuedAt.Unix(),
		NotBefore: token.IssuedAt.Unix(),
		Subject:   token.Client,
		Audience:  token.Audience,
		Issuer:    h.Issuer,
		TokenID:   token.ID.String(),
	}
}

func isInvalid(err error) bool { return errors.Is(err, tokens.ErrInvalid) }
