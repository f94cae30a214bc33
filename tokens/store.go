package tokens

import (
	"context"
	"time"

	"snowgate/idgen"
)

// Record is what a [Store] keeps of a token: everything but the secret, of which it has only the
// digest.
type Record struct {
	Digest Digest
	Token  Token // IssuedAt is not stored: it is in the ID
}

// Store keeps the records of live tokens. Implementations are safe for
// concurrent use, honour the deadline and cancellation of ctx, and pass
// tokenstest.TestStore.
//
// Every failure of the underlying store is an error that matches [ErrUnavailable], never
// [ErrUnknown].
type Store interface {
	// Save writes r, which expires after ttl (> 0, rounded up to a millisecond). It never
	// overwrites an existing record. If the existing record has the same digest, as after a retry,
	// Save returns nil, else [ErrDuplicateID].
	Save(ctx context.Context, r Record, ttl time.Duration) error

	// Load returns the record of id, or [ErrUnknown] if there is none. The error for a record that
	// cannot be decoded matches [ErrUnavailable]. The caller may modify the result, including the
	// Audience.
	Load(ctx context.Context, id idgen.ID) (Record, error)

	// Delete removes the record of id. It is no error if there is none.
	Delete(ctx context.Context, id idgen.ID) error
}

// RuleStore keeps the revocation rules that all gateways of a deployment share. Implementations are
// safe for concurrent use, honour the deadline and cancellation of ctx, and pass
// tokenstest.TestRuleStore. Every failure of the underlying store matches [ErrUnavailable].
type RuleStore interface {
	// LoadRules returns the rules that have not ended, and the revision up to which they are
	// complete. If a rule cannot be decoded, the error matches [ErrUnavailable], because it is not
	// known what the rule revokes; the other rules are returned with the error.
	LoadRules(ctx context.Context) (RuleSet, error)

	// AddRule writes r, informs the other gateways, and returns the rule as it was stored and the
	// revision after the write. The store sets Created and End by its own clock. It sets the
	// Generation of a RuleClient to the new revision, which is greater than every generation before
	// it. A new RuleClient replaces one with the same ID; any other existing rule is kept, with the
	// later End. The error is [ErrRule] for an invalid rule, and [ErrRuleInFuture] for one that
	// reaches beyond the clock of the store, see [Rule.Check].
	AddRule(ctx context.Context, r Rule) (Rule, uint64, error)

	// RestoreRules writes back what the store has lost. It adds missing rules unchanged, keeps the
	// greater of two generations of a client and the later of two Ends, and never lowers Revision
	// and Longest. If anything changes, the revision becomes greater than both were, so that every
	// gateway reads the rules again.
	RestoreRules(ctx context.Context, set RuleSet) error
}

// KeyRemover is a [KeyStore] that can remove keys.
type KeyRemover interface {
	// RemoveKeys removes the keys with the given starts, in Unix milliseconds. It ignores starts
	// without a key.
	RemoveKeys(ctx context.Context, starts []int64) error
}
