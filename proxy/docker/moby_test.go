package docker

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/proxy/docker/dockertest"
)

// connected returns an engine for a fake API.
func connected(t *testing.T, network string, timeout time.Duration) (*dockertest.Server, *moby) {
	t.Helper()
	s := dockertest.Start(t, network)
	m, err := newMoby(s.Host, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return s, m
}

func TestLists(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		s, m := connected(t, network, time.Minute)
		s.AddNetwork("shop_net", "10.0.0.0/24")
		s.Set(
			dockertest.Container{ID: "1", Name: "shop-a-1", Created: 7, Labels: map[string]string{"a": "b"}, Status: "Up 1 second (healthy)", Port: 80, Address: "10.0.0.2"},
			dockertest.Container{ID: "2", State: "exited"},
		)
		got, err := m.containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []container{
			{id: "1", name: "shop-a-1", created: 7, labels: map[string]string{"a": "b"}, state: "running", health: "healthy", ports: []uint16{80},
				endpoints: []endpoint{{"bridge", []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24")}}}},
			{id: "2", state: "exited", endpoints: []endpoint{{"bridge", nil}}},
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(container{}, endpoint{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		names, err := m.networks(t.Context())
		if err != nil || names[netip.MustParsePrefix("10.0.0.0/24")] != "shop_net" {
			t.Errorf("networks: %v %v", names, err)
		}
		for _, request := range s.Requests() {
			if method, _, _ := strings.Cut(request, " "); method != "GET" && request != "HEAD /_ping" {
				t.Errorf("Docker was asked %s", request)
			}
		}
	}
}

func TestStreamOfEvents(t *testing.T) {
	s, m := connected(t, "unix", time.Minute)
	ready, got, ended := make(chan struct{}), make(chan event), make(chan error)
	go func() {
		ended <- m.events(t.Context(), func() { close(ready) }, func(e event) { got <- e })
	}()
	<-ready
	s.Event("kill", "1", "signal", "15")
	if e := <-got; e != (event{action: "kill", container: "1", signal: "15", enabled: true}) {
		t.Errorf("kill: %+v", e)
	}
	s.Emit(`{"Type":"network","Action":"disconnect","Actor":{"ID":"n","Attributes":{"container":"1","name":"net"}}}` + "\n")
	if e := <-got; e != (event{action: "disconnect", container: "1", network: "net", enabled: true}) {
		t.Errorf("disconnect: %+v", e)
	}
	s.CutEvents()
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Errorf("the end: %v, want %v", err, errClosed)
	}
}

// TestBadResponses: a faulty or missing response of Docker becomes an error within the timeout.
func TestBadResponses(t *testing.T) {
	for fault, text := range map[dockertest.Fault]string{
		dockertest.Hang: "no response in time", dockertest.Broken: "it is broken", dockertest.Garbage: "EOF", dockertest.Huge: "",
	} {
		s, m := connected(t, "unix", 2*time.Second)
		s.SetFault(fault)
		if fault == dockertest.Huge {
			m.timeout = time.Minute // only the size is tested
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := m.containers(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), text) {
			t.Errorf("list, fault %d: %v, want %q", fault, err, text)
		}
		if err := m.events(ctx, func() {}, func(event) {}); err == nil || ctx.Err() != nil {
			t.Errorf("events, fault %d: %v", fault, err)
		}
		cancel()
	}
	s, m := connected(t, "unix", time.Minute)
	s.SetFault(dockertest.NoEvents)
	if err := m.events(t.Context(), func() { t.Error("events that were refused have begun") }, func(event) {}); err == nil {
		t.Error("events that are refused are no error")
	}
	s.Stop()
	if _, err := m.containers(t.Context()); err == nil {
		t.Error("nobody listens: no error")
	}
}

// TestGarbledEvents: an invalid event ends the stream; the events before it count.
func TestGarbledEvents(t *testing.T) {
	for _, garbage := range []string{"nonsense\n", `{"Type":7}` + "\n", `{"Action":"` + strings.Repeat("x", maxEvent)} {
		s, m := connected(t, "tcp", time.Minute)
		var mu sync.Mutex
		var actions []string
		ready, ended := make(chan struct{}), make(chan error)
		go func() {
			ended <- m.events(t.Context(), func() { close(ready) }, func(e event) {
				mu.Lock()
				defer mu.Unlock()
				actions = append(actions, e.action)
			})
		}()
		<-ready
		s.Event("start", "1")
		s.Emit(garbage)
		if err := <-ended; err == nil || !slices.Equal(actions, []string{"start"}) {
			t.Errorf("%.20q: %v, events %q", garbage, err, actions)
		}
	}
}
