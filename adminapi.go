package main

import (
	"time"

	"snowgate/handlers/admin"
	"snowgate/proxy"
	"snowgate/telemetry"
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
		shown := shownRoute(route)
		shown.Replicas = g.shownReplicas(route.Name)
		list = append(list, shown)
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

// shownReplicas lists the replicas of one route.
func (g *gateway) shownReplicas(route string) []admin.Replica {
	var list []admin.Replica
	for _, r := range g.router.Replicas(route) {
		shown := admin.Replica{
			Upstream: r.Upstream, Address: r.Address, Healthy: r.Healthy, Reason: r.Reason, InFlight: r.InFlight, Failures: r.Failures,
		}
		if !r.Changed.IsZero() {
			shown.Changed = r.Changed.UTC().Format(time.RFC3339)
		}
		list = append(list, shown)
	}
	return list
}

// replicaSeries is the state of all replicas, for the metrics.
func (g *gateway) replicaSeries() []telemetry.Replica {
	var list []telemetry.Replica
	for _, r := range g.router.AllReplicas() {
		list = append(list, telemetry.Replica{
			Upstream: r.Upstream, Address: r.Address, Healthy: r.Healthy, InFlight: float64(r.InFlight), Failures: float64(r.Failures),
		})
	}
	return list
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
