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
	"time"

	"github.com/rs/zerolog"

	"snowgate/config"
	"snowgate/handlers"
	"snowgate/handlers/admin"
	"snowgate/internal/panics"
	"snowgate/internal/problem"
	"snowgate/internal/telemetry"
	"snowgate/middleware"
	"snowgate/proxy"
	"snowgate/tokens/redisstore"
)

// Gateway is everything that one running gateway consists of. [New] puts it together.
type Gateway struct {
	*setup
	storage      *storage
	installation *installation
	ids          *ids
	shared       *shared
	routing      *routing
	limits       *limits
	endpoints    *endpoints
	monitor      *redisstore.Monitor
	drainer      *middleware.Drainer
	certificate  *certificate                                         // nil: the public listener speaks no TLS
	access       func(zerolog.Level, zerolog.LogObjectMarshaler) bool // takes the lines of requests; nil: log does
	whenReady    func()                                               // see Options; nil: nobody asks
}

// setup holds what every part of a gateway needs: its configuration, its log and its metrics.
type setup struct {
	cfg             config.Config
	version, commit string // of the program
	log             zerolog.Logger
	metrics         *telemetry.Metrics
}

// endpoints are the handlers of the gateway's own paths, and the forwarder of all others.
type endpoints struct {
	oauth     *handlers.OAuth
	metadata  *handlers.Metadata
	health    *handlers.Health
	admin     *admin.API
	challenge problem.Challenge
	forwarder *proxy.Forwarder
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

// newGateway makes the parts in an order in which each is handed only what is there already.
func newGateway(cfg config.Config, logger zerolog.Logger, version, commit string) (*Gateway, error) {
	s := &setup{cfg: cfg, version: version, commit: commit, log: logger, metrics: telemetry.New(version, commit)}
	g := &Gateway{setup: s, drainer: middleware.NewDrainer()}
	var err error
	if cfg.TLSCert != "" {
		if g.certificate, err = newCertificate(cfg, logger, s.metrics.CertificateExpires); err != nil {
			return nil, &ConfigError{err}
		}
	}
	if g.storage, err = openStorage(s); err != nil {
		return nil, err
	}
	if err := g.connect(); err != nil {
		g.storage.close()
		return nil, err
	}
	return g, nil
}

// connect makes the parts that need the storage.
func (g *Gateway) connect() (err error) {
	s, store := g.setup, g.storage.store
	g.installation = newInstallation(s, store)
	g.monitor = store.Monitor(redisstore.MonitorConfig{OnChange: g.storage.report, OnProbe: func(h redisstore.Health) {
		g.installation.noticeProbe(h)
		g.storage.noticeClock(h)
		g.storage.remark(h)
	}})
	if g.ids, err = newIDs(s, g.storage.clock); err != nil {
		return err
	}
	g.limits = newLimits(s, store)
	g.shared = newShared(s, g.storage, g.ids, g.installation, g.limits.unknown)
	g.routing = newRouting(s)
	if err := g.apply(s.cfg.File); err != nil {
		return &ConfigError{err}
	}
	g.endpoints = g.newEndpoints()
	g.collect()
	return nil
}

// collect registers the metrics that read the state of the parts at each scrape.
func (g *Gateway) collect() {
	g.metrics.CollectIDs(g.ids.series)
	g.metrics.CollectShared(g.shared.sharedSeries)
	for _, name := range redisstore.RemarkNames {
		g.metrics.CollectRemark(name, func() bool { return g.storage.hasRemark(g.monitor.Health(), name) })
	}
	g.metrics.CollectReplicas(g.routing.replicaSeries)
	for _, part := range panics.Parts() {
		g.metrics.CollectPanics(part.String(), func() uint64 { return panics.Count(part) })
	}
	if g.routing.watcher != nil {
		g.metrics.CollectDiscovery(g.routing.discoverySeries)
	}
}

func (g *Gateway) newEndpoints() *endpoints {
	metadata := &handlers.Metadata{
		Issuer: g.cfg.Issuer, Scopes: g.routing.scopes,
		RouteResources: g.routing.resources, RouteResource: g.routing.resource,
	}
	challenge := problem.Challenge{ResourceMetadata: metadata.ResourceURL()}
	return &endpoints{
		oauth: &handlers.OAuth{
			Clients: g.shared.clients, Tokens: g.shared.tokens, Issuer: g.cfg.Issuer, Now: g.storage.clock.Time,
			Failures: g.limits.failures, Rates: g.limits.rates,
		},
		metadata:  metadata,
		health:    &handlers.Health{Readiness: g.readiness},
		admin:     g.newAdminAPI(),
		challenge: challenge,
		forwarder: proxy.NewForwarder(proxy.Options{Watch: g.shared.watch, Rates: g.limits.routes, Challenge: challenge}),
	}
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

// close releases what newGateway acquired.
func (g *Gateway) close() {
	g.routing.router.Close()
	g.shared.close()
	g.limits.close()
	g.storage.close()
}

// Listen opens a TCP listener for [Gateway.Serve].
func Listen(ctx context.Context, address string) (*net.TCPListener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil //nolint:forcetypeassert // "tcp" gives nothing else
}
