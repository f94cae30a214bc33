package proxy

import (
	"context"
	"net/http"

	"snowgate/internal/request/exchange"
	"snowgate/limit"
)

// RateLimiter counts requests by key. [redislimit.Limiter] is one, which counts
// them over all gateways.
type RateLimiter interface {
	// Allow reports whether one more request under key is within rate, and counts it if so.
	Allow(ctx context.Context, key string, rate limit.Rate) limit.Decision
}

// keyPrefix begins the keys of routes. No client id has a colon, so they share
// nothing with the keys of clients.
const keyPrefix = "route:"

// allow counts r against the rates of its route. A nil rates allows everything. The rate of the
// client comes first, so that a client that exceeds it uses nothing of the shared rate.
func allow(rates RateLimiter, r *http.Request, x *exchange.Exchange, route *entry) error {
	if rates == nil {
		return nil
	}
	if !route.ClientRate.IsZero() && !x.Token.IsZero() {
		d := rates.Allow(r.Context(), keyPrefix+route.name+":"+x.Token.Client, route.ClientRate)
		if !d.Allowed {
			return &limit.ExceededError{Kind: limit.RouteClientRate, Decision: d}
		}
	}
	if !route.Rate.IsZero() {
		d := rates.Allow(r.Context(), keyPrefix+route.name, route.Rate)
		if !d.Allowed {
			return &limit.ExceededError{Kind: limit.RouteRate, Decision: d}
		}
	}
	return nil
}
