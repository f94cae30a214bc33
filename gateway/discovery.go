package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"snowgate/config"
	"snowgate/handlers/admin"
	"snowgate/internal/request/exchange"
	"snowgate/internal/scope"
	"snowgate/internal/telemetry"
	"snowgate/proxy"
	"snowgate/proxy/docker"
	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
)

// sourceFile is the source of the routes of the configuration file.
const sourceFile = "file"

// newWatcher returns the watcher that discovers routes from Docker, nil if discovery is off.
func (r *routing) newWatcher() *docker.Watcher {
	if r.cfg.DockerHost == "" {
		return nil
	}
	return docker.New(docker.Config{
		Host:    r.cfg.DockerHost,
		Read:    r.readLabels,
		Publish: r.setDiscovered,
		Log:     r.log,
	})
}

// readLabels reads the labels of a container.
func (r *routing) readLabels(name string, labels map[string]string) (docker.Reading, error) {
	read, err := config.ReadLabels(name, labels)
	if err != nil {
		return docker.Reading{}, err
	}
	if read.Route.Public && !r.cfg.DockerAllowPublic {
		return docker.Reading{}, fmt.Errorf("%spublic: a label may make a route public only if the gateway has %sDOCKER_ALLOW_PUBLIC=true", config.LabelPrefix, config.Prefix)
	}
	if read.Route.PassToken && !r.cfg.DockerAllowPassToken {
		return docker.Reading{}, fmt.Errorf("%spass_token: a label may have a service get the callers' tokens only if the gateway has %sDOCKER_ALLOW_PASS_TOKEN=true", config.LabelPrefix, config.Prefix)
	}
	return docker.Reading{
		Enabled: read.Enabled, Route: routeOf(read.Route, &r.cfg), Scheme: read.Scheme, Port: read.Port, Network: read.Network,
	}, nil
}

// routing puts the routes of the file and those that were discovered together. The
// file's always count; one that was discovered is left out if it is in the way of
// another. It is safe for concurrent use.
type routing struct {
	*setup
	router  *proxy.Router
	watcher *docker.Watcher // nil: no routes are discovered

	mu         sync.Mutex
	file       *route.Table
	discovered []route.Route
	refused    map[string]refusedRoute // by owner
}

// refusedRoute is a discovered route that is not in force.
type refusedRoute struct {
	route.Route
	reason string
}

func newRouting(s *setup) *routing {
	r := &routing{setup: s, router: new(proxy.Router), file: new(route.Table)}
	r.router.Counter = func(route string) exchange.Counter { return s.metrics.Route(route) }
	r.router.Gone = s.metrics.RouteGone
	r.router.Checked = r.reportCheck
	r.watcher = r.newWatcher()
	return r
}

// reportCheck logs that the health check of a replica has begun to fail, or passes again.
func (r *routing) reportCheck(upstream, address string, err error) {
	if err != nil {
		r.log.Warn().Str("upstream", upstream).Str("address", address).Err(err).Msg("a health check fails: the replica gets no requests until it passes")
		return
	}
	r.log.Info().Str("upstream", upstream).Str("address", address).Msg("a health check passes again")
}

// setFile puts the routes of the file in force.
func (r *routing) setFile(table *route.Table) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.file = table
	r.swap()
}

// setDiscovered puts the routes that were discovered in force. They must not be
// changed any more.
func (r *routing) setDiscovered(routes []route.Route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discovered = routes
	r.swap()
}

// swap makes one table of both and puts it in force. r.mu is held.
func (r *routing) swap() {
	table, refused := r.file.Extend(r.discovered)
	r.router.Swap(table)
	before := r.refused
	r.refused = make(map[string]refusedRoute, len(refused))
	for i, err := range refused {
		route := r.discovered[i]
		r.refused[route.Owner] = refusedRoute{route, err.Error()}
		if before[route.Owner].reason != err.Error() {
			r.log.Warn().Str("route", route.Name).Str("owner", route.Owner).Str("reason", err.Error()).
				Msg("a discovered route is not in force")
		}
	}
	for i, route := range r.discovered {
		if _, was := before[route.Owner]; was && refused[i] == nil {
			r.log.Info().Str("route", route.Name).Str("owner", route.Owner).Msg("a discovered route is in force again")
		}
	}
}

// refusals returns the routes that are not in force, in the order of their names.
func (r *routing) refusals() []admin.RefusedRoute {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []admin.RefusedRoute
	for _, one := range r.refused {
		list = append(list, admin.RefusedRoute{Name: one.Name, Owner: one.Owner, Reason: one.reason})
	}
	slices.SortFunc(list, func(a, b admin.RefusedRoute) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
	return list
}

// shownDiscovery returns the function that reports discovery to the admin API, nil if there is
// none.
func (r *routing) shownDiscovery() func() admin.Discovery {
	if r.watcher == nil {
		return nil
	}
	return func() admin.Discovery {
		status := r.watcher.Status()
		shown := admin.Discovery{Source: docker.Source, Up: status.Up, Changed: rfc3339(status.Changed), Listed: rfc3339(status.Listed), Refused: r.refusals()}
		if status.Err != nil {
			shown.Error = status.Err.Error()
		}
		for _, c := range status.Containers {
			shown.Containers = append(shown.Containers, admin.Container{
				ID: c.ID, Name: c.Name, Owner: c.Owner, Route: c.Route, Address: c.Address, State: string(c.State), Reason: c.Reason,
			})
		}
		return shown
	}
}

// rfc3339 writes a time for the admin API; nothing for the zero time.
func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// discoverySeries is the state of discovery, for the metrics.
func (r *routing) discoverySeries() telemetry.Discovery {
	status := r.watcher.Status()
	series := telemetry.Discovery{
		Up: status.Up, Listed: status.Listed, Lists: float64(status.Lists), Failures: float64(status.Failures), Events: float64(status.Events),
		Refused: float64(len(r.refusals())), Containers: make(map[string]float64),
	}
	for _, state := range []docker.State{docker.Serving, docker.Waiting, docker.Rejected} {
		series.Containers[string(state)] = 0
	}
	for _, c := range status.Containers {
		series.Containers[string(c.State)]++
	}
	return series
}

// scopes returns every scope that a route asks for.
func (r *routing) scopes() scope.List {
	var names []string
	for route := range r.router.Table().All() {
		names = append(names, route.Requirement.Scope.Names()...)
	}
	return scope.Of(names...)
}

// routeTable lists the routes in force for the admin API.
func (r *routing) routeTable() []admin.Route {
	var list []admin.Route
	for _, route := range r.router.States() {
		shown := shownRoute(route.Route)
		shown.Changed = route.Since.UTC().Format(time.RFC3339)
		shown.Replicas = shownReplicas(route.Now)
		list = append(list, shown)
	}
	return list
}

// replicaSeries is the state of all replicas, for the metrics.
func (r *routing) replicaSeries() []telemetry.Replica {
	var list []telemetry.Replica
	known := make(map[[2]string]int)
	for _, replica := range r.router.AllReplicas() {
		one := telemetry.Replica{
			Upstream: replica.Upstream, Address: replica.Address, Healthy: replica.Healthy, InFlight: float64(replica.InFlight), Failures: float64(replica.Failures),
			Ejections: make(map[string]float64, len(replica.Ejections)),
		}
		for i, n := range replica.Ejections {
			one.Ejections[upstream.EjectionReasons[i]] = float64(n)
		}
		// Routes that reach the same place by other transports have replicas of their own there.
		at, double := known[[2]string{replica.Upstream, replica.Address}]
		if !double {
			known[[2]string{replica.Upstream, replica.Address}] = len(list)
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
