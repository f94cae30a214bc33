package tokens

import (
	"slices"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
)

// Token is the content of a token that was issued or validated. It never holds the secret.
//
// A Token is immutable after it was returned. Callers must not modify its Audience.
type Token struct {
	// ID is the public part. It may be logged and listed, and a token can be revoked by it, but it
	// never authenticates.
	ID idgen.ID
	// Client is the identifier of the client the token was issued to.
	Client string
	// Scope is the granted scope.
	Scope scope.List
	// Audience holds the resources (RFC 8707) that the token is meant for. A token without an
	// audience is valid for routes that require none.
	Audience []string
	// IssuedAt is the mint time, read from the ID, with millisecond precision.
	IssuedAt time.Time
	// ExpiresAt is the first instant at which the token is no longer valid,
	// with millisecond precision.
	ExpiresAt time.Time
	// Generation is the generation of the client when the token was issued; 0: the first. A
	// [RuleClient] with a greater one revokes the token.
	Generation uint64
}

// IsZero reports whether t is the zero value. Every token has a client.
func (t *Token) IsZero() bool { return t.Client == "" }

// Requirement is what a route requires of a token. The zero value requires only a valid token.
type Requirement struct {
	// Scope must be a subset of the scope of the token.
	Scope scope.List
	// Audience, if not empty, must be in the audience of the token.
	Audience string
}

// Check returns nil if t meets req, else [ErrAudience] or an [*InsufficientScopeError]. Callers
// check each request after any cache, so that the result for one route is never used for another.
// It allocates only if it refuses.
func (req Requirement) Check(t *Token) error {
	if req.Audience != "" && !slices.Contains(t.Audience, req.Audience) {
		return ErrAudience
	}
	if !t.Scope.Contains(req.Scope) {
		return &InsufficientScopeError{Required: req.Scope}
	}
	return nil
}
