package admin

import (
	"errors"
	"net/http"
	"time"

	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/tokens"
)

// tokenDocument is what an administrator may know of a token: all but its
// secret, which nobody has.
type tokenDocument struct {
	ID        string    `json:"token_id"`
	Client    string    `json:"client_id"`
	Scope     string    `json:"scope"`
	Audience  []string  `json:"aud"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Active    bool      `json:"active"`
	// Refused says why a token that still has a record is not good: revoked,
	// client or expired.
	Refused string `json:"refused,omitempty"`
}

// readToken tells about one token.
func (a *API) readToken(w http.ResponseWriter, r *http.Request) error {
	id, err := tokenID(r.PathValue("id"))
	if err != nil {
		return err
	}
	token, err := a.Tokens.Lookup(r.Context(), id)
	if token.Client == "" {
		return noToken(err)
	}
	audience := token.Audience
	if audience == nil {
		audience = []string{}
	}
	found := tokenDocument{
		ID: token.ID.String(), Client: token.Client, Scope: token.Scope.String(), Audience: audience,
		IssuedAt: token.IssuedAt.UTC(), ExpiresAt: token.ExpiresAt.UTC(), Active: err == nil,
	}
	if err != nil {
		found.Refused = tokens.Reason(err)
	}
	return handlers.WriteJSON(w, http.StatusOK, found)
}

// noToken is the response where there is no token to tell about.
func noToken(err error) error {
	if err == nil || errors.Is(err, tokens.ErrInvalid) {
		return problem.New(http.StatusNotFound, "There is no live token with this id.", err)
	}
	return unavailable(err)
}

// revokeToken ends one token. That there is none is no error, so that it can be
// repeated.
func (a *API) revokeToken(w http.ResponseWriter, r *http.Request, c *change) error {
	c.action = "token.revoke"
	id, err := tokenID(r.PathValue("id"))
	if err != nil {
		return err
	}
	c.target = id.String()
	if err := a.Tokens.RevokeID(r.Context(), id); err != nil {
		return unavailable(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// tokenID reads the id of a token. Its error does not repeat the text, which may
// be a whole token.
func tokenID(text string) (idgen.ID, error) {
	id, err := idgen.Parse(text)
	if err != nil {
		return 0, problem.New(http.StatusBadRequest, "That is no token id: 11 characters of 0-9A-Za-z, the part of the token behind sgt_.", nil)
	}
	return id, nil
}
