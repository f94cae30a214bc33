package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"snowgate/clients"
	"snowgate/config"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/middleware"
	"snowgate/problem"
	"snowgate/proxy"
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
	metrics *telemetry.Metrics

	embedded *embedded.Server // nil with a Redis of its own
	store    *redisstore.Store
	monitor  *redisstore.Monitor
	clock    *redislease.Clock
	scheme   idgen.Scheme
	ids      *ids
	blank    chan struct{} // Redis has lost what all gateways share
	keys     *tokens.Keyring
	tokens   *tokens.Service

	clients   *clients.Registry
	router    *proxy.Router
	forwarder *proxy.Forwarder
	drainer   *middleware.Drainer
	challenge problem.Challenge

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
	}
	var err error
	if g.scheme, err = idgen.NewScheme(cfg.IDLayout, cfg.Epoch); err != nil {
		return nil, usageError{err}
	}
	if err := g.apply(cfg.File); err != nil {
		return nil, usageError{err}
	}
	redis.SetLogger(redisLog{logger})
	if err := g.openStore(); err != nil {
		return nil, err
	}
	g.monitor = g.store.Monitor(redisstore.MonitorConfig{OnChange: g.reportRedis, OnProbe: g.noticeBlank})
	g.clock = redislease.NewClock(g.store.Client(), cfg.KeyPrefix)
	g.keys = g.newKeyring()
	g.tokens = g.newTokenService()
	g.addHandlers()
	g.metrics.CollectIDs(g.ids.series)
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
	return tokens.NewKeyring(tokens.KeyringConfig{Store: g.store, Now: g.clock.Time, Report: g.reportKeys})
}

func (g *gateway) newTokenService() *tokens.Service {
	return tokens.NewService(tokens.Config{
		Store:    g.store,
		Keys:     g.keys,
		IDs:      g.ids,
		MintTime: g.scheme.Time,
		Now:      g.clock.Time,
		Timeout:  g.cfg.StoreTimeout,
		Observer: g.metrics,
		DuplicateID: func(id idgen.ID) {
			g.log.Error().Stringer("token_id", id).Msg("an id was issued twice: two generators work under one worker number")
		},
	})
}

func (g *gateway) addHandlers() {
	g.oauth = &handlers.OAuth{Clients: g.clients, Tokens: g.tokens, Issuer: g.cfg.Issuer, Now: g.clock.Time}
	g.metadata = &handlers.Metadata{Issuer: g.cfg.Issuer, Scopes: g.scopes}
	g.challenge = problem.Challenge{ResourceMetadata: g.metadata.ResourceURL()}
	g.decoder = &handlers.IDs{Scheme: g.scheme}
	g.health = &handlers.Health{Readiness: g.readiness}
	g.forwarder = proxy.NewForwarder(proxy.Options{})
}

// apply makes a configuration file the one in force. Requests under way keep
// what they have.
func (g *gateway) apply(file config.File) error {
	routes := make([]proxy.Route, len(file.Routes))
	for i, r := range file.Routes {
		routes[i] = routeOf(r)
	}
	table, err := proxy.NewTable(routes, ownPaths)
	if err != nil {
		return err
	}
	g.clients.Replace(file.Clients)
	g.router.Swap(table)
	return nil
}

// routeOf translates a route of the file for the proxy.
func routeOf(r config.Route) proxy.Route {
	upstreams := make([]*url.URL, len(r.Upstreams))
	for i := range r.Upstreams {
		upstreams[i] = &r.Upstreams[i]
	}
	return proxy.Route{
		Name:              r.Name,
		Host:              r.Host,
		Path:              r.Path,
		Upstreams:         upstreams,
		StripPrefix:       r.StripPrefix,
		Methods:           r.Methods,
		Requirement:       tokens.Requirement{Scope: r.Scopes, Audience: r.Audience},
		Public:            r.Public,
		WebSocket:         r.WebSocket,
		PassToken:         r.PassToken,
		Timeout:           r.Timeout,
		MaxBody:           r.MaxBody,
		AllowEncodedSlash: r.AllowEncodedSlash,
	}
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
		TrustedProxies: g.cfg.TrustedProxies,
		Record: func(route, method string, status int, d time.Duration) {
			if route == "" {
				route = "none"
			}
			g.metrics.Request(prefix+route, method, status, d)
		},
	}
}

// readiness tells whether the gateway can decide, and whether it can issue.
func (g *gateway) readiness() handlers.Readiness {
	var state handlers.Readiness
	missing := func(what string, is bool) {
		if is {
			state.Missing = append(state.Missing, what)
		}
	}
	missing("draining", g.drainer.Draining())
	missing("redis", !g.monitor.Health().Reachable)
	missing("tag keys", !g.keys.Loaded())
	missing("epoch", g.ids.generator.Load() == nil)
	state.Ready = len(state.Missing) == 0

	h, started := g.ids.health()
	state.Issuing.Ready = h.Healthy && state.Ready
	if h.Err != nil {
		state.Issuing.Missing = h.Err.Error()
	}
	if started && h.Held {
		worker := g.scheme.Layout().WorkerIndex(h.Worker)
		state.Issuing.Worker = &worker
	}
	return state
}

// background runs everything that goes on beside the requests, until ctx ends.
// It returns early only with an error that makes it pointless to go on.
func (g *gateway) background(ctx context.Context, port string) error {
	group, ctx := errgroup.WithContext(ctx)
	run := func(f func(context.Context)) {
		group.Go(func() error { f(ctx); return nil })
	}
	run(g.monitor.Run)
	run(g.watchConfig)
	group.Go(func() error { return g.begin(ctx, port, run) })
	return group.Wait()
}

// begin starts what must not start before it is known that the ids of this
// deployment count time as this gateway does: tag keys and ids.
func (g *gateway) begin(ctx context.Context, port string, run func(func(context.Context))) error {
	if err := g.claimEpoch(ctx); err != nil {
		return err
	}
	for g.clock.Sync(ctx) != nil && pause(ctx, claimPause) {
	}
	run(g.clock.Run)
	run(g.keys.Run)
	source, err := workerSource(ctx, g.cfg, g.store, port, g.log)
	if err != nil {
		return err
	}
	generator, err := newGenerator(g.cfg, g.scheme, source, g.clock, g.log)
	if err != nil {
		return err
	}
	g.ids.generator.Store(generator)
	run(g.awaitReady)
	return g.restore(ctx)
}

// noticeBlank is told of every probe of Redis.
func (g *gateway) noticeBlank(h redisstore.Health) {
	if h.Reachable && h.Blank {
		select {
		case g.blank <- struct{}{}:
		default: // it is on its way already
		}
	}
}

// restore gives a Redis that has lost its data back what this gateway knows, so
// that gateways which start later understand its tokens. It ends with ctx, or
// when another gateway has recorded another epoch meanwhile.
func (g *gateway) restore(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.blank:
		}
		g.log.Info().Msg("Redis knows nothing of this deployment, it is new or has lost its data: it is told")
		if err := g.claimEpoch(ctx); err != nil {
			return err
		}
		if err := g.keys.Refresh(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn().Err(err).Msg("the tag keys cannot be given back")
		}
	}
}

// Pauses between looks at something that is about to happen.
const (
	claimPause = 100 * time.Millisecond
	readyPause = 10 * time.Millisecond
)

// claimEpoch records the epoch in Redis or compares it, and does not give up
// while Redis is away.
func (g *gateway) claimEpoch(ctx context.Context) error {
	for {
		err := g.store.ClaimEpoch(ctx, g.cfg.Epoch.UTC().Format(time.RFC3339Nano))
		var mismatch *redisstore.EpochMismatchError
		if err == nil || errors.As(err, &mismatch) {
			return err
		}
		if !pause(ctx, claimPause) {
			return nil
		}
	}
}

// awaitReady says in the log when the gateway can do its work.
func (g *gateway) awaitReady(ctx context.Context) {
	state := g.readiness()
	for ; !state.Issuing.Ready; state = g.readiness() {
		if !pause(ctx, readyPause) {
			return
		}
	}
	g.log.Info().Int64("worker", *state.Issuing.Worker).Str("layout", g.cfg.IDLayout.String()).
		Time("epoch", g.cfg.Epoch).Msg("ready: tokens are checked and issued")
	if g.whenReady != nil {
		g.whenReady()
	}
}

// pause waits for d; it returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchConfig reads the configuration file again when it changes and on SIGHUP.
func (g *gateway) watchConfig(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	g.metrics.Reloaded(time.Now(), nil)
	config.Watch(ctx, g.cfg, hangup, g.reload)
}

// reload puts a new configuration file in force, or says why it stays as it was.
func (g *gateway) reload(file config.File, err error) {
	if err == nil {
		err = g.apply(file)
	}
	g.metrics.Reloaded(time.Now(), err)
	if err != nil {
		g.log.Error().Err(err).Str("file", g.cfg.ConfigFile).Msg("the configuration file has faults; the state before stays in force")
		return
	}
	g.logNotes(file)
	g.log.Info().Str("file", g.cfg.ConfigFile).Int("clients", len(file.Clients)).Int("routes", len(file.Routes)).
		Msg("the configuration file was read again")
}

func (g *gateway) logNotes(file config.File) {
	for _, note := range file.Notes {
		g.log.Warn().Msg(note.Error())
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
