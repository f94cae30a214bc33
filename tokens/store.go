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
	// A record that cannot be decoded is an [ErrUnavailable].
	Load(ctx context.Context, id idgen.ID) (Record, error)

	// Delete removes the record of id, now and for good. Removing what is not
	// there is no error.
	Delete(ctx context.Context, id idgen.ID) error
}
