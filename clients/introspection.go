package clients

import (
	"fmt"
	"slices"
)

// Introspection says which tokens a client may introspect (RFC 7662). For all other tokens the
// response is the same as for a token that is not active (§2.2), so a client cannot find out that
// they exist (§4).
type Introspection uint8

// The policies. The zero value is the strictest.
const (
	IntrospectNone     Introspection = iota // no tokens; the endpoint refuses the client
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

// MayInspect reports whether the client may introspect a token with this audience. Only clients
// with [IntrospectAny] may introspect a token without an audience.
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
