package docker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/route"
)

// faultyEngine panics once when it is told to.
type faultyEngine struct {
	*fake
	lists, streams *atomic.Bool
}

func fault(due *atomic.Bool) {
	if due.CompareAndSwap(true, false) {
		panic("a fault of the test")
	}
}

func (f faultyEngine) containers(ctx context.Context) ([]container, error) {
	fault(f.lists)
	return f.fake.containers(ctx)
}

func (f faultyEngine) events(ctx context.Context, ready func(), handle func(event)) error {
	if f.streams.Load() {
		ready()
		fault(f.streams)
	}
	return f.fake.events(ctx, ready, handle)
}

// TestPanicsOfDiscovery: after a panic in discovery the routes stay, a later session continues, and
// finds what has changed meanwhile.
func TestPanicsOfDiscovery(t *testing.T) {
	var list, stream, publish atomic.Bool
	for name, due := range map[string]*atomic.Bool{"list": &list, "stream": &stream, "publish": &publish} {
		t.Run(name, func(t *testing.T) {
			run(t, func(tr *trial) {
				tr.after(time.Second)
				tr.set(is("1", 11))
				tr.event("start", "1", "")
				tr.after(quiet)
				tr.want("before", "a=1@11:8080")
				stacks, before := notePanics(t), panics.Count(panics.Discovery)
				due.Store(true)
				tr.set(is("1", 11), is("2", 12))
				if name == "stream" {
					tr.cut <- errors.New("lost") // the next stream panics
				} else {
					tr.event("start", "2", "")
				}
				if tr.after(quiet); name != "stream" { // the stream opens at the same time as the list
					tr.want("at once", "a=1@11:8080")
				}
				tr.after(5 * time.Second)
				tr.want("after a pause", "a=1@11:8080,2@12:8080")
				if due.Load() || panics.Count(panics.Discovery)-before != 1 || len(*stacks) != 1 || !strings.Contains((*stacks)[0], "docker.fault") {
					t.Errorf("%d panics were counted, and stacks told: %q", panics.Count(panics.Discovery)-before, *stacks)
				}
				if s := tr.watcher.Status(); !s.Up || s.Failures == 0 {
					t.Errorf("the state is %+v, want up again after a failure", s)
				}
			}, func(c *Config, f *fake) {
				c.connect = func() (engine, error) { return faultyEngine{f, &list, &stream}, nil }
				tell := c.Publish
				c.Publish = func(routes []route.Route) { fault(&publish); tell(routes) }
			})
		})
	}
}

// notePanics collects the stacks of panics.
func notePanics(t *testing.T) *[]string {
	t.Helper()
	panics.Forget()
	var stacks []string
	panics.Notify(func(p *panics.Panic) { stacks = append(stacks, p.Stack) })
	return &stacks
}

// TestPanicOverLabels: a panic while the labels of one container are read keeps no other container
// out. Before, each list ended with a panic, and no other container got its route.
func TestPanicOverLabels(t *testing.T) {
	run(t, func(tr *trial) {
		stacks := notePanics(t)
		tr.set(is("1", 11), is("2", 12, "panics", "yes", composeService, "b", "path", "/b"))
		tr.after(time.Second)
		tr.want("beside it", "a=1@11:8080")
		if tr.logged("a container is not taken into a route") != 1 || len(*stacks) != 1 {
			t.Errorf("the log is %s, and the stacks are %q", tr.log, *stacks)
		}
	}, func(c *Config, _ *fake) {
		c.Read = func(name string, labels map[string]string) (Reading, error) {
			if labels["panics"] != "" {
				panic("a fault of the test")
			}
			return read(name, labels)
		}
	})
}
