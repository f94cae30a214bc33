// Package clients is the registry of the clients that may request tokens: their secrets, and what
// each of them may be granted.
//
// A client is configured in the file or the environment, or it is kept in a [Store]. All gateways
// share the store, and clients in it can be changed while gateways run. The [Registry] holds all
// clients in memory, so a token request takes no round trip to look up its client. A configured
// client cannot be changed through the store. It hides a client of the store with the same id; two
// such clients are a configuration error.
//
// A client authenticates with a secret of its own (RFC 6749 §2.3.1). The registry keeps only the
// SHA-256 of a secret. A slow password hash would add no protection, because a secret has 256
// random bits and cannot be guessed, and it would cost each token request some milliseconds. A
// client may have several secrets with different expiry times, so that a secret can be replaced
// without an interruption.
//
// A caller without a valid secret cannot find out which clients exist: for an unknown client, a
// disabled client and a wrong secret, the error and the number of comparisons are the same.
package clients

import (
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"snowgate/internal/scope"
	"snowgate/limit"
)

// AdminScope is the scope-token that gives access to the admin API. It is never granted by default:
// a client that has it must request it in the scope parameter.
const AdminScope = "snowgate:admin"

// AdminID is the id of the client that [Bootstrap] makes.
const AdminID = "admin"

// Sentinels that callers branch on, with errors.Is.
var (
	// ErrUnauthenticated: the client is unknown or disabled, or the secret is wrong, expired or
	// missing.
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
	// Name is for people; it satisfies [ValidName] and may be empty.
	Name string
	// Secrets are all valid at the same time, each until it expires. A client without secrets
	// cannot authenticate.
	Secrets []Secret
	// Scopes holds all scope-tokens that the client may be granted.
	Scopes scope.List
	// Audiences are the resources (RFC 8707) the client may get tokens for:
	// absolute URIs without a fragment, see [ValidAudience].
	Audiences []string
	// TokenTTL is the lifetime of the tokens of the client; 0: DefaultTTL.
	TokenTTL time.Duration
	// DefaultTTL is set by the [Registry] that the client is in.
	DefaultTTL time.Duration
	// Rate limits the token requests of the client; zero: no limit.
	Rate limit.Rate
	// Introspect says which tokens the client may introspect.
	Introspect Introspection
	// Disabled clients cannot authenticate, and their tokens are refused.
	Disabled bool

	// Source says where the client is kept.
	Source Source
	// Revision is the shared revision after the last change of a client of the store; 0 for other
	// clients.
	Revision uint64
	// Generation is the least generation that a token of a client of the store must carry. Creating
	// the client sets it, and disabling the client raises it. It is 0 for other clients.
	Generation uint64
	// CreatedAt and UpdatedAt are when a client of the store was created and last changed, in whole
	// milliseconds; zero for other clients.
	CreatedAt, UpdatedAt time.Time

	// Extra holds the members of the stored JSON object that a newer version wrote and this version
	// does not know, without the braces and sorted by name. A change of the client keeps them. It
	// is empty for clients that are not in the store.
	Extra string
}

// Source says where a client is kept.
type Source uint8

// The sources of clients.
const (
	SourceFile        Source = iota // the configuration file
	SourceEnvironment               // an environment variable, see [Bootstrap]
	SourceRegistry                  // the [Store]; clients can be changed only there while the gateway runs
)

// String returns file, environment or registry.
func (s Source) String() string {
	switch s {
	case SourceEnvironment:
		return "environment"
	case SourceRegistry:
		return "registry"
	default:
		return "file"
	}
}

// Secret is a secret of a client as the registry keeps it: without the secret text.
type Secret struct {
	// ID identifies the secret among those of its client; it is public.
	ID string
	// SHA256 is the digest of the whole secret text, see [Digest].
	SHA256 [32]byte
	// CreatedAt is when a secret of the store was added, in whole milliseconds; zero for other
	// secrets.
	CreatedAt time.Time
	// ExpiresAt is the first instant at which the secret is no longer valid; zero: it never
	// expires.
	ExpiresAt time.Time
}

// Live reports whether s has not expired at now.
func (s Secret) Live(now time.Time) bool {
	return s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt)
}

// Limits of a client.
const (
	// MaxIDLen is the maximum length of a client or secret id.
	MaxIDLen = 128
	// MaxSecrets is the maximum number of secrets of a client. Every authentication makes as many
	// comparisons as the client with the most secrets needs.
	MaxSecrets = 16
)

// NameWanted describes the names that [ValidName] accepts. It completes a sentence such as
// "client_name is not …".
const NameWanted = "1 to 200 bytes of printable UTF-8 without a space at the ends"

// ValidName reports whether name may be the display name of a client: 1 to 200 bytes of printable
// UTF-8 without spaces at the ends. Control and formatting characters are not allowed, nor any
// space other than U+0020.
func ValidName(name string) bool {
	if name == "" || len(name) > 200 || strings.TrimSpace(name) != name || !utf8.ValidString(name) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
}

// ValidID reports whether id may be the id of a client or a secret: 1 to 128 characters of
// A-Za-z0-9._~-, but not . or .., which cannot be segments of a URL path. Form-encoding does not
// change these characters. RFC 6749 §2.3.1 requires that encoding, and many clients omit it, so
// both work. No id can contain a separator of store keys.
func ValidID(id string) bool {
	if id == "" || len(id) > MaxIDLen || id == "." || id == ".." {
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
