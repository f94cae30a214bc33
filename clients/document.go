package clients

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"snowgate/internal/scope"
	"snowgate/limit"
)

// Bounds of what a client may be granted. A token's record and the header that
// tells an upstream of its scopes must hold all of it.
const (
	MaxScopes    = 128
	MaxScopeLen  = 4096 // characters of all scope-tokens and the spaces between
	MaxAudiences = 128
)

// ErrDocument says that a text is not the document of a client. Errors that match it with errors.Is
// are of type [DocumentError], which lists every fault.
var ErrDocument = errors.New("clients: not the document of a client")

// Document is what an operator says about a client: everything but its secrets.
// Its JSON form has the names of RFC 7591 §2 where that has one.
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

// DocumentFault is one thing that is wrong with a document.
type DocumentFault struct {
	// Pointer is the place in the document (RFC 6901), empty for all of it.
	Pointer string
	// Detail is one line that never holds a secret.
	Detail string
}

// DocumentError is everything that is wrong with a document, from top to
// bottom. It matches [ErrDocument].
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

// ApplyTo makes c what d says. The id of c stays.
func (d Document) ApplyTo(c *Client) {
	c.Name, c.Scopes, c.Audiences, c.TokenTTL = d.Name, d.Scopes, d.Audiences, d.TokenTTL
	c.Rate, c.Introspect, c.Disabled = d.Rate, d.Introspect, d.Disabled
}

// Document returns what an operator said about c.
func (c *Client) Document() Document {
	return Document{
		ID: c.ID, Name: c.Name, Scopes: c.Scopes, Audiences: c.Audiences, TokenTTL: c.TokenTTL,
		Rate: c.Rate, Introspect: c.Introspect, Disabled: c.Disabled,
	}
}
