package gateway

import (
	"snowgate/limit"
	"snowgate/limit/redislimit"
	"snowgate/tokens/redisstore"
)

// limits are the rate limits that keep one caller from using up what all callers share.
type limits struct {
	failures *limit.Failures      // of authentication
	unknown  *limit.UnknownTokens // and expired or revoked ones
	rates    *redislimit.Limiter  // of token requests, per client
	routes   *redislimit.Limiter  // of requests that are forwarded, per route and client
}

func newLimits(s *setup, store *redisstore.Store) *limits {
	series := s.metrics.NewLimits()
	observe := func(kind limit.Kind, allowed bool) { series.Decided(string(kind), allowed) }
	return &limits{
		failures: limit.NewFailures(limit.FailuresConfig{
			PerClient: s.cfg.FailedAuthRate.Rate, PerAddress: s.cfg.FailedAuthAddressRate.Rate, Observe: observe,
		}),
		unknown: limit.NewUnknownTokens(s.cfg.UnknownTokenRate.Rate, 0, nil, observe),
		rates: redislimit.New(redislimit.Config{
			Redis: store.Client(), Prefix: s.cfg.KeyPrefix, Timeout: s.cfg.StoreTimeout,
			Observe: observe, Fallback: series.FellBack,
		}),
		routes: redislimit.New(redislimit.Config{
			Redis: store.Client(), Prefix: s.cfg.KeyPrefix, Timeout: s.cfg.StoreTimeout,
			Observe:  func(_ limit.Kind, allowed bool) { observe(limit.RouteRate, allowed) },
			Fallback: series.FellBack,
		}),
	}
}

func (l *limits) close() {
	l.rates.Close()
	l.routes.Close()
}
