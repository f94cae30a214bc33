package handlers

import (
	"context"
	"errors"
	"slices"

	"snowgate/clients"
	"snowgate/tokens"
)

// introspection is the response for an active token (RFC 7662 §2.2).
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

// inactive is the response for every other token: exactly {"active":false}.
type inactive struct {
	Active bool `json:"active"`
}

// inspect validates the token text on behalf of asker. A token for other audiences than those of
// asker counts as invalid.
func (h *OAuth) inspect(ctx context.Context, asker *clients.Client, text string) (tokens.Token, error) {
	token, err := h.Tokens.Validate(ctx, text)
	if err == nil && !asker.MayInspect(token.Audience) {
		return tokens.Token{}, tokens.ErrAudience
	}
	return token, err
}

// visible returns the audiences of a token that asker may see. If its policy goes by audience,
// these are its own audiences only (RFC 7662 §2.2 leaves the choice to the server).
func visible(audience []string, asker *clients.Client) []string {
	if asker.Introspect == clients.IntrospectAny {
		return audience
	}
	var own []string
	for _, resource := range audience {
		if slices.Contains(asker.Audiences, resource) {
			own = append(own, resource)
		}
	}
	return own
}

// describe returns the response to asker about an active token. The subject of a client's own token
// is the client (RFC 9068 §2.2). exp is rounded down, so that nobody trusts the token longer than
// the gateway does.
func (h *OAuth) describe(token *tokens.Token, asker *clients.Client) introspection {
	return introspection{
		Active:    true,
		Scope:     token.Scope.String(),
		ClientID:  token.Client,
		TokenType: "Bearer",
		ExpiresAt: token.ExpiresAt.Unix(),
		IssuedAt:  token.IssuedAt.Unix(),
		NotBefore: token.IssuedAt.Unix(),
		Subject:   token.Client,
		Audience:  visible(token.Audience, asker),
		Issuer:    h.Issuer,
		TokenID:   token.ID.String(),
	}
}

func isInvalid(err error) bool { return errors.Is(err, tokens.ErrInvalid) }
