package gateway

import (
	"math"
	"sync/atomic"
	"time"

	"snowgate/clients"
	"snowgate/clients/redisclients"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/internal/telemetry"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// shared is what all gateways of a deployment share, as this one knows it: clients, revocation rules
// and tag keys, the feed that keeps them current, and the token service that decides by them. It is
// safe for concurrent use.
type shared struct {
	*setup
	store    *redisstore.Store
	clock    *redislease.Clock
	clients  *clients.Registry
	registry *redisclients.Store
	rules    *tokens.Rules
	keys     *tokens.Keyring
	feed     *redisstore.Feed
	ids      *ids
	tokens   *tokens.Service

	missingTold atomic.Int64 // when a missing token was last logged, in Unix seconds
}

// newShared connects the local copies of the shared data. fit says whether this gateway may decide.
func newShared(s *setup, r *storage, made *ids, fit *installation, unknown tokens.UnknownLimiter) *shared {
	g := &shared{setup: s, store: r.store, clock: r.clock, ids: made, clients: clients.NewRegistry(s.cfg.TokenTTL)}
	g.feed = r.store.Feed(redisstore.FeedConfig{})
	g.openRegistry()
	g.rules = tokens.NewRules(tokens.RulesConfig{
		Store: g.store, Longest: g.cfg.TokenMaxTTL, Now: g.clock.Time, OnUnknown: g.reportUnknownRule,
	})
	g.keys = g.newKeyring()
	g.tokens = g.newTokenService(made, fit, unknown)
	g.follow(fit)
	return g
}

func (g *shared) newKeyring() *tokens.Keyring {
	if g.cfg.TokenKey.IsSet() {
		return tokens.FixedKeyring(tokens.Key(g.cfg.TokenKey.Bytes()))
	}
	return tokens.NewKeyring(tokens.KeyringConfig{
		Store: g.store, Now: g.clock.Time, Longest: g.rules.Longest, Report: g.reportKeys,
	})
}

func (g *shared) newTokenService(made *ids, fit *installation, unknown tokens.UnknownLimiter) *tokens.Service {
	return tokens.NewService(tokens.Config{
		Store:    g.store,
		Scanner:  g.store,
		Keys:     g.keys,
		IDs:      made,
		MintTime: made.scheme.Time,
		Worker:   tokens.WorkerOf(made.scheme),
		Now:      g.clock.Time,
		Timeout:  g.cfg.StoreTimeout,
		Unfit:    fit.unfit,

		Rules:        g.rules,
		Confirmed:    g.feed.Confirmed,
		Clients:      g.clients,
		CacheTTL:     g.cfg.CacheTTL,
		CacheSize:    g.cfg.CacheSize,
		FailStatic:   g.cfg.FailStatic,
		OnFailStatic: g.reportFailStatic,
		OnWriteBack:  g.reportWriteBack,
		OnMissing:    g.reportMissing,
		Unknown:      unknown,

		Observer:  g.metrics,
		Decisions: g.metrics,
		DuplicateID: func(id idgen.ID) {
			g.log.Error().Stringer("token_id", id).Msg("an id was issued twice: two generators work under one worker number")
		},
	})
}

// follow has the feed keep all copies current.
func (g *shared) follow(fit *installation) {
	g.feed.Follow(redisstore.FeedConfig{
		Followers: map[string]redisstore.Follower{
			redisstore.PushRules:  &ruleFollower{Rules: g.rules, installation: fit},
			redisstore.PushKeys:   g.keys,
			redisstore.PushClient: &clientFollower{Store: g.registry, shared: g},
		},
		OnToken: g.tokens.Dropped,
		OnGap: func() {
			g.metrics.PushGap()
			g.tokens.Gap()
		},
		OnForgot:       g.tokens.WritesLost,
		Now:            g.clock.Time,
		OnPush:         g.metrics.Push,
		OnGarbled:      g.metrics.PushGarbled,
		OnSubscription: g.reportSubscription,
		Report:         g.reportRules,
	})
}

// reportSubscription is told when messages about revocations begin to come in,
// and when they do not any more.
func (g *shared) reportSubscription(err error) {
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
func (g *shared) reportRules(err error) {
	if err != nil {
		g.log.Warn().Err(err).Msg("the revocation rules cannot be confirmed: beyond the bound requests that need them are answered with 503")
		return
	}
	g.log.Info().Int("rules", g.rules.Len()).Msg("the revocation rules are confirmed")
}

// reportUnknownRule is told of a revocation rule that only a newer version knows.
func (g *shared) reportUnknownRule(r tokens.Rule) {
	g.log.Warn().Str("rule", r.ID).Str("kind", string(r.Kind)).Time("until", r.Until).Time("ends_at", r.End).
		Msg("a newer version wrote a revocation rule of a kind that this one does not know: " +
			"tokens that it may match are answered with 503 until they expire; upgrade this gateway")
}

// reportWriteBack is told of a revocation that a failover had undone.
func (g *shared) reportWriteBack(id idgen.ID) {
	g.metrics.WrittenBack()
	g.log.Warn().Stringer("token_id", id).Msg("a revoked token was in Redis again, as after a failover: it is revoked again")
}

// reportMissing is told of a token whose record was lost, or revoked without this gateway hearing of
// it. One of them a minute is logged.
func (g *shared) reportMissing(id idgen.ID) {
	g.metrics.TokenMissing()
	now, told := time.Now().Unix(), g.missingTold.Load()
	if now-told < 60 || !g.missingTold.CompareAndSwap(told, now) {
		return // there may be as many as there are tokens
	}
	g.log.Warn().Stringer("token_id", id).
		Msg("the record of a token is gone before its time, and no revocation was heard of: see whether Redis evicts keys or has lost data")
}

// reportFailStatic is told when tokens begin to be served without Redis.
func (g *shared) reportFailStatic(active bool) {
	g.metrics.FailStatic(active)
	if active {
		g.log.Warn().Dur("for", g.cfg.FailStatic).Msg("Redis cannot be asked: cached tokens are served without it (SNOWGATE_FAIL_STATIC)")
		return
	}
	g.log.Info().Msg("cached tokens are served with Redis again")
}

// confirmed tells whether what is shared was known to be current within the
// bound.
func (g *shared) confirmed() bool {
	at, ok := g.feed.Confirmed()
	return ok && time.Since(at) <= g.tokens.Bound()
}

// sharedSeries is the state of what is shared, for the metrics.
func (g *shared) sharedSeries() telemetry.Shared {
	stats := g.tokens.Stats()
	age := math.Inf(1)
	if at, ok := g.feed.Confirmed(); ok {
		age = time.Since(at).Seconds()
	}
	return telemetry.Shared{
		Rules: float64(stats.Rules), UnknownRules: float64(stats.Unknown), CachedTokens: float64(stats.Cached), Watched: float64(stats.Watched), ConfirmedAge: age,
	}
}

// watch registers a stream under its token, see tokens.Service.Watch.
func (g *shared) watch(t *tokens.Token, required tokens.Requirement, cut func(error)) (stop func()) {
	return g.tokens.Watch(t, required, func(reason error) {
		g.metrics.StreamCut(tokens.Reason(reason))
		cut(reason)
	})
}

// reportKeys logs when reading the tag keys begins to fail, and when it works
// again.
func (g *shared) reportKeys(err error) {
	if err != nil {
		g.log.Warn().Err(err).Msg("the tag keys cannot be read")
		return
	}
	g.log.Info().Msg("the tag keys are read")
}

// close closes the token service.
func (g *shared) close() { g.tokens.Close() }
