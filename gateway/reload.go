package gateway

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"snowgate/config"
	"snowgate/proxy/route"
	"snowgate/tokens"
)

// apply makes a configuration file the one in force. Requests under way keep
// what they have.
func (g *Gateway) apply(file config.File) error {
	routes := make([]route.Route, len(file.Routes))
	for i, r := range file.Routes {
		routes[i] = routeOf(r, &g.cfg)
	}
	table, err := route.NewTable(routes, ownPaths)
	if err != nil {
		return err
	}
	configured, err := g.shared.configuredClients(file)
	if err != nil {
		return err
	}
	if err := g.shared.clients.ReplaceFile(configured); err != nil {
		return err
	}
	g.routing.setFile(table)
	g.shared.tokens.ClientsChanged()
	return nil
}

// routeOf translates a route of the file for the proxy.
func routeOf(r config.Route, cfg *config.Config) route.Route {
	resource := resourceOf(cfg.Issuer, r)
	upstreams := make([]*url.URL, len(r.Upstreams))
	for i := range r.Upstreams {
		upstreams[i] = &r.Upstreams[i]
	}
	var health *route.HealthCheck
	if !r.Health.IsZero() {
		health = &route.HealthCheck{Path: r.Health.Path, Interval: r.Health.Interval, Timeout: r.Health.Timeout}
	}
	return route.Route{
		Name:              r.Name,
		Source:            sourceFile,
		Host:              r.Host,
		Path:              r.Path,
		Upstreams:         upstreams,
		StripPrefix:       r.StripPrefix,
		Methods:           r.Methods,
		Requirement:       tokens.Requirement{Scope: r.Scopes, Audience: cmp.Or(r.Audience, resource.ID)},
		Resource:          resource,
		Public:            r.Public,
		Standard:          cmp.Or(r.Transport, cfg.Transport) == config.TransportStandard,
		WebSocket:         r.WebSocket,
		PassToken:         r.PassToken,
		Timeout:           r.Timeout,
		MaxBody:           r.MaxBody,
		AllowEncodedSlash: r.AllowEncodedSlash,
		Balance:           route.Balance(r.Balance),
		Health:            health,
		MaxInFlight:       r.MaxInFlight,
		Rate:              r.Rate,
		ClientRate:        r.ClientRate,
		AddPrefix:         r.AddPrefix,
		EditRequest:       route.Edits(r.EditRequest),
		EditResponse:      route.Edits(r.EditResponse),
		HostHeader:        r.HostHeader,
		UpstreamHost:      !r.PreserveHost && r.HostHeader == "",
		CORS:              corsOf(r.CORS),
	}
}

func corsOf(c config.CORS) *route.CORS {
	if c.IsZero() {
		return nil
	}
	said := route.CORS(c)
	return &said
}

// watchConfig reads the configuration file again when it changes and on SIGHUP.
func (g *Gateway) watchConfig(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	g.metrics.Reloaded(time.Now(), nil)
	config.Watch(ctx, g.cfg, hangup, g.reload)
}

// reload puts a new configuration file in force, or says why it stays as it was.
func (g *Gateway) reload(file config.File, err error) {
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

func (g *Gateway) logNotes(file config.File) {
	for _, note := range file.Notes {
		g.log.Warn().Msg(note.Error())
	}
}
