package problem

import (
	"errors"
	"net/http"

	"snowgate/internal/scope"
	"snowgate/tokens"
)

// Challenge makes the responses of RFC 6750 §3 about the bearer token of a request.
type Challenge struct {
	// ResourceMetadata is the URL of the protected resource metadata (RFC 9728 §5.1).
	ResourceMetadata string
	// Scope, unless empty, is what a token needs here. Clients that learn from the response what to ask
	// for are told with every 401 and 403 (RFC 6750 §3).
	Scope scope.List
}

// Missing refuses a request without credentials: 401 and no error code (RFC 6750 §3.1).
func (c Challenge) Missing() *Error {
	return c.answer(http.StatusUnauthorized, "", "This place needs a bearer token.", nil)
}

// Malformed refuses credentials that cannot be read: 400 invalid_request.
func (c Challenge) Malformed(detail string) *Error {
	return c.answer(http.StatusBadRequest, `, error="invalid_request"`, detail, nil)
}

// Refused refuses a token that was checked and not accepted. All invalid tokens get the same text.
// Refused returns errors that say nothing about the token, such as [tokens.ErrUnavailable],
// unchanged.
func (c Challenge) Refused(err error) error {
	var insufficient *tokens.InsufficientScopeError
	switch {
	case errors.Is(err, tokens.ErrInvalid):
		return c.answer(http.StatusUnauthorized, `, error="invalid_token"`, "The access token is not valid here.", err)
	case errors.As(err, &insufficient):
		c.Scope = insufficient.Required
		return c.answer(http.StatusForbidden, `, error="insufficient_scope"`,
			"The access token lacks a scope that this place needs.", err)
	default:
		return err
	}
}

func (c Challenge) answer(status int, parameters, detail string, cause error) *Error {
	value := `Bearer realm="snowgate"` + parameters
	if c.Scope != "" && status != http.StatusBadRequest {
		value += `, scope="` + c.Scope.String() + `"` // no quote or backslash is in it (RFC 6749 §3.3)
	}
	if c.ResourceMetadata != "" {
		value += `, resource_metadata="` + c.ResourceMetadata + `"`
	}
	return &Error{
		Status: status,
		Detail: detail,
		Header: http.Header{"Www-Authenticate": {value}},
		Err:    cause,
	}
}
