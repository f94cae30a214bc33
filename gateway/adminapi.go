package gateway

import (
	"cmp"
	"time"

	"snowgate/handlers"
	"snowgate/handlers/admin"
	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
)

// newAdminAPI puts the admin API together.
func (g *Gateway) newAdminAPI() *admin.API {
	return &admin.API{
		Clients:    g.shared.clients,
		Store:      g.shared.registry,
		Tokens:     g.shared.tokens,
		Rules:      g.shared.tokens,
		Keys:       g.shared.keys,
		IDs:        &handlers.IDs{Scheme: g.ids.scheme},
		RouteTable: g.routing.routeTable,
		Discovery:  g.routing.shownDiscovery(),
		Health:     g.adminHealth,
		MaxTTL:     g.cfg.TokenMaxTTL,
		Now:        g.storage.clock.Time,
		Log:        g.log,
	}
}

func shownRoute(r *route.Route) admin.Route {
	shown := admin.Route{
		Name: r.Name, Source: cmp.Or(r.Source, sourceFile), Owner: r.Owner, Host: r.Host, Path: r.Path, Methods: r.Methods,
		Scopes: r.Requirement.Scope.Names(), Audience: r.Requirement.Audience, Public: r.Public, WebSocket: r.WebSocket,
	}
	for _, upstream := range r.Upstreams {
		shown.Upstreams = append(shown.Upstreams, upstream.Redacted())
	}
	return shown
}

func shownReplicas(states []upstream.ReplicaState) []admin.Replica {
	var list []admin.Replica
	for _, r := range states {
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

// adminHealth is the state of this gateway for the admin API.
func (g *Gateway) adminHealth() admin.Health {
	redis := g.monitor.Health()
	return admin.Health{
		Readiness: g.readiness(),
		Version:   g.version,
		Commit:    g.commit,
		Redis: admin.RedisHealth{
			Reachable: redis.Reachable, RoundTrip: float64(redis.RoundTrip.Microseconds()) / 1000, Policy: redis.Settings.Policy,
			Remarks: g.storage.remarkTexts(redis),
		},
		IDs:      g.ids.report(),
		Revision: g.shared.rules.Revision(),
		Clients:  g.shared.clients.Len(),
		Rules:    g.shared.rules.Len(),
	}
}
