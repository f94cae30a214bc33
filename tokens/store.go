package tokens

import (
	"context"
	"time"

	"snowgate/idgen"
)

// Record is what a [Store] keeps of a token: all of it but the secret, of which
// it has the digest only.
type Record struct {
	Digest Digest
	Token  Token // IssuedAt is not stored: it is in the ID
}

// Store keeps the records of live tokens. Implementations are safe for
// concurrent use, honour the deadline and cancellation of ctx, and pass
// tokenstest.TestStore.
//
// Every failure to reach, read or write the underlying store is returned as an
// error that matches [ErrUnavailable]; it is never mistaken for "unknown".
type Store interface {
	// Save writes r so that it lives for ttl (> 0, rounded up to a
	// millisecond) and then vanishes by itself. An id that is taken is never
	// overwritten: Save returns nil if the record there has the same digest
	// (a retried write meets its own record), else [ErrDuplicateID].
	Save(ctx context.Context, r Record, ttl time.Duration) error

	// Load returns the record of id, or [ErrUnknown] if there is none.
	// A record that cannot be decoded is an [ErrUnavailable]. What it returns
	// belongs to the caller, the Audience included.
	Load(ctx context.Context, id idgen.ID) (Record, error)

	// Delete removes the record of id, now and for good. Removing what is not
	// there is no error.
	Delete(ctx context.Context, id idgen.ID) error
}

// RuleStore keeps the revocation rules that all gateways of a deployment share.
// Implementations are safe for concurrent use and honour the deadline and
// cancellation of ctx; whatever goes wrong with the underlying store matches
// [ErrUnavailable]. They pass tokenstest.TestRuleStore.
type RuleStore interface {
	// LoadRules returns the rules that have not ended, and the revision that they
	// are complete for. A rule that cannot be decoded is an [ErrUnavailable],
	// because what it revokes is not known; the others are returned with it.
	LoadRules(ctx context.Context) (RuleSet, error)

	// AddRule writes r, tells the other gateways, and returns it as it is stored,
	// with the revision after the write. The store sets Created and End by its own
	// clock and, for a RuleClient, the Generation: the new revision, which is
	// greater than every generation before it. A rule of the same ID is kept as it
	// is, except that a RuleClient is replaced, and the later End counts.
	// A rule that makes no sense is [ErrRule]; one that reaches beyond the store's
	// clock is [ErrRuleInFuture]. [Rule.Check] tells.
	AddRule(ctx context.Context, r Rule) (Rule, uint64, error)

	// RestoreRules gives a store back what it lost: rules that are missing are
	// added as they are, of two generations of a client the greater one stays, of
	// two Ends the later one; Revision and Longest are raised, never lowered. If
	// that changes anything, the revision becomes greater than both were, so that
	// every gateway reads again.
	RestoreRules(ctx context.Context, set RuleSet) error
}

// KeyRemover is a [KeyStore] that can forget keys.
type KeyRemover interface {
	// RemoveKeys removes the keys with the given starts, in Unix milliseconds.
	// Removing what is not there is no error.
	RemoveKeys(ctx context.Context, starts []int64) error
}
