package clients

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"snowgate/internal/scope"
)

// Grant is the result of a successful token request.
type Grant struct {
	// Scope is the granted scope; it may be empty.
	Scope scope.List
	// Audience holds the resources that the token is meant for. The client may share the slice, so
	// the caller must not modify it.
	Audience []string
	// TTL is the lifetime of the token; 0: neither the client nor the registry sets one.
	TTL time.Duration
}

// Grant decides about a token request. requested is the raw scope parameter. If it is empty, the
// client gets all its scopes except [AdminScope], which must be requested. resources are the raw
// resource parameters. Without any, the audience is all audiences of the client.
//
// If the client requests anything that it does not have, Grant grants nothing and returns an error
// that matches [ErrInvalidScope] or [ErrInvalidTarget].
func (c *Client) Grant(requested string, resources []string) (Grant, error) {
	granted, err := c.grantScope(requested)
	if err != nil {
		return Grant{}, err
	}
	audience, err := c.grantAudience(resources)
	if err != nil {
		return Grant{}, err
	}
	return Grant{Scope: granted, Audience: audience, TTL: cmp.Or(c.TokenTTL, c.DefaultTTL)}, nil
}

func (c *Client) grantScope(requested string) (scope.List, error) {
	if requested == "" {
		if !c.Scopes.Has(AdminScope) {
			return c.Scopes, nil
		}
		return c.Scopes.Without(AdminScope), nil
	}
	wanted, err := scope.Parse(requested)
	if err != nil {
		return "", fmt.Errorf("%w: malformed", ErrInvalidScope)
	}
	for name := range wanted.All {
		if !c.Scopes.Has(name) {
			return "", fmt.Errorf("%w: %s", ErrInvalidScope, quote(name))
		}
	}
	return wanted, nil
}

func (c *Client) grantAudience(resources []string) ([]string, error) {
	if len(resources) == 0 {
		return c.Audiences, nil
	}
	audience := make([]string, 0, min(len(resources), len(c.Audiences)))
	for _, resource := range resources {
		// Compare audiences as texts. RFC 8707 §2 leaves the equivalence of URIs to the server, and
		// the strictest comparison is the safest.
		if !slices.Contains(c.Audiences, resource) {
			return nil, fmt.Errorf("%w: %s", ErrInvalidTarget, quote(resource))
		}
		if !slices.Contains(audience, resource) {
			audience = append(audience, resource)
		}
	}
	return audience, nil
}

// quote quotes and truncates a text that a caller chose, for a log line. It redacts a text that may
// contain a secret, because a client may send its secret or token in the wrong parameter.
func quote(text string) string {
	if looksSecret(text) {
		return redacted
	}
	return fmt.Sprintf("%.64q", text)
}

// looksSecret reports whether text may hold a client secret or a token.
func looksSecret(text string) bool {
	return strings.Contains(text, secretPrefix) || strings.Contains(text, "sgt_")
}

// ValidAudience reports whether text may be an audience: an absolute URI
// without a fragment (RFC 8707 §2), of printable ASCII, at most 2048 bytes.
func ValidAudience(text string) bool {
	if len(text) > 2048 || strings.Contains(text, "#") {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"<>\^`+"`{|}", c) >= 0 {
			return false
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.User != nil {
		return false
	}
	return u.Host != "" || u.Opaque != "" || len(u.Path) > 1
}
