package limit

import (
	"net/netip"
	"time"
)

// DefaultUnknownTokens is the default rate of refused tokens from one address: 50 a
// second, 200 at once. Each may cost a look-up in Redis; a caller that uses the
// tokens it was given has none, and one that has missed a mass revocation has as
// many as it has tokens.
//
//nolint:gochecknoglobals // a struct cannot be a constant
var DefaultUnknownTokens = Rate{200, 4 * time.Second}

// UnknownTokens limits how many tokens from one address are refused as such after
// they were looked up: unknown, expired or revoked ones. It is told of those only,
// after the look-up: so a good token always passes, and nobody can lock out
// somebody else behind the same address. It is safe for concurrent use.
type UnknownTokens struct{ addresses *Addresses }

// NewUnknownTokens returns a limiter in memory; its parameters are those of
// [NewAddresses].
func NewUnknownTokens(rate Rate, size int, now func() time.Time, observe Observer) *UnknownTokens {
	return &UnknownTokens{NewAddresses(UnknownToken, rate, size, now, observe)}
}

// Failed counts a token from addr that was looked up and is not good. If there were
// too many, ok is false, and after retryAfter there is room for one again.
func (u *UnknownTokens) Failed(addr netip.Addr) (retryAfter time.Duration, ok bool) {
	decision := u.addresses.Allow(addr)
	return decision.RetryAfter, decision.Allowed
}
