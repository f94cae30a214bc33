package limit

import (
	"net/netip"
	"time"
)

// DefaultUnknownTokens is the default rate of unknown tokens from one address:
// 50 a second, 200 at once. Each costs a look-up in Redis; a caller that uses the
// tokens it was given has none, and one that has missed a mass revocation has as
// many as it has tokens.
//
//nolint:gochecknoglobals // a struct cannot be a constant
var DefaultUnknownTokens = Rate{200, 4 * time.Second}

// UnknownTokens limits how many tokens that turn out not to exist are looked up
// for one address. It is asked before a look-up, and told afterwards if that found
// nothing, so that tokens which exist use nothing up. It is safe for concurrent
// use.
type UnknownTokens struct{ addresses *Addresses }

// NewUnknownTokens returns a limiter in memory; its parameters are those of
// [NewAddresses].
func NewUnknownTokens(rate Rate, size int, now func() time.Time, observe Observer) *UnknownTokens {
	return &UnknownTokens{NewAddresses(UnknownToken, rate, size, now, observe)}
}

// Allow reports whether a token may be looked up for addr, and if not, after how
// long one may. It does not count.
func (u *UnknownTokens) Allow(addr netip.Addr) (retryAfter time.Duration, ok bool) {
	decision := u.addresses.Peek(addr)
	return decision.RetryAfter, decision.Allowed
}

// Note counts a look-up for addr that found nothing.
func (u *UnknownTokens) Note(addr netip.Addr) { u.addresses.Allow(addr) }
