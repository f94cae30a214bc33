package main

import (
	"snowgate/handlers/admin"
	"snowgate/proxy"
)

// newAdminAPI puts the admin API together.
func (g *gateway) newAdminAPI() *admin.API {
	return &admin.API{
		Clients:    g.clients,
		Store:      g.registry,
		Tokens:     g.tokens,
		Rules:      g.tokens,
		Keys:       g.keys,
		IDs:        g.decoder,
		RouteTable: g.routeTable,
		Health:     g.adminHealth,
		MaxTTL:     g.cfg.TokenMaxTTL,
		Now:        g.clock.Time,
		Log:        g.log,
	}
}

// routeTable lists the routes in force for the admin API.
func (g *gateway) routeTable() []admin.Route {
	var list []admin.Route
	for route := range g.router.Table().All() {
		list = append(list, shownRoute(route))
	}
	return list
}

func shownRoute(r *proxy.Route) admin.Route {
	shown := admin.Route{
		Name: r.Name, Source: "file", Host: r.Host, Path: r.Path, Methods: r.Methods,
		Scopes: r.Requirement.Scope.Names(), Audience: r.Requirement.Audience, Public: r.Public, WebSocket: r.WebSocket,
	}
	for _, upstream := range r.Upstreams {
		shown.Upstreams = append(shown.Upstreams, upstream.Redacted())
	}
	return shown
}

// adminHealth is the state of this gateway for the admin API.
func (g *gateway) adminHealth() admin.Health {
	version, commit := buildVersion()
	redis := g.monitor.Health()
	return admin.Health{
		Readiness: g.readiness(),
		Version:   version,
		Commit:    commit,
		Redis: admin.RedisHealth{
			Reachable: redis.Reachable, RoundTrip: float64(redis.RoundTrip.Microseconds()) / 1000, Policy: redis.EvictionPolicy,
		},
		Revision: g.rules.Revision(),
		Clients:  g.clients.Len(),
		Rules:    g.rules.Len(),
	}
}
