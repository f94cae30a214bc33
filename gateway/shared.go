package gateway

import (
	"math"
	"time"

	"snowgate/internal/telemetry"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// newRules returns the revocation rules, which the feed keeps current.
func (g *Gateway) newRules() *tokens.Rules {
	return tokens.NewRules(tokens.RulesConfig{Store: g.store, Longest: g.cfg.TokenMaxTTL, Now: g.clock.Time})
}

// newFeed returns what keeps this gateway's copies of what all gateways share
// current. It is put together last, because it tells everybody else.
func (g *Gateway) newFeed() *redisstore.Feed {
	return g.store.Feed(redisstore.FeedConfig{
		Followers: map[string]redisstore.Follower{
			redisstore.PushRules:  &ruleFollower{Rules: g.rules, gateway: g},
			redisstore.PushKeys:   g.keys,
			redisstore.PushClient: &clientFollower{Store: g.registry, gateway: g},
		},
		OnToken: g.tokens.Dropped,
		OnGap: func() {
			g.metrics.PushGap()
			g.tokens.Gap()
		},
		Now:            g.clock.Time,
		OnPush:         g.metrics.Push,
		OnGarbled:      g.metrics.PushGarbled,
		OnSubscription: g.reportSubscription,
		Report:         g.reportRules,
	})
}

// reportSubscription is told when messages about revocations begin to come in,
// and when they do not any more.
func (g *Gateway) reportSubscription(err error) {
	g.metrics.Subscribed(err == nil)
	g.tokens.PushesLost(err != nil)
	if err != nil {
		g.log.Warn().Err(err).Msg("revocations by other gateways are not pushed to this one: they take effect here within the bound of SNOWGATE_CACHE_TTL")
		return
	}
	g.log.Info().Msg("revocations by other gateways are pushed to this one")
}

// reportRules is told when what is shared cannot be confirmed any more, and when
// it can again.
func (g *Gateway) reportRules(err error) {
	if err != nil {
		g.log.Warn().Err(err).Msg("the revocation rules cannot be confirmed: beyond the bound requests that need them are answered with 503")
		return
	}
	g.log.Info().Int("rules", g.rules.Len()).Msg("the revocation rules are confirmed")
}

// reportFailStatic is told when tokens begin to be served without Redis.
func (g *Gateway) reportFailStatic(active bool) {
	g.metrics.FailStatic(active)
	if active {
		g.log.Warn().Dur("for", g.cfg.FailStatic).Msg("Redis cannot be asked: cached tokens are served without it (SNOWGATE_FAIL_STATIC)")
		return
	}
	g.log.Info().Msg("cached tokens are served with Redis again")
}

// confirmed tells whether what is shared was known to be current within the
// bound.
func (g *Gateway) confirmed() bool {
	at, ok := g.feed.Confirmed()
	return ok && time.Since(at) <= g.tokens.Bound()
}

// sharedSeries is the state of what is shared, for the metrics.
func (g *Gateway) sharedSeries() telemetry.Shared {
	stats := g.tokens.Stats()
	age := math.Inf(1)
	if at, ok := g.feed.Confirmed(); ok {
		age = time.Since(at).Seconds()
	}
	return telemetry.Shared{
		Rules: float64(stats.Rules), CachedTokens: float64(stats.Cached), Watched: float64(stats.Watched), ConfirmedAge: age,
	}
}

// watch registers a stream under its token, see tokens.Service.Watch.
func (g *Gateway) watch(t *tokens.Token, required tokens.Requirement, cut func(error)) (stop func()) {
	return g.tokens.Watch(t, required, func(reason error) {
		g.metrics.StreamCut(tokens.Reason(reason))
		cut(reason)
	})
}
