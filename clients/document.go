package clients

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"snowgate/internal/scope"
	"snowgate/limit"
)

// Limits of what a client may be granted. They keep a token record, and the header with the scopes
// that an upstream gets, from becoming too large.
const (
	MaxScopes    = 128
	MaxScopeLen  = 4096 // characters of all scope-tokens and the spaces between
	MaxAudiences = 128
)

// ErrDocument is the error for a text that is not a valid document of a client. Errors that match
// it with errors.Is are of type [DocumentError], which lists every fault.
var ErrDocument = errors.New("clients: not the document of a client")

// Document is what an operator sets for a client: everything but its secrets. Its JSON form uses
// the names of RFC 7591 §2 where the RFC has one.
type Document struct {
	ID         string
	Name       string
	Scopes     scope.List
	Audiences  []string
	TokenTTL   time.Duration // whole seconds; 0 is the default of the gateway
	Rate       limit.Rate    // zero is no limit
	Introspect Introspection
	Disabled   bool
}

// DocumentFault is one fault of a document.
type DocumentFault struct {
	// Pointer is the JSON pointer to the faulty member (RFC 6901); empty: the whole document.
	Pointer string
	// Detail is one line that never holds a secret.
	Detail string
}

// DocumentError lists all faults of a document in the order of the text. It matches [ErrDocument].
type DocumentError []DocumentFault

// Error returns all faults in one line.
func (e DocumentError) Error() string {
	lines := make([]string, len(e))
	for i, f := range e {
		lines[i] = strings.TrimSpace(f.Pointer + " " + f.Detail)
	}
	return fmt.Sprintf("%v: %s", ErrDocument, strings.Join(lines, "; "))
}

// Is reports whether target is [ErrDocument].
func (e DocumentError) Is(target error) bool { return target == ErrDocument }

// ApplyTo sets the fields of c to those of d. The id of c does not change.
func (d Document) ApplyTo(c *Client) {
	c.Name, c.Scopes, c.Audiences, c.TokenTTL = d.Name, d.Scopes, d.Audiences, d.TokenTTL
	c.Rate, c.Introspect, c.Disabled = d.Rate, d.Introspect, d.Disabled
}

// Document returns the document of c.
func (c *Client) Document() Document {
	return Document{
		ID: c.ID, Name: c.Name, Scopes: c.Scopes, Audiences: c.Audiences, TokenTTL: c.TokenTTL,
		Rate: c.Rate, Introspect: c.Introspect, Disabled: c.Disabled,
	}
}
