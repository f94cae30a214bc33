package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"snowgate/proxy/route"
)

// fake is an engine in memory.
type fake struct {
	mu       sync.Mutex
	list     []container
	err      error         // of lists
	delay    time.Duration // of lists
	nets     map[netip.Prefix]string
	lists    int
	sessions int
	sink     func(event)
	cut      chan error
}

func (f *fake) containers(ctx context.Context) ([]container, error) {
	f.mu.Lock()
	f.lists++
	list, err, delay := append([]container{}, f.list...), f.err, f.delay
	f.mu.Unlock()
	select {
	case <-time.After(delay):
		return list, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fake) networks(context.Context) (map[netip.Prefix]string, error) { return f.nets, nil }

func (f *fake) events(ctx context.Context, ready func(), handle func(event)) error {
	f.mu.Lock()
	f.sessions++
	f.sink = handle
	f.mu.Unlock()
	ready()
	select {
	case err := <-f.cut:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) close() {}

// set replaces the list.
func (f *fake) set(list ...container) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = list
}

// is returns a container of a service that runs at 10.0.0.<host>.
func is(id string, host int, labels ...string) container {
	c := container{
		id: id, name: "shop-" + id, created: 1000, state: "running", ports: []uint16{8080},
		labels:    map[string]string{EnableLabel: "true", composeProject: "shop", composeService: "a", composeNumber: "1", "path": "/a"},
		endpoints: []endpoint{{"shop_net", []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", host))}}},
	}
	for i := 0; i < len(labels); i += 2 {
		c.labels[labels[i]] = labels[i+1]
	}
	return c
}

// read is a reader of labels for tests.
func read(name string, labels map[string]string) (Reading, error) {
	if labels["bad"] != "" {
		return Reading{}, errors.New("bad labels\nin two lines")
	}
	if told := labels[nameLabel]; told != "" {
		name = told
	}
	return Reading{Enabled: true, Scheme: "http", Network: labels[networkLabel], Route: route.Route{Name: name, Path: labels["path"]}}, nil
}

// trial is a watcher with a fake engine.
type trial struct {
	t *testing.T
	*fake
	watcher *Watcher
	log     *strings.Builder
	mu      sync.Mutex
	routes  []route.Route
	swaps   int
}

// run runs a trial in a synctest bubble. change may change its configuration.
func run(t *testing.T, story func(*trial), change ...func(*Config, *fake)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tr := &trial{t: t, fake: &fake{cut: make(chan error)}, log: new(strings.Builder)}
		cfg := Config{
			Host: "unix:///x", Read: read, Log: zerolog.New(tr.log),
			Links: func() ([]netip.Prefix, error) { return []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}, nil },
			Publish: func(routes []route.Route) {
				tr.mu.Lock()
				defer tr.mu.Unlock()
				tr.routes = routes
				tr.swaps++
			},
			connect: func() (engine, error) { return tr.fake, nil },
		}
		for _, f := range change {
			f(&cfg, tr.fake)
		}
		tr.watcher = New(cfg)
		var running sync.WaitGroup
		running.Go(func() { tr.watcher.Run(ctx) })
		defer running.Wait()
		defer cancel()
		story(tr)
	})
}

// after lets d pass.
func (tr *trial) after(d time.Duration) { time.Sleep(d); synctest.Wait() }

// event sends an event.
func (tr *trial) event(action, id, signal string) {
	tr.sink(event{action: action, container: id, signal: signal, network: "shop_net", enabled: true})
	synctest.Wait()
}

// want compares the routes in force: name=replica,replica for each.
func (tr *trial) want(why, routes string) {
	tr.t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var got []string
	for _, route := range tr.routes {
		var replicas []string
		for _, r := range route.Replicas {
			replicas = append(replicas, r.ID+"@"+strings.TrimPrefix(r.URL.Host, "10.0.0."))
		}
		got = append(got, route.Name+"="+strings.Join(replicas, ","))
	}
	if text := strings.Join(got, " "); text != routes {
		tr.t.Errorf("%s: routes %q, want %q", why, text, routes)
	}
}

// logged returns how often message was logged.
func (tr *trial) logged(message string) (n int) {
	for line := range strings.Lines(tr.log.String()) {
		var parsed struct{ Message string }
		if json.Unmarshal([]byte(line), &parsed) == nil && strings.HasPrefix(parsed.Message, message) {
			n++
		}
	}
	return n
}

func TestContainersComeAndGo(t *testing.T) {
	run(t, func(tr *trial) {
		tr.after(time.Second)
		tr.want("nothing", "")
		if !tr.watcher.Settled() || !tr.watcher.Status().Up {
			t.Error("a list of nothing does not settle it")
		}
		tr.set(is("1", 11))
		tr.event("start", "1", "")
		tr.after(quiet)
		tr.want("started", "a=1@11:8080")
		tr.set(is("1", 11), is("2", 12))
		tr.event("start", "2", "")
		tr.after(quiet)
		tr.want("scaled", "a=1@11:8080,2@12:8080")

		// The list still calls it running: it was told to stop, and finishes its requests.
		tr.event("kill", "2", "15")
		tr.want("told to end, at once", "a=1@11:8080")
		tr.after(10 * time.Second)
		tr.want("ten seconds later", "a=1@11:8080")
		// Docker sends the event before it updates the list.
		tr.event("die", "2", "")
		tr.after(time.Second)
		tr.want("dead, and listed as running", "a=1@11:8080")
		tr.event("start", "2", "")
		tr.after(quiet)
		tr.want("started again", "a=1@11:8080,2@12:8080")

		stopped := is("1", 11)
		stopped.state, stopped.endpoints[0].addresses = "exited", nil
		tr.set(stopped)
		tr.event("die", "1", "")
		tr.event("destroy", "2", "")
		tr.want("all ended, at once", "a=")
		tr.after(time.Second)
		tr.want("one stopped, the other removed", "a=")
		tr.set()
		tr.event("destroy", "1", "")
		tr.after(quiet)
		tr.want("removed", "")
	})
}

func TestSignals(t *testing.T) {
	for signal, out := range map[string]bool{
		"15": true, "9": true, "3": true, "SIGTERM": true, "2": true, "": true, "37": true,
		"1": false, "SIGHUP": false, "hup": false, "10": false, "12": false, "28": false, "WINCH": false,
	} {
		run(t, func(tr *trial) {
			tr.set(is("1", 11))
			tr.after(time.Second)
			tr.event("kill", "1", signal)
			want := "a=1@11:8080"
			if out {
				want = "a="
			}
			tr.want("signal "+signal, want)
			tr.after(stopGrace + resyncEvery)
			tr.want("it did not end by signal "+signal, "a=1@11:8080")
		})
	}
}

func TestRemovalsAreAtOnce(t *testing.T) {
	for _, action := range []string{"die", "stop", "destroy", "pause", "health_status: unhealthy", "disconnect"} {
		run(t, func(tr *trial) {
			tr.set(is("1", 11), is("2", 12))
			tr.after(time.Second)
			tr.event(action, "1", "")
			tr.want(action, "a=2@12:8080")
		})
	}
	for _, action := range []string{"start", "rename", "health_status: healthy", "exec_die"} {
		run(t, func(tr *trial) {
			tr.set(is("1", 11))
			tr.after(time.Second)
			tr.event(action, "1", "")
			tr.want(action, "a=1@11:8080")
		})
	}
	run(t, func(tr *trial) {
		tr.set(is("1", 11))
		tr.after(time.Second)
		tr.sink(event{action: "disconnect", container: "1", network: "another", enabled: true})
		synctest.Wait()
		tr.want("it left a network that is not used", "a=1@11:8080")
	})
}

// TestLateList: a list made before an event does not undo it, even if the list arrives later.
func TestLateList(t *testing.T) {
	run(t, func(tr *trial) {
		tr.set(is("1", 11), is("2", 12))
		tr.after(time.Second)
		tr.fake.mu.Lock()
		tr.delay = 300 * time.Millisecond
		tr.fake.mu.Unlock()
		tr.event("rename", "1", "")
		tr.after(quiet + 100*time.Millisecond) // the list is under way
		tr.set(is("1", 11))
		tr.event("pause", "2", "")
		tr.after(210 * time.Millisecond) // the list has arrived, with the container in it
		tr.want("the late list", "a=1@11:8080")
		tr.after(time.Second)
		tr.want("the next one", "a=1@11:8080")
	})
}

// TestDebounce: events that keep coming cause one list after patience. Events of other containers
// cause none.
func TestDebounce(t *testing.T) {
	run(t, func(tr *trial) {
		tr.after(time.Second)
		before := tr.lists
		for range 45 {
			tr.event("create", "x", "")
			tr.after(10 * time.Millisecond)
		}
		if tr.lists != before {
			t.Errorf("%d lists within 450 ms of events, want none", tr.lists-before)
		}
		tr.event("create", "x", "")
		tr.after(60 * time.Millisecond)
		if tr.lists != before+1 {
			t.Errorf("%d lists after %v, want 1", tr.lists-before, patience)
		}
		tr.after(time.Second)
		before = tr.lists
		tr.sink(event{action: "start", container: "of somebody else"})
		tr.after(time.Second)
		if tr.lists != before {
			t.Error("an event of a container without the label starts a list")
		}
	})
}

// TestLostEvent: a list makes up for a lost event within resyncEvery.
func TestLostEvent(t *testing.T) {
	run(t, func(tr *trial) {
		tr.after(time.Second)
		tr.set(is("1", 11))
		tr.after(resyncEvery)
		tr.want("no event told", "a=1@11:8080")
	})
}

func TestDockerGoesAway(t *testing.T) {
	run(t, func(tr *trial) {
		tr.set(is("1", 11))
		tr.after(time.Second)
		tr.fake.mu.Lock()
		tr.err = errSilent
		tr.fake.mu.Unlock()
		tr.cut <- io.EOF
		tr.after(time.Minute)
		tr.want("Docker is away", "a=1@11:8080")
		status := tr.watcher.Status()
		if status.Up || status.Err == nil || tr.logged("Docker cannot be reached") != 1 {
			t.Errorf("away: %+v, logged %d times", status, tr.logged("Docker cannot be reached"))
		}
		if tr.sessions < 10 || tr.sessions > 50 {
			t.Errorf("%d tries in a minute, want a pause of up to %v between them", tr.sessions, longestPause)
		}
		tr.fake.mu.Lock()
		tr.err = nil
		tr.fake.mu.Unlock()
		tr.set(is("2", 11))
		tr.after(longestPause)
		tr.want("Docker is back", "a=2@11:8080")
		if status := tr.watcher.Status(); !status.Up || status.Err != nil || tr.logged("Docker is reachable") != 2 {
			t.Errorf("back: %+v, logged %d times", status, tr.logged("Docker is reachable"))
		}
	})
}

// TestStartWhileAway: a container that started while the watcher was disconnected does not count as
// ending.
func TestStartWhileAway(t *testing.T) {
	run(t, func(tr *trial) {
		tr.set(is("1", 11))
		tr.after(time.Second)
		tr.event("die", "1", "")
		tr.cut <- io.EOF
		tr.after(time.Second)
		tr.want("listed again", "a=1@11:8080")
	})
}

func TestSettledWithoutDocker(t *testing.T) {
	run(t, func(tr *trial) {
		tr.fake.mu.Lock()
		tr.err = errSilent
		tr.fake.mu.Unlock()
		tr.after(settleTime)
		if tr.watcher.Settled() {
			t.Errorf("settled after %v without a list", settleTime)
		}
		tr.after(time.Second)
		if !tr.watcher.Settled() || tr.swaps != 0 {
			t.Errorf("settled %v and %d tables after %v without Docker, want it given up and none", tr.watcher.Settled(), tr.swaps, settleTime)
		}
	})
}

// TestStreamEndsOfAge: a stream that ends after a long life, as streams of docker-proxy do, is
// opened again without a warning. A stream that ends early is a failure.
func TestStreamEndsOfAge(t *testing.T) {
	run(t, func(tr *trial) {
		tr.set(is("1", 11))
		tr.after(time.Hour)
		tr.cut <- errClosed
		tr.after(time.Second)
		if s := tr.watcher.Status(); s.Failures != 0 || !s.Up || tr.sessions != 2 || strings.Contains(tr.log.String(), "cannot be reached") {
			t.Errorf("after an hour: %d sessions, %+v, log:\n%s", tr.sessions, s, tr.log)
		}
		tr.cut <- errClosed
		tr.after(10 * time.Second)
		if s := tr.watcher.Status(); s.Failures != 1 || tr.sessions != 3 {
			t.Errorf("after a second: %d sessions, %+v, want a failure", tr.sessions, s)
		}
	})
}
