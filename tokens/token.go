package tokens

import (
	"slices"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
)

// Token is what a bearer token stands for once it has been issued or
// validated. It never holds the secret.
//
// A Token is immutable after it has been returned; its Audience must not be
// modified.
type Token struct {
	// ID is the public part: it may be logged, listed and revoked by, and it
	// never authenticates.
	ID idgen.ID
	// Client is the identifier of the client the token was issued to.
	Client string
	// Scope is what was granted.
	Scope scope.List
	// Audience holds the resources (RFC 8707) the token is meant for. A token
	// without any is good for routes that ask for no audience.
	Audience []string
	// IssuedAt is the mint time, read from the ID, with millisecond precision.
	IssuedAt time.Time
	// ExpiresAt is the first instant at which the token is no longer valid,
	// with millisecond precision.
	ExpiresAt time.Time
	// Generation is that of the client when the token was issued, 0 for the
	// first. The token is revoked when a [RuleClient] names a greater one.
	Generation uint64
}

// IsZero reports whether t is no token: every token has a client.
func (t *Token) IsZero() bool { return t.Client == "" }

// Requirement is what a protected place asks of a token. The zero value asks
// for nothing but a valid token.
type Requirement struct {
	// Scope must be contained in the token's scope.
	Scope scope.List
	// Audience, unless empty, must be among the token's.
	Audience string
}

// Check tells whether t is good for what req asks: nil, [ErrAudience] or
// an [*InsufficientScopeError]. It is asked for each request anew, after any
// cache, so that the verdict of one route is never that of another.
// It does not allocate unless it refuses.
func (req Requirement) Check(t *Token) error {
	if req.Audience != "" && !slices.Contains(t.Audience, req.Audience) {
		return ErrAudience
	}
	if !t.Scope.Contains(req.Scope) {
		return &InsufficientScopeError{Required: req.Scope}
	}
	return nil
}
