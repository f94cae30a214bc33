package docker

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"snowgate/proxy/route"
)

// Watcher discovers routes. Its methods are safe for concurrent use.
type Watcher struct {
	cfg    Config
	made   time.Time
	status atomic.Pointer[Status]

	// Only Run uses the fields below.
	picture   picture
	out       map[string]mark // by container id
	begun     uint64          // number of lists begun
	drawn     uint64          // the number of the list in picture; 0: none
	assembler assembler
	serving   map[string]string // the network of each container, by container id
	published []route.Route
	reported  map[string]string // the reason of each rejected container, by container id
	next      Status
}

// mark says why a container that a list calls running is out of its route.
type mark struct {
	list  uint64    // lists up to this one are older than the event
	until time.Time // the container is ending until then; zero: it is not ending
}

// Status is the state of a watcher at one moment.
type Status struct {
	// Up says whether Docker can be reached, Changed when that last changed, and Err why Docker
	// cannot be reached.
	Up      bool
	Changed time.Time
	Err     error
	// Listed is the time of the last list; zero if there was none.
	Listed time.Time
	// Lists, Failures and Events count since the start: accepted lists, failed or lost connections,
	// and events.
	Lists, Failures, Events uint64
	// Containers are the containers with the label.
	Containers []Container
}

// New returns a watcher. It does not connect.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg.withDefaults(), made: time.Now(), out: make(map[string]mark), assembler: assembler{read: cfg.Read}}
	w.status.Store(new(Status))
	return w
}

// Status returns the current state.
func (w *Watcher) Status() Status { return *w.status.Load() }

// Settled reports whether a caller need not wait for discovery any longer: the first list has
// arrived, or settleTime has passed since [New].
func (w *Watcher) Settled() bool {
	return !w.Status().Listed.IsZero() || time.Since(w.made) > settleTime
}

// Run follows Docker until ctx ends. It must be called once.
func (w *Watcher) Run(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begin := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errClosed) && time.Since(begin) >= longLife {
			pause = firstPause / 2
			continue // a docker-proxy ends streams of that age; if Docker is gone, the next session fails
		}
		w.lost(err)
		if time.Since(begin) > longestPause {
			pause = firstPause
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)): //nolint:gosec // G404: so that gateways do not call all at once
		case <-ctx.Done():
			return
		}
	}
}

// lost records the end of a connection.
func (w *Watcher) lost(err error) {
	w.next.Failures++
	if w.next.Up || w.next.Err == nil {
		w.cfg.Log.Warn().Err(err).Str("docker_host", w.cfg.Host).Int("routes", len(w.published)).
			Msg("Docker cannot be reached: the routes discovered so far stay")
		w.next.Up, w.next.Changed = false, time.Now()
	}
	w.next.Err = err
	w.show()
}

// found records the arrival of a list.
func (w *Watcher) found() {
	w.next.Lists++
	w.next.Listed = time.Now()
	if !w.next.Up {
		w.cfg.Log.Info().Str("docker_host", w.cfg.Host).Int("containers", len(w.picture.containers)).
			Msg("Docker is reachable: routes are discovered from the labels of its containers")
		w.next.Up, w.next.Changed, w.next.Err = true, w.next.Listed, nil
	}
}

// show publishes the state for Status.
func (w *Watcher) show() {
	shown := w.next
	w.status.Store(&shown)
}

// note handles an event. It reports whether a list should follow.
func (w *Watcher) note(e event) bool {
	w.next.Events++
	_, ours := w.serving[e.container]
	if !e.enabled && !ours {
		return false
	}
	now := time.Now()
	switch m := w.out[e.container]; {
	case e.container == "":
	case !ours && len(w.out) >= maxMarks: // no room for a mark: the next list decides
	case e.action == "disconnect" && ours && w.serving[e.container] != e.network:
	case e.removes() == ending:
		w.out[e.container] = mark{w.begun, now.Add(stopGrace)}
	case e.removes() == untilNow:
		w.out[e.container] = mark{w.begun, m.until}
	case e.action == "start":
		w.out[e.container] = mark{list: m.list}
	}
	w.publish()
	return true
}

// resume records that events arrive again. The start of a container may have been missed in the
// meantime, so containers that were ending stay out only until the next list.
func (w *Watcher) resume() {
	for id, m := range w.out {
		w.out[id] = mark{list: m.list}
	}
}

// toldToEnd is the reason for a container that is ending.
const toldToEnd = "it was told to end"

// outBy returns the reason why the container id is out of its route, or "".
func (w *Watcher) outBy(id string) string {
	m, marked := w.out[id]
	switch {
	case marked && time.Now().Before(m.until):
		return toldToEnd
	case marked && w.drawn <= m.list:
		return "an event took it out a moment ago"
	}
	return ""
}

// listing is the result of a list.
type listing struct {
	picture
	number uint64
	err    error
}

// adopt replaces the picture with the list.
func (w *Watcher) adopt(l listing) {
	w.picture, w.drawn = l.picture, l.number
	for id, m := range w.out {
		if l.number > m.list && !time.Now().Before(m.until) {
			delete(w.out, id)
		}
	}
	w.found()
	w.publish()
}

// publish builds the routes, and puts them in force if they have changed.
func (w *Watcher) publish() {
	routes, candidates := w.assembler.assemble(w.picture, w.outBy)
	w.serving = make(map[string]string)
	w.next.Containers = nil
	for i := range candidates {
		c := &candidates[i]
		w.serving[c.id] = c.network
		w.next.Containers = append(w.next.Containers, c.shown())
	}
	w.report(candidates)
	if w.drawn > 0 && (w.published == nil || !reflect.DeepEqual(routes, w.published)) {
		w.tell(routes)
		w.cfg.Publish(routes)
		w.published = routes // only now: if Publish panics, it is called again
	}
	w.show()
}

// tell logs the differences between routes and the published ones.
func (w *Watcher) tell(routes []route.Route) {
	before := make(map[string]route.Route, len(w.published))
	for _, route := range w.published {
		before[route.Owner] = route
	}
	for _, route := range routes {
		old, known := before[route.Owner]
		delete(before, route.Owner)
		if known && reflect.DeepEqual(old, route) {
			continue
		}
		names := make([]string, len(route.Replicas))
		for i, r := range route.Replicas {
			names[i] = r.Name
		}
		w.cfg.Log.Info().Str("route", route.Name).Str("owner", route.Owner).Strs("replicas", names).Msg("a discovered route is new or has changed")
	}
	for _, route := range before {
		w.cfg.Log.Info().Str("route", route.Name).Str("owner", route.Owner).Msg("a discovered route is gone")
	}
}

// report logs each rejected container, once for each reason.
func (w *Watcher) report(candidates []candidate) {
	reported := make(map[string]string)
	for i := range candidates {
		c := &candidates[i]
		if c.state != Rejected {
			continue
		}
		reported[c.id] = c.reason
		if w.reported[c.id] != c.reason {
			w.cfg.Log.Warn().Str("container", c.name).Str("container_id", shortID(c.id)).Stringer("owner", c.owner()).Str("reason", c.reason).
				Msg("a container is not taken into a route")
		}
	}
	w.reported = reported
}

// needsNames reports whether a container has no address on a network of the gateway. Then the names
// of the networks decide whether it may get one, and go into the error.
func (p *picture) needsNames() bool {
	return slices.ContainsFunc(p.containers, func(c container) bool {
		_, _, err := c.place(c.labels[networkLabel], *p)
		return err != nil
	})
}

// list asks Docker for a new picture.
func (w *Watcher) list(ctx context.Context, e engine, number uint64) listing {
	l := listing{number: number}
	if l.containers, l.err = e.containers(ctx); l.err != nil {
		return l
	}
	if l.links, l.err = w.cfg.Links(); l.err != nil {
		return l
	}
	if l.needsNames() {
		names, err := e.networks(ctx)
		if err != nil {
			names = map[netip.Prefix]string{} // the error then shows subnets only
		}
		l.networks = names
	}
	return l
}
