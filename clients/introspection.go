package clients

import (
	"fmt"
	"slices"
)

// Introspection says which tokens a client may look into (RFC 7662). To a client
// that may not see a token it looks like one that is not active (§2.2), so that
// nobody learns of tokens that are not meant for it (§4).
type Introspection uint8

// The policies. The zero value is the strictest.
const (
	IntrospectNone     Introspection = iota // the endpoint is closed to the client
	IntrospectAudience                      // tokens that are meant for one of the client's audiences
	IntrospectAny                           // all tokens
)

var introspections = [...]string{IntrospectNone: "none", IntrospectAudience: "audience", IntrospectAny: "any"}

// ParseIntrospection reads none, audience or any.
func ParseIntrospection(text string) (Introspection, error) {
	if i := slices.Index(introspections[:], text); i >= 0 {
		return Introspection(i), nil
	}
	return IntrospectNone, fmt.Errorf("is none of none, audience, any")
}

// String returns what [ParseIntrospection] reads.
func (i Introspection) String() string {
	if int(i) < len(introspections) {
		return introspections[i]
	}
	return introspections[IntrospectNone]
}

// CanIntrospect reports whether the client may use the introspection endpoint.
func (c *Client) CanIntrospect() bool {
	return c.Introspect == IntrospectAudience || c.Introspect == IntrospectAny
}

// MayInspect reports whether the client may learn anything of a token that is
// meant for audience. A token without an audience is meant for nobody in
// particular and is shown to clients with [IntrospectAny] only.
func (c *Client) MayInspect(audience []string) bool {
	switch c.Introspect {
	case IntrospectAny:
		return true
	case IntrospectAudience:
		return slices.ContainsFunc(audience, func(a string) bool { return slices.Contains(c.Audiences, a) })
	default:
		return false
	}
}
