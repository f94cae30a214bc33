package tokens

import (
	"errors"
	"fmt"
	"time"

	"snowgate/internal/scope"
)

// ErrInvalid matches, with errors.Is, every refusal of a bearer token: unknown, expired, revoked,
// forged or malformed. Callers respond to all of them in the same way; the reason is for logs and
// metrics.
var ErrInvalid = errors.New("tokens: the access token is not valid")

// The reasons behind [ErrInvalid]. Each matches ErrInvalid with errors.Is.
var (
	ErrMalformed = &invalidError{"malformed"} // not of the token format
	ErrForged    = &invalidError{"forged"}    // its tag is wrong
	ErrUnknown   = &invalidError{"unknown"}   // no record: never issued, revoked, or expired and gone
	ErrExpired   = &invalidError{"expired"}   // its lifetime is over
	ErrRevoked   = &invalidError{"revoked"}   // a [Rule] matches it
	ErrClient    = &invalidError{"client"}    // its client is gone or disabled
	ErrFuture    = &invalidError{"future"}    // minted later than the clock allows
	ErrWorker    = &invalidError{"worker"}    // the layout does not permit its id
	ErrTooOld    = &invalidError{"too_old"}   // minted longer ago than any token may live
	ErrAudience  = &invalidError{"audience"}  // meant for another resource (RFC 6750 §3.1 has no other code)
)

// invalidError is the reason why a token is refused.
type invalidError struct{ reason string }

func (e *invalidError) Error() string { return "tokens: the access token is not valid: " + e.reason }

// Is makes every reason match [ErrInvalid].
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }

// Reason returns the word for err in metrics and logs. For a refused token it is one of malformed,
// forged, unknown, expired, revoked, client, future, worker, too_old, audience. It is "scope" for a
// valid token that lacks a required scope, "limited" for a refused token after too many others,
// "unavailable" if no decision was possible, "ok" for nil, and "error" for anything else.
func Reason(err error) string {
	if err == nil {
		return "ok"
	}
	if invalid, ok := errors.AsType[*invalidError](err); ok {
		return invalid.reason
	}
	if _, ok := errors.AsType[*InsufficientScopeError](err); ok {
		return "scope"
	}
	if _, ok := errors.AsType[*LimitedError](err); ok {
		return "limited"
	}
	if errors.Is(err, ErrUnavailable) {
		return "unavailable"
	}
	return "error"
}

// ErrUnavailable matches every failure to decide: the store is unreachable, too slow, refuses
// writes or sends an invalid reply, the tag keys are not loaded, or no id can be made. It does not
// mean that the token is invalid.
var ErrUnavailable = errors.New("tokens: cannot decide at the moment")

// ErrMismatch is returned for a token with a genuine tag under whose id the store has the record of
// another token. It matches [ErrUnavailable]: the store is damaged, or is that of another
// deployment, and says nothing about the token.
var ErrMismatch = fmt.Errorf("%w: the store has the record of another token under the id of this one: "+
	"check that this is the Redis of this deployment, and that its data was not mixed with another's", ErrUnavailable)

// ErrDuplicateID is returned by [Store.Save] if the id already has a record with another digest.
// The only cause is that two generators use the same worker number.
var ErrDuplicateID = errors.New("tokens: the id is taken by another token")

// ErrForeignToken is returned by [Service.Revoke] for a token that was issued
// to another client (RFC 7009 §2.1).
var ErrForeignToken = errors.New("tokens: the token was issued to another client")

// InsufficientScopeError refuses a valid token that lacks a required scope-token (RFC 6750 §3.1,
// insufficient_scope).
type InsufficientScopeError struct {
	// Required holds all scope-tokens that are required, not only the missing ones.
	Required scope.List
}

func (e *InsufficientScopeError) Error() string {
	return fmt.Sprintf("tokens: the access token lacks a scope of %q", e.Required)
}

// LimitedError refuses a token that was looked up and is not valid, after too many such tokens from
// the same address (RFC 6585 §4, 429 Too Many Requests). It does not match [ErrInvalid], because
// its response is a different one.
type LimitedError struct {
	// RetryAfter is how long the address should wait; 0 if that is not known.
	RetryAfter time.Duration
}

func (e *LimitedError) Error() string {
	return "tokens: too many access tokens that are not valid from this address"
}
