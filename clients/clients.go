// Package clients knows who may ask for tokens: the registry of clients, their
// secrets and what each of them may be granted.
//
// Clients are configured, by the file or the environment, or they are in a
// [Store], which all gateways share and which can be changed while they run. The
// [Registry] holds all of them in memory, so that a token request asks nobody. A
// configured client cannot be changed through the store, and wins over one of the
// same name in there; that there are two is a fault of the configuration.
//
// A client authenticates with a secret of its own (RFC 6749 §2.3.1). Only the
// SHA-256 of a secret is ever kept: a secret carries 256 random bits, so there
// is nothing to guess and a slow password hash would protect nothing, while it
// would cost every token request some milliseconds. A client may hold several
// secrets, each with an end, so that one can be replaced without a gap.
//
// A caller that does not know a secret learns nothing by trying: an unknown client, a disabled one
// and a wrong secret get the same error after the same number of comparisons.
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

// AdminScope is the scope-token that opens the admin API. It is never granted
// unasked: a client that has it must name it in the scope parameter.
const AdminScope = "snowgate:admin"

// AdminID is the client that the configuration makes of a secret alone.
const AdminID = "admin"

// Sentinels that callers branch on, with errors.Is.
var (
	// ErrUnauthenticated: unknown or disabled client, wrong or expired secret, or
	// none.
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
	// Secrets are all good at the same time, each until its own end. A client
	// without any cannot authenticate.
	Secrets []Secret
	// Scopes is everything the client may be granted.
	Scopes scope.List
	// Audiences are the resources (RFC 8707) the client may get tokens for:
	// absolute URIs without a fragment, see [ValidAudience].
	Audiences []string
	// TokenTTL is the lifetime of the client's tokens; 0 is DefaultTTL.
	TokenTTL time.Duration
	// DefaultTTL is set by the [Registry] that the client is in.
	DefaultTTL time.Duration
	// Rate is how many tokens the client may ask for; zero is no limit.
	Rate limit.Rate
	// Introspect says which tokens the client may look into.
	Introspect Introspection
	// Disabled clients cannot authenticate, and their tokens are not good.
	Disabled bool

	// Source says where the client is kept.
	Source Source
	// Revision is what the shared revision became with the last change of a
	// client of the store. 0 for others.
	Revision uint64
	// Generation is the generation of tokens that a client of the store started
	// with, or started anew with when it was last disabled: its tokens must carry
	// this one or a later one. 0 for others.
	Generation uint64
	// CreatedAt and UpdatedAt tell when a client of the store was made and last
	// changed, in whole milliseconds. Zero for others.
	CreatedAt, UpdatedAt time.Time

	// Extra holds what a newer version stored about a client of the store and this version does not
	// know: members of a JSON object, without the braces, in the order of their names. Empty for all
	// others. It is kept when the client is changed.
	Extra string
}

// Source says where a client is kept.
type Source uint8

// The sources of clients.
const (
	SourceFile        Source = iota // the configuration file
	SourceEnvironment               // a variable, see [Bootstrap]
	SourceRegistry                  // the [Store]; only these can be changed while the gateway runs
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

// Secret is what is kept of one secret of a client.
type Secret struct {
	// ID names the secret among those of its client; it is public.
	ID string
	// SHA256 is the digest of the whole secret text, see [Digest].
	SHA256 [32]byte
	// CreatedAt is when a secret of the store was added, in whole milliseconds.
	// Zero for others.
	CreatedAt time.Time
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

// NameWanted tells what [ValidName] wants, to go on after "is not".
const NameWanted = "1 to 200 bytes of printable UTF-8 without a space at the ends"

// ValidName reports whether name may be the name of a client for people: at most
// 200 bytes of UTF-8 that can be printed (no control or formatting characters, no
// space but the usual one), without spaces at the ends. The empty text is none.
func ValidName(name string) bool {
	if name == "" || len(name) > 200 || strings.TrimSpace(name) != name || !utf8.ValidString(name) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
}

// ValidID reports whether id may name a client or a secret: 1 to 128 characters
// of A-Za-z0-9._~-, other than . and .., which no path can name. These survive
// the form-encoding that RFC 6749 §2.3.1 asks for and that half of all client
// programs leave out, so both kinds work; and no id can reach beyond its own key
// in a store.
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
