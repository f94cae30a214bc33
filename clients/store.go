package clients

import (
	"context"
	"errors"
	"time"
)

// Sentinels of a [Store], for errors.Is.
var (
	// ErrExists: the id is taken, by a client of the store or of the file.
	ErrExists = errors.New("clients: the client exists")
	// ErrNotFound: there is no such client, or no such secret of it.
	ErrNotFound = errors.New("clients: no such client or secret")
	// ErrConflict: the client was changed since the revision that the caller saw.
	ErrConflict = errors.New("clients: the client was changed meanwhile")
	// ErrReadOnly: the client is in the configuration file or the environment.
	ErrReadOnly = errors.New("clients: the client is configured and cannot be changed here")
	// ErrTooManySecrets: the client has [MaxSecrets] already.
	ErrTooManySecrets = errors.New("clients: the client has as many secrets as it may")
	// ErrUnavailable: the store cannot be asked, or what it holds is not known
	// yet, so nothing can be said about the client.
	ErrUnavailable = errors.New("clients: the registry is not available")
)

// Store keeps clients that can be changed while gateways run. Every change is
// atomic: it is made in full or not at all, and it bumps the revision that all
// gateways watch. A change that has returned is in force on this gateway.
//
// Each method fails with an error that matches one of the sentinels; whatever
// keeps the store from being asked matches [ErrUnavailable]. Then the change may
// have been made nevertheless: the response was lost. A method that makes such a
// change again by itself recognises its own and succeeds.
//
// expected is the revision of the client that the caller saw; 0 is any.
// Implementations are safe for concurrent use.
type Store interface {
	// Create adds a client with one secret, or none if secret is the zero value. If several calls
	// for one id run at the same time, exactly one succeeds. ErrExists: the id is taken.
	Create(ctx context.Context, d Document, secret Credential) (Change, error)
	// Update replaces everything that d says about the client d.ID; its secrets
	// stay. ErrNotFound, ErrConflict, ErrReadOnly.
	Update(ctx context.Context, d Document, expected uint64) (Change, error)
	// Delete removes the client with all its secrets; its live tokens stop.
	// ErrNotFound, ErrConflict, ErrReadOnly.
	Delete(ctx context.Context, id string, expected uint64) (Change, error)
	// AddSecret adds a secret. Unless others is the zero time, the secrets that
	// are there end then at the latest, in the same change; those that have ended
	// go. ErrNotFound, ErrConflict, ErrReadOnly, ErrTooManySecrets, ErrExists if
	// the client has a secret of that name.
	AddSecret(ctx context.Context, id string, secret Credential, others time.Time, expected uint64) (Change, error)
	// RemoveSecret removes a secret. Tokens got with it live on. ErrNotFound,
	// ErrConflict, ErrReadOnly.
	RemoveSecret(ctx context.Context, id, secretID string, expected uint64) (Change, error)
	// Load reads a client as it is in the store now. ErrNotFound.
	Load(ctx context.Context, id string) (*Client, error)
	// LastUsed tells when each secret of the clients given was last used, as far
	// as gateways have written it down; they do so once a minute. A secret that
	// was never used is missing.
	LastUsed(ctx context.Context, of ...*Client) (map[SecretRef]time.Time, error)
	// Touch writes down when secrets were used; an instant that is earlier than
	// the one known changes nothing. Clients that are gone are passed over.
	Touch(ctx context.Context, uses []Use) error
}

// Change is what a [Store] did to one client. Callers must not modify the values it points to.
type Change struct {
	// Before is the client as it was, nil if it was made.
	Before *Client
	// After is the client as it is now, nil if it was deleted.
	After *Client
	// Secret is the secret that was added or removed, the zero value if none.
	Secret Secret
	// Note, if any, is a sentence on what the change brings along.
	Note string
}

// SecretRef names one secret.
type SecretRef struct {
	Client, Secret string
}

// Use tells that a secret was used.
type Use struct {
	SecretRef
	// At is the last use, in whole seconds.
	At time.Time
	// Registry tells that the client is one of the store.
	Registry bool
}
