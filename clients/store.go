package clients

import (
	"context"
	"errors"
	"time"
)

// Sentinels of a [Store], for errors.Is.
var (
	// ErrExists: a client of the store or of the configuration has the id.
	ErrExists = errors.New("clients: the client exists")
	// ErrNotFound: the client or the secret does not exist.
	ErrNotFound = errors.New("clients: no such client or secret")
	// ErrConflict: the client has changed since the expected revision.
	ErrConflict = errors.New("clients: the client was changed meanwhile")
	// ErrReadOnly: the client is in the configuration file or the environment.
	ErrReadOnly = errors.New("clients: the client is configured and cannot be changed here")
	// ErrTooManySecrets: the client already has [MaxSecrets].
	ErrTooManySecrets = errors.New("clients: the client has as many secrets as it may")
	// ErrUnavailable: the store does not respond, or has not been read yet, so it is not known
	// whether the client exists.
	ErrUnavailable = errors.New("clients: the registry is not available")
)

// Store keeps clients that can be changed while gateways run. Every change is atomic, and raises
// the revision that all gateways watch. When a method returns without an error, its change is in
// force on this gateway.
//
// Errors match one of the sentinels. If the store cannot be reached, the error matches
// [ErrUnavailable]; the change may have been made all the same, if only the response was lost. A
// method that retries a change by itself recognises its own earlier attempt and succeeds.
//
// expected is the revision of the client that the caller has seen; 0: any. Implementations are safe
// for concurrent use.
type Store interface {
	// Create adds a client with one secret, or none if secret is the zero value. If several calls
	// for one id run at the same time, exactly one succeeds. ErrExists: the id is taken.
	Create(ctx context.Context, d Document, secret Credential) (Change, error)
	// Update replaces the document of the client d.ID and keeps its secrets. Errors: ErrNotFound,
	// ErrConflict, ErrReadOnly.
	Update(ctx context.Context, d Document, expected uint64) (Change, error)
	// Delete removes the client with all its secrets, and its live tokens become invalid. Errors:
	// ErrNotFound, ErrConflict, ErrReadOnly.
	Delete(ctx context.Context, id string, expected uint64) (Change, error)
	// AddSecret adds a secret. Unless others is zero, all other secrets expire at others at the
	// latest, in the same change. Secrets that have expired are removed. Errors: ErrNotFound,
	// ErrConflict, ErrReadOnly, ErrTooManySecrets, and ErrExists if the client has a secret with
	// this id.
	AddSecret(ctx context.Context, id string, secret Credential, others time.Time, expected uint64) (Change, error)
	// RemoveSecret removes a secret. Tokens that were issued with it stay valid. Errors:
	// ErrNotFound, ErrConflict, ErrReadOnly.
	RemoveSecret(ctx context.Context, id, secretID string, expected uint64) (Change, error)
	// Load reads the current state of a client from the store. Error: ErrNotFound.
	Load(ctx context.Context, id string) (*Client, error)
	// LastUsed returns when each secret of the given clients was last used, according to what
	// gateways have recorded, which they do once a minute. The map has no entry for a secret that
	// was never used.
	LastUsed(ctx context.Context, of ...*Client) (map[SecretRef]time.Time, error)
	// Touch records when secrets were used. A time earlier than the recorded one has no effect, and
	// deleted clients are skipped.
	Touch(ctx context.Context, uses []Use) error
}

// Change is the result of a change of one client. Callers must not modify the values it points to.
type Change struct {
	// Before is the client before the change; nil if it was created.
	Before *Client
	// After is the client after the change; nil if it was deleted.
	After *Client
	// Secret is the secret that was added or removed; zero: none.
	Secret Secret
	// Note is a sentence about the consequences of the change; it may be empty.
	Note string
}

// SecretRef identifies one secret.
type SecretRef struct {
	Client, Secret string
}

// Use is the last use of a secret.
type Use struct {
	SecretRef
	// At is the last use, in whole seconds.
	At time.Time
	// Registry is true for a client of the store.
	Registry bool
}
