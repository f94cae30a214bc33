package gateway

import (
	"snowgate/limit"
	"snowgate/limit/redislimit"
)

// limits are what keeps one caller from using up what is there for all.
type limits struct {
	failures *limit.Failures      // of authentication
	unknown  *limit.UnknownTokens // and expired or revoked ones
	rates    *redislimit.Limiter  // of token requests, per client
	routes   *redislimit.Limiter  // of requests that are forwarded, per route and client
}

func (g *Gateway) newLimits() *limits {
	series := g.metrics.NewLimits()
	observe := func(kind limit.Kind, allowed bool) { series.Decided(string(kind), allowed) }
	return &limits{
		failures: limit.NewFailures(limit.FailuresConfig{
			PerClient: g.cfg.FailedAuthRate.Rate, PerAddress: g.cfg.FailedAuthAddressRate.Rate, Observe: observe,
		}),
		unknown: limit.NewUnknownTokens(g.cfg.UnknownTokenRate.Rate, 0, nil, observe),
		rates: redislimit.New(redislimit.Config{
			Redis: g.store.Client(), Prefix: g.cfg.KeyPrefix, Timeout: g.cfg.StoreTimeout,
			Observe: observe, Fallback: series.FellBack,
		}),
		routes: redislimit.New(redislimit.Config{
			Redis: g.store.Client(), Prefix: g.cfg.KeyPrefix, Timeout: g.cfg.StoreTimeout,
			Observe:  func(_ limit.Kind, allowed bool) { observe(limit.RouteRate, allowed) },
			Fallback: series.FellBack,
		}),
	}
}
