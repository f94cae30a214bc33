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

// tokenDocument is what the API shows of a token: everything except its secret, which the gateway
// does not keep.
type tokenDocument struct {
	ID        string    `json:"token_id"`
	Client    string    `json:"client_id"`
	Scope     string    `json:"scope"`
	Audience  []string  `json:"aud"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Active    bool      `json:"active"`
	// Refused says why a token that still has a record is not valid: revoked, client or expired.
	Refused string `json:"refused,omitempty"`
}

// readToken shows one token.
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

// noToken returns the response if there is no token to show.
func noToken(err error) error {
	if err == nil || errors.Is(err, tokens.ErrInvalid) {
		return problem.New(http.StatusNotFound, "There is no live token with this id.", err)
	}
	return unavailable(err)
}

// revokeToken revokes one token. An unknown token is not an error, so the request can be repeated.
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

// tokenID reads the id of a token. Its error does not quote the text, which may be a whole token.
func tokenID(text string) (idgen.ID, error) {
	id, err := idgen.Parse(text)
	if err != nil {
		return 0, problem.New(http.StatusBadRequest, "This is not a token id: a token id has 11 characters of 0-9A-Za-z, the part of the token after sgt_.", nil)
	}
	return id, nil
}
