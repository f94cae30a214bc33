// Package gateway puts one gateway together and runs it.
//
// [New] connects the parts: the token service, the clients, the routes and the handlers of both
// listeners. It contacts nobody. [Gateway.Serve] runs the gateway until its context ends, and then
// shuts it down in good order. A gateway needs no process of its own: tests and the demo run one
// beside other code.
package gateway

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
	"snowgate/handlers"
	"snowgate/handlers/admin"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/internal/panics"
	"snowgate/internal/scope"
	"snowgate/internal/telemetry"
	"snowgate/middleware"
	"snowgate/problem"
	"snowgate/proxy"
	"snowgate/proxy/docker"
	"snowgate/request/exchange"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/redisstore/embedded"
)

// Gateway is everything that one running gateway consists of. [New] puts it together.
type Gateway struct {
	cfg     config.Config
	version string
	commit  string
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

// Options are what a gateway needs beside its configuration.
type Options struct {
	Version, Commit string // of the program: for the log, the metrics and the admin API
	Logs            *Logs  // needed; the caller closes it after the gateway has stopped
	WhenReady       func() // called once, when the gateway can validate and issue tokens; may be nil
}

// ConfigError says that the configuration cannot be used: the gateway does not start before
// somebody has changed it.
type ConfigError struct{ Err error }

// Error returns the text of the error that it wraps.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the configuration.
func (e *ConfigError) Unwrap() error { return e.Err }

// New puts a gateway together. It contacts nobody. Errors about the configuration are a
// [*ConfigError].
func New(cfg config.Config, o Options) (*Gateway, error) {
	g, err := newGateway(cfg, o.Logs.main, o.Version, o.Commit)
	if err != nil {
		return nil, err
	}
	g.logTo(o.Logs)
	g.whenReady = o.WhenReady
	return g, nil
}

func newGateway(cfg config.Config, logger zerolog.Logger, version, commit string) (*Gateway, error) {
	g := &Gateway{
		cfg:     cfg,
		version: version,
		commit:  commit,
		log:     logger,
		metrics: telemetry.New(version, commit),
		clients: clients.NewRegistry(cfg.TokenTTL),
		router:  new(proxy.Router),
		drainer: middleware.NewDrainer(),
		ids:     new(ids),
		blank:   make(chan struct{}, 1),
		refused: make(chan error, 1),
	}
	g.claim.configured = InstallationOf(cfg)
	g.router.Counter = func(route string) exchange.Counter { return g.metrics.Route(route) }
	g.router.Gone = g.metrics.RouteGone
	g.routing = newRouting(g.router, logger)
	g.watcher = g.newWatcher()
	var err error
	if g.scheme, err = idgen.NewScheme(cfg.IDLayout, cfg.Epoch); err != nil {
		return nil, &ConfigError{err}
	}
	if cfg.TLSCert != "" {
		if g.certificate, err = newCertificate(cfg, logger, g.metrics.CertificateExpires); err != nil {
			return nil, &ConfigError{err}
		}
	}
	redis.SetLogger(redisLog{logger})
	if err := g.openStore(); err != nil {
		return nil, err
	}
	g.monitor = g.store.Monitor(redisstore.MonitorConfig{OnChange: g.reportRedis, OnProbe: g.noticeProbe})
	g.clock = redislease.NewClock(g.store.Client(), cfg.KeyPrefix)
	g.ids.why = func(err error) error {
		return whyNoID(err, hostTime().Sub(g.clock.Time()), cfg.IDClock == config.ClockHost)
	}
	g.openRegistry()
	g.rules = g.newRules()
	g.keys = g.newKeyring()
	g.limits = g.newLimits()
	g.tokens = g.newTokenService()
	g.feed = g.newFeed()
	if err := g.apply(cfg.File); err != nil {
		return nil, &ConfigError{err}
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
func (g *Gateway) openStore() error {
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
		return &ConfigError{err}
	}
	g.store = store
	return nil
}

func (g *Gateway) newKeyring() *tokens.Keyring {
	if g.cfg.TokenKey.IsSet() {
		return tokens.FixedKeyring(tokens.Key(g.cfg.TokenKey.Bytes()))
	}
	return tokens.NewKeyring(tokens.KeyringConfig{
		Store: g.store, Now: g.clock.Time, Longest: g.rules.Longest, Report: g.reportKeys,
	})
}

func (g *Gateway) newTokenService() *tokens.Service {
	return tokens.NewService(tokens.Config{
		Store:    g.store,
		Scanner:  g.store,
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

func (g *Gateway) addHandlers() {
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
func (g *Gateway) scopes() scope.List {
	var names []string
	for route := range g.router.Table().All() {
		names = append(names, route.Requirement.Scope.Names()...)
	}
	return scope.Of(names...)
}

// observation configures the access log. prefix goes before the route template,
// so that the metrics tell the listeners apart.
func (g *Gateway) observation(prefix string) middleware.Observation {
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
func (g *Gateway) reportRedis(h redisstore.Health) {
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
func (g *Gateway) reportKeys(err error) {
	if err != nil {
		g.log.Warn().Err(err).Msg("the tag keys cannot be read")
		return
	}
	g.log.Info().Msg("the tag keys are read")
}

// close gives back what newGateway took.
func (g *Gateway) close() {
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

// Listen opens a TCP listener for [Gateway.Serve].
func Listen(ctx context.Context, address string) (*net.TCPListener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil //nolint:forcetypeassert // "tcp" gives nothing else
}
