package main

import (
	"cmp"
	"time"

	"snowgate/handlers/admin"
	"snowgate/internal/telemetry"
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
		Discovery:  g.shownDiscovery(),
		Health:     g.adminHealth,
		MaxTTL:     g.cfg.TokenMaxTTL,
		Now:        g.clock.Time,
		Log:        g.log,
	}
}

// routeTable lists the routes in force for the admin API.
func (g *gateway) routeTable() []admin.Route {
	var list []admin.Route
	for _, route := range g.router.States() {
		shown := shownRoute(route.Route)
		shown.Changed = route.Since.UTC().Format(time.RFC3339)
		shown.Replicas = shownReplicas(route.Now)
		list = append(list, shown)
	}
	return list
}

func shownRoute(r *proxy.Route) admin.Route {
	shown := admin.Route{
		Name: r.Name, Source: cmp.Or(r.Source, sourceFile), Owner: r.Owner, Host: r.Host, Path: r.Path, Methods: r.Methods,
		Scopes: r.Requirement.Scope.Names(), Audience: r.Requirement.Audience, Public: r.Public, WebSocket: r.WebSocket,
	}
	for _, upstream := range r.Upstreams {
		shown.Upstreams = append(shown.Upstreams, upstream.Redacted())
	}
	return shown
}

func shownReplicas(states []proxy.ReplicaState) []admin.Replica {
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

// replicaSeries is the state of all replicas, for the metrics.
func (g *gateway) replicaSeries() []telemetry.Replica {
	var list []telemetry.Replica
	known := make(map[[2]string]int)
	for _, r := range g.router.AllReplicas() {
		one := telemetry.Replica{
			Upstream: r.Upstream, Address: r.Address, Healthy: r.Healthy, InFlight: float64(r.InFlight), Failures: float64(r.Failures),
			Ejections: make(map[string]float64, len(r.Ejections)),
		}
		for i, n := range r.Ejections {
			one.Ejections[proxy.EjectionReasons[i]] = float64(n)
		}
		// Routes that reach the same place by other transports have replicas of their own there.
		at, double := known[[2]string{r.Upstream, r.Address}]
		if !double {
			known[[2]string{r.Upstream, r.Address}] = len(list)
			list = append(list, one)
			continue
		}
		sum := &list[at]
		sum.Healthy = sum.Healthy && one.Healthy
		sum.InFlight += one.InFlight
		sum.Failures += one.Failures
		for reason, n := range one.Ejections {
			sum.Ejections[reason] += n
		}
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
