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
	out       map[string]mark // by the id of a container
	begun     uint64          // lists, all in all
	drawn     uint64          // the list that picture comes from; 0: none
	assembler assembler
	serving   map[string]string // the network on which a container serves, by its id
	published []route.Route
	reported  map[string]string // why containers were rejected, by id
	next      Status
}

// mark says why a container that a list calls running is out.
type mark struct {
	list  uint64    // lists up to this one do not know yet what happened
	until time.Time // it is ending; zero: it is not
}

// Status is the state of a watcher at one moment.
type Status struct {
	// Up tells that Docker can be reached, Changed when that last changed, and Err why
	// it cannot.
	Up      bool
	Changed time.Time
	Err     error
	// Listed is when the picture was drawn, zero if none was yet.
	Listed time.Time
	// Lists, Failures and Events count since the start: lists that were taken over,
	// connections that failed or were lost, and events.
	Lists, Failures, Events uint64
	// Containers are those with the label, by name.
	Containers []Container
}

// New returns a watcher. It contacts nobody.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg.withDefaults(), made: time.Now(), out: make(map[string]mark), assembler: assembler{read: cfg.Read}}
	w.status.Store(new(Status))
	return w
}

// Status returns the state of the moment.
func (w *Watcher) Status() Status { return *w.status.Load() }

// Settled reports whether the routes are known: there was a list, or Docker has not
// given one for so long that it is better to go without.
func (w *Watcher) Settled() bool {
	return !w.Status().Listed.IsZero() || time.Since(w.made) > settleTime
}

// Run watches until ctx ends. It must be called once.
func (w *Watcher) Run(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		begin := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errClosed) && time.Since(begin) >= longLife {
			pause = firstPause / 2
			continue // a docker-proxy ends streams of that age; if Docker is gone, the next session tells
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

// lost notes the end of a connection.
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

// found notes that a list has come.
func (w *Watcher) found() {
	w.next.Lists++
	w.next.Listed = time.Now()
	if !w.next.Up {
		w.cfg.Log.Info().Str("docker_host", w.cfg.Host).Int("containers", len(w.picture.containers)).
			Msg("Docker is reachable: routes are discovered from the labels of its containers")
		w.next.Up, w.next.Changed, w.next.Err = true, w.next.Listed, nil
	}
}

// show makes the state visible to others.
func (w *Watcher) show() {
	shown := w.next
	w.status.Store(&shown)
}

// note takes an event over. It reports whether there should be a list.
func (w *Watcher) note(e event) bool {
	w.next.Events++
	_, ours := w.serving[e.container]
	if !e.enabled && !ours {
		return false
	}
	now := time.Now()
	switch m := w.out[e.container]; {
	case e.container == "":
	case !ours && len(w.out) >= maxMarks: // the list that comes must do
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

// resume notes that there are events again. That a container was started may have been
// missed meanwhile, so what is known of its end counts no more than a list does.
func (w *Watcher) resume() {
	for id, m := range w.out {
		w.out[id] = mark{list: m.list}
	}
}

// toldToEnd says why a container that is ending is out.
const toldToEnd = "it was told to end"

// outBy says why the container with that id is out, or nothing.
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

// adopt takes a list over.
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

// publish works the routes out and puts them in force, if they are others.
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
		w.published = routes // not before: if Publish panics, it is called again
	}
	w.show()
}

// tell logs what routes change of those before.
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

// report logs what was rejected, once for each reason.
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

// needsNames reports whether there is a container that has no address on a network of
// the gateway: then their names tell whether it may get one, and what to tell people.
func (p *picture) needsNames() bool {
	return slices.ContainsFunc(p.containers, func(c container) bool {
		_, _, err := c.place(c.labels[networkLabel], *p)
		return err != nil
	})
}

// list asks for a new picture.
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
			names = map[netip.Prefix]string{} // their subnets will do
		}
		l.networks = names
	}
	return l
}
