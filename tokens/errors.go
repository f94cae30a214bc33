package tokens

import (
	"errors"
	"fmt"
	"time"

	"snowgate/internal/scope"
)

// ErrInvalid matches, with errors.Is, every refusal of a bearer token: unknown,
// expired, revoked, forged or malformed. Callers answer all of them alike; the
// reason is for the log and the metrics.
var ErrInvalid = errors.New("tokens: the access token is not valid")

// The reasons behind [ErrInvalid]. Each matches ErrInvalid with errors.Is.
var (
	ErrMalformed = &invalidError{"malformed"} // not of the token format
	ErrForged    = &invalidError{"forged"}    // its tag is not ours
	ErrUnknown   = &invalidError{"unknown"}   // no record: never issued, revoked, or expired and gone
	ErrExpired   = &invalidError{"expired"}   // its instant has come
	ErrRevoked   = &invalidError{"revoked"}   // a [Rule] matches it
	ErrClient    = &invalidError{"client"}    // its client is gone or disabled
	ErrFuture    = &invalidError{"future"}    // minted later than the clock allows
	ErrWorker    = &invalidError{"worker"}    // its id is none that the layout can have
	ErrTooOld    = &invalidError{"too_old"}   // minted longer ago than any token may live
	ErrAudience  = &invalidError{"audience"}  // meant for another resource (RFC 6750 §3.1 has no other code)
)

// invalidError is one reason for which a token is refused.
type invalidError struct{ reason string }

func (e *invalidError) Error() string { return "tokens: the access token is not valid: " + e.reason }

// Is makes every reason match [ErrInvalid].
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }

// Reason returns the word by which metrics and logs count err: one of
// malformed, forged, unknown, expired, revoked, client, future, worker, too_old,
// audience for a refused token, "scope" for a valid one that may not go
// here, "limited" for a refused one where too many came before it, "unavailable"
// where no decision could be made, "ok" for nil, and "error" for anything else.
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

// ErrUnavailable matches every failure to decide: the store cannot be reached,
// is too slow, refuses to write or answers nonsense, the tag keys are not
// loaded, or no id can be made. It says nothing about the token.
var ErrUnavailable = errors.New("tokens: cannot decide at the moment")

// ErrMismatch is returned for a token with a genuine tag under whose id the store has the record of
// another token. It matches [ErrUnavailable]: the store is damaged, or is that of another
// deployment, and says nothing about the token.
var ErrMismatch = fmt.Errorf("%w: the store has the record of another token under the id of this one: "+
	"check that this is the Redis of this deployment, and that its data was not mixed with another's", ErrUnavailable)

// ErrDuplicateID is returned by [Store.Save] when the id already belongs to a
// record with another digest. It can only come about when two generators work
// under one worker number.
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

// LimitedError refuses a token that was looked up and is not good, where too many
// such came from the same address (RFC 6585 §4, 429 Too Many Requests). It does not
// match [ErrInvalid], because it is not answered alike.
type LimitedError struct {
	// RetryAfter is how long the address should wait; 0 if that is not known.
	RetryAfter time.Duration
}

func (e *LimitedError) Error() string {
	return "tokens: too many access tokens that are not valid from this address"
}
