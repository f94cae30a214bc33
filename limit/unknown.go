package limit

import (
	"net/netip"
	"time"
)

// DefaultUnknownTokens is the default rate of unknown tokens from one address:
// 50 a second, 200 at once. A caller that uses the
// tokens it was given has none, and one that has missed a mass revocation has as
// many as it has tokens.
//
//nolint:gochecknoglobals // a struct cannot be a constant
var DefaultUnknownTokens = Rate{200, 4 * time.Second}

// UnknownTokens limits how many tokens that do not exist are answered as such to one
// address. It is asked about refusals only, after the look-up: so a good token always
// passes, and nobody can lock out somebody else. It is safe for concurrent use.
type UnknownTokens struct{ addresses *Addresses }

// NewUnknownTokens returns a limiter in memory; its parameters are those of
// [NewAddresses].
func NewUnknownTokens(rate Rate, size int, now func() time.Time, observe Observer) *UnknownTokens {
	return &UnknownTokens{NewAddresses(UnknownToken, rate, size, now, observe)}
}

// Allow reports whether addr may be told that a token does not exist, and if not, after how
// long it may. It does not count.
func (u *UnknownTokens) Allow(addr netip.Addr) (retryAfter time.Duration, ok bool) {
	decision := u.addresses.Peek(addr)
	return decision.RetryAfter, decision.Allowed
}

// Note counts a token from addr that does not exist.
func (u *UnknownTokens) Note(addr netip.Addr) { u.addresses.Allow(addr) }
