package main

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"snowgate/clients"
	"snowgate/clients/redisclients"
	"snowgate/config"
	"snowgate/exchange"
	"snowgate/handlers"
	"snowgate/handlers/admin"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/middleware"
	"snowgate/panics"
	"snowgate/problem"
	"snowgate/proxy"
	"snowgate/proxy/docker"
	"snowgate/scope"
	"snowgate/telemetry"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/redisstore/embedded"
)

// gateway is everything that one running gateway consists of. It is put together
// by newGateway and brought to life by serve.
type gateway struct {
	cfg     config.Config
	log     zerolog.Logger
	access  func(zerolog.Level, zerolog.LogObjectMarshaler) bool // takes the lines of requests; nil: log does
	metrics *telemetry.Metrics

	embedded *embedded.Server // nil with a Redis of its own
	store    *redisstore.Store
	monitor  *redisstore.Monitor
	clock    *redislease.Clock
	scheme   idgen.Scheme
	ids      *ids
	blank    chan struct{} // Redis has lost what all gateways share
	claim    claim         // of the installation that Redis keeps
	refused  chan error    // why no worker number will be had: the gateway does not start
	whole    atomic.Bool   // tokens could be issued at least once
	keys     *tokens.Keyring
	rules    *tokens.Rules
	feed     *redisstore.Feed
	tokens   *tokens.Service

	limits    *limits
	clients   *clients.Registry
	registry  *redisclients.Store
	admin     *admin.API
	router    *proxy.Router
	routing   *routing
	watcher   *docker.Watcher // nil: no routes are discovered
	forwarder *proxy.Forwarder
	drainer   *middleware.Drainer
	rested    func() uint64 // how many connections have gone to rest
	challenge problem.Challenge

	certificate *certificate // nil: the public listener speaks no TLS

	oauth    *handlers.OAuth
	metadata *handlers.Metadata
	health   *handlers.Health
	decoder  *handlers.IDs

	// whenReady, if set, is called once when the gateway can decide and issue.
	whenReady func()
}

// newGateway puts a gateway together. It contacts nobody.
func newGateway(cfg config.Config, logger zerolog.Logger) (*gateway, error) {
	version, commit := buildVersion()
	g := &gateway{
		cfg:     cfg,
		log:     logger,
		metrics: telemetry.New(version, commit),
		clients: clients.NewRegistry(cfg.TokenTTL),
		router:  new(proxy.Router),
		drainer: middleware.NewDrainer(),
		ids:     new(ids),
		blank:   make(chan struct{}, 1),
		refused: make(chan error, 1),
	}
	g.claim.configured = installationOf(cfg)
	g.router.Counter = func(route string) exchange.Counter { return g.metrics.Route(route) }
	g.router.Gone = g.metrics.RouteGone
	g.routing = newRouting(g.router, logger)
	g.watcher = g.newWatcher()
	var err error
	if g.scheme, err = idgen.NewScheme(cfg.IDLayout, cfg.Epoch); err != nil {
		return nil, usageError{err}
	}
	if cfg.TLSCert != "" {
		if g.certificate, err = newCertificate(cfg, logger, g.metrics.CertificateExpires); err != nil {
			return nil, usageError{err}
		}
	}
	redis.SetLogger(redisLog{logger})
	if err := g.openStore(); err != nil {
		return nil, err
	}
	g.monitor = g.store.Monitor(redisstore.MonitorConfig{OnChange: g.reportRedis, OnProbe: g.noticeProbe})
	g.clock = redislease.NewClock(g.store.Client(), cfg.KeyPrefix)
	g.openRegistry()
	g.rules = g.newRules()
	g.keys = g.newKeyring()
	g.limits = g.newLimits()
	g.tokens = g.newTokenService()
	g.feed = g.newFeed()
	if err := g.apply(cfg.File); err != nil {
		return nil, usageError{err}
	}
	g.addHandlers()
	g.metrics.CollectIDs(g.ids.series)
	g.metrics.CollectShared(g.sharedSeries)
	g.metrics.CollectReplicas(g.replicaSeries)
	for _, part := range panics.Parts() {
		g.metrics.CollectPanics(part.String(), func() uint64 { return panics.Count(part) })
	}
	if g.watcher != nil {
		g.metrics.CollectDiscovery(g.discoverySeries)
	}
	return g, nil
}

// openStore opens the configured Redis, or starts the embedded one.
func (g *gateway) openStore() error {
	address := g.cfg.RedisURL.Reveal()
	if address == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		g.embedded, address = server, server.URL()
	}
	store, err := redisstore.Open(redisstore.Options{
		URL: address, Prefix: g.cfg.KeyPrefix, Timeout: g.cfg.StoreTimeout, Observe: g.metrics.RedisCall,
		WaitReplicas: g.cfg.WaitReplicas, WaitTimeout: g.cfg.WaitTimeout,
	})
	if err != nil {
		return usageError{err}
	}
	g.store = store
	return nil
}

func (g *gateway) newKeyring() *tokens.Keyring {
	if g.cfg.TokenKey.IsSet() {
		return tokens.FixedKeyring(tokens.Key(g.cfg.TokenKey.Bytes()))
	}
	return tokens.NewKeyring(tokens.KeyringConfig{
		Store: g.store, Now: g.clock.Time, Longest: g.rules.Longest, Report: g.reportKeys,
	})
}

func (g *gateway) newTokenService() *tokens.Service {
	return tokens.NewService(tokens.Config{
		Store:    g.store,
		Keys:     g.keys,
		IDs:      g.ids,
		MintTime: g.scheme.Time,
		Worker:   tokens.WorkerOf(g.scheme),
		Now:      g.clock.Time,
		Timeout:  g.cfg.StoreTimeout,
		Unfit:    g.claim.unfit,

		Rules:        g.rules,
		Confirmed:    func() (time.Time, bool) { return g.feed.Confirmed() },
		Clients:      g.clients,
		CacheTTL:     g.cfg.CacheTTL,
		CacheSize:    g.cfg.CacheSize,
		FailStatic:   g.cfg.FailStatic,
		OnFailStatic: g.reportFailStatic,
		Unknown:      g.limits.unknown,

		Observer:  g.metrics,
		Decisions: g.metrics,
		DuplicateID: func(id idgen.ID) {
			g.log.Error().Stringer("token_id", id).Msg("an id was issued twice: two generators work under one worker number")
		},
	})
}

func (g *gateway) addHandlers() {
	g.oauth = &handlers.OAuth{
		Clients: g.clients, Tokens: g.tokens, Issuer: g.cfg.Issuer, Now: g.clock.Time,
		Failures: g.limits.failures, Rates: g.limits.rates,
	}
	g.metadata = &handlers.Metadata{Issuer: g.cfg.Issuer, Scopes: g.scopes}
	g.challenge = problem.Challenge{ResourceMetadata: g.metadata.ResourceURL()}
	g.decoder = &handlers.IDs{Scheme: g.scheme}
	g.admin = g.newAdminAPI()
	g.health = &handlers.Health{Readiness: g.readiness}
	g.forwarder = proxy.NewForwarder(proxy.Options{Watch: g.watch, Rates: g.limits.routes, Challenge: g.challenge})
}

// scopes returns every scope that a route asks for.
func (g *gateway) scopes() scope.List {
	var names []string
	for route := range g.router.Table().All() {
		names = append(names, route.Requirement.Scope.Names()...)
	}
	return scope.Of(names...)
}

// observation configures the access log. prefix goes before the route template,
// so that the metrics tell the listeners apart.
func (g *gateway) observation(prefix string) middleware.Observation {
	return middleware.Observation{
		Log:            g.log,
		Later:          g.access,
		TrustedProxies: g.cfg.TrustedProxies,
		Record: func(route, method string, status int, d time.Duration) {
			if route == "" {
				route = "none"
			}
			g.metrics.Request(prefix+route, method, status, d)
		},
	}
}

// reportRedis logs how Redis is doing when that changes.
func (g *gateway) reportRedis(h redisstore.Health) {
	if !h.Reachable {
		g.log.Error().Err(h.Err).Str("kind", h.Kind).Msg("Redis cannot be used: requests that need it are answered with 503")
		return
	}
	g.log.Info().Dur("round_trip", h.RoundTrip).Msg("Redis is reachable")
	if h.Evicts() {
		g.log.Warn().Str("maxmemory_policy", h.EvictionPolicy).
			Msg("Redis throws keys away when it is full, and live tokens with them: set maxmemory-policy noeviction")
	}
}

// reportKeys logs when reading the tag keys begins to fail, and when it works
// again.
func (g *gateway) reportKeys(err error) {
	if err != nil {
		g.log.Warn().Err(err).Msg("the tag keys cannot be read")
		return
	}
	g.log.Info().Msg("the tag keys are read")
}

// close gives back what newGateway took.
func (g *gateway) close() {
	g.router.Close()
	g.tokens.Close()
	g.limits.rates.Close()
	g.limits.routes.Close()
	if err := g.store.Close(); err != nil {
		g.log.Debug().Err(err).Msg("closing Redis")
	}
	if g.embedded != nil {
		g.embedded.Close()
	}
}

// listen opens a TCP listener.
func listen(ctx context.Context, address string) (*net.TCPListener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil //nolint:forcetypeassert // "tcp" gives nothing else
}
