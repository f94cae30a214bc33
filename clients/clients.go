// Package clients knows who may ask for tokens: the registry of clients, their
// secrets and what each of them may be granted.
//
// A client authenticates with a secret of its own (RFC 6749 §2.3.1). Only the
// SHA-256 of a secret is ever kept: a secret carries 256 random bits, so there
// is nothing to guess and a slow password hash would protect nothing, while it
// would cost every token request some milliseconds. A client may hold several
// secrets, each with an end, so that one can be replaced without a gap.
//
// Who does not know a secret learns nothing by trying: an unknown client and a
// wrong secret get the same error after the same number of comparisons.
package clients

import (
	"errors"
	"time"

	"snowgate/scope"
)

// AdminScope is the scope-token that opens the admin API. It is never granted
// unasked: a client that has it must name it in the scope parameter.
const AdminScope = "snowgate:admin"

// AdminID is the client that the configuration makes of a secret alone.
const AdminID = "admin"

// Sentinels that callers branch on, with errors.Is.
var (
	// ErrUnauthenticated: unknown client, wrong or expired secret, or none.
	ErrUnauthenticated = errors.New("clients: unknown client or wrong secret")
	// ErrInvalidScope: the scope parameter is malformed or names a scope-token
	// that the client does not have (RFC 6749 §5.2, invalid_scope).
	ErrInvalidScope = errors.New("clients: scope malformed or not granted")
	// ErrInvalidTarget: the resource parameter is malformed or is not an
	// audience of the client (RFC 8707 §2, invalid_target).
	ErrInvalidTarget = errors.New("clients: resource malformed or not granted")
)

// Client is one program that may ask for tokens. Once it is in a [Registry] it
// must not be modified; it is then safe for concurrent use.
type Client struct {
	// ID identifies the client and satisfies [ValidID]. It is public.
	ID string
	// Secrets are all good at the same time, each until its own end. A client
	// without any cannot authenticate.
	Secrets []Secret
	// Scopes is everything the client may be granted.
	Scopes scope.List
	// Audiences are the resources (RFC 8707) the client may get tokens for:
	// absolute URIs without a fragment, see [ValidAudience].
	Audiences []string
	// TokenTTL is the lifetime of the client's tokens; 0 is the default of the
	// registry.
	TokenTTL time.Duration
	// Introspect tells whether the client may call the introspection endpoint.
	Introspect bool
}

// Secret is what is kept of one secret of a client.
type Secret struct {
	// ID names the secret among those of its client; it is public.
	ID string
	// SHA256 is the digest of the whole secret text, see [Digest].
	SHA256 [32]byte
	// ExpiresAt is the first instant at which the secret is no longer good.
	// The zero time is never.
	ExpiresAt time.Time
}

// Live reports whether s is good at now.
func (s Secret) Live(now time.Time) bool {
	return s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt)
}

// Bounds of a client.
const (
	// MaxIDLen is the length of the longest client or secret id.
	MaxIDLen = 128
	// MaxSecrets is how many secrets a client may have. Every authentication
	// does as many comparisons as the client with the most secrets needs.
	MaxSecrets = 16
)

// ValidID reports whether id may name a client or a secret: 1 to 128 characters
// of A-Za-z0-9._~-. These survive the form-encoding that RFC 6749 §2.3.1 asks
// for and that half of all client programs leave out, so both kinds work; and
// no id can reach beyond its own key in a store.
func ValidID(id string) bool {
	if id == "" || len(id) > MaxIDLen {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		case c == '.', c == '_', c == '~', c == '-':
		default:
			return false
		}
	}
	return true
}
