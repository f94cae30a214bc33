package engine_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// A service that is scaled up and down, and of which a replica is restarted, loses no
// request, neither on the route that its labels make nor on the one of the file, which
// looks its name up.
func TestScale(t *testing.T) {
	p := engine(t)
	others := p.bystander(t)
	labels := p.load(t, "/inventory/1", "inventory")
	name := p.load(t, "/by-name/inventory/1", "inventory")
	awaitOutcomes(t, labels, 50)
	awaitOutcomes(t, name, 50)

	begin := time.Now()
	p.scale(t, "inventory", 3)
	up := time.Now()
	for _, l := range []*load{labels, name} {
		eventually(t, patience, "all three are asked", func() bool { return len(responses(l.since(begin))) == 3 })
		t.Logf("%s: all three are asked %.1f s after they were started", l.url, time.Since(up).Seconds())
	}
	restarted := p.containers(t, "inventory")[0].ID
	docker(t, "restart", restarted)
	again := time.Now()
	// It went on for a while after it was told to end, but was asked no more.
	end := inspect(t, restarted)[0].State.FinishedAt
	last := lastBy(labels.before(end), host(restarted))
	t.Logf("%s: the last request is sent %v after it was told to end", labels.url, drainTime-end.Sub(last))
	if late := drainTime - end.Sub(last); late > leaveTime {
		t.Errorf("%s: a request is sent to it %v after it was told to end, want at most %v", labels.url, late, leaveTime)
	}
	for _, l := range []*load{labels, name} {
		eventually(t, patience, "the one that was restarted is asked", func() bool { return responses(l.since(again))[host(restarted)] > 0 })
		t.Logf("%s: it is asked again %.1f s after its restart", l.url, time.Since(again).Seconds())
	}
	p.scale(t, "inventory", 1)
	down := time.Now()
	left := host(p.only(t, "inventory").ID)
	for _, l := range []*load{labels, name} {
		awaitOutcomes(t, l, 100)
		outcomes := l.stop()
		t.Logf("%s: slowest %v; %s", l.url, slowest(outcomes), describe(outcomes, begin))
		if n := len(failures(outcomes)); n > 0 {
			t.Errorf("%s: %d requests failed", l.url, n)
		}
		if late := responses(l.since(down)); len(late) != 1 || late[left] == 0 {
			t.Errorf("%s: after the others are gone these answer: %v, want only %s", l.url, late, left)
		}
	}
	others.mustBeFine(t)
}

// A service of which no replica runs keeps its route.
func TestStoppedService(t *testing.T) {
	p := engine(t)
	others := p.bystander(t)
	p.compose(t, "stop", "inventory")
	got := p.get(t, "/inventory/1")
	if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("without a replica: %d, Retry-After %q, want 503 with Retry-After", got.StatusCode, got.Header.Get("Retry-After"))
	}
	p.compose(t, "start", "inventory")
	p.awaitStatus(t, "/inventory/1", http.StatusOK)
	others.mustBeFine(t)
}

// A container without a health check serves within a second of its start; when it is
// removed, its route goes with it.
func TestRouteAppears(t *testing.T) {
	p := engine(t)
	const tries = 3 // of which a machine that is busy may lose two
	for try := range tries {
		if got := p.get(t, "/new"); got.StatusCode != http.StatusNotFound {
			t.Fatalf("before there is a container: %d, want 404", got.StatusCode)
		}
		id := p.launch(t, "new", []string{"snowgate.enable", "true", "snowgate.path", "/new", "snowgate.scopes", "orders.read"})
		p.awaitStatus(t, "/new", http.StatusOK)
		took := time.Since(inspect(t, id)[0].State.StartedAt)
		t.Logf("200 after %v", took.Round(time.Millisecond))
		docker(t, "rm", "-f", id)
		p.awaitStatus(t, "/new", http.StatusNotFound)
		if took <= appearTime {
			return
		}
		if try == tries-1 {
			t.Errorf("the route appears %v after the start, want at most %v", took, appearTime)
		}
	}
}

// drainTime is how long the replicas go on: the flag -drain in docker-compose.labels.yml.
const drainTime = 2 * time.Second

// leaveTime is how soon a container that is told to end must get no request any more.
// It is milliseconds; a second later its health check would have it leave anyway.
const leaveTime = 500 * time.Millisecond

// appearTime is how soon a route must be there after the start of its container.
const appearTime = time.Second

// load starts a load of path, at which the service called name must answer.
func (p *project) load(t *testing.T, path, name string) *load {
	t.Helper()
	return startLoad(t, p.url+path, p.token, name, loadRate)
}

// bystander starts a light load of the service that no test touches.
func (p *project) bystander(t *testing.T) *load {
	t.Helper()
	l := startLoad(t, p.url+"/billing/1", p.token, "billing", quietRate)
	awaitOutcomes(t, l, loadWorkers)
	return l
}

// mustBeFine stops the load and fails the test if any of its requests failed.
func (l *load) mustBeFine(t *testing.T) {
	t.Helper()
	outcomes := l.stop()
	if n := len(failures(outcomes)); n > 0 {
		t.Errorf("%s, which nobody touched: %d requests failed; %s", l.url, n, describe(outcomes, outcomes[0].sent))
	}
}

// awaitStatus waits until path is answered with status.
func (p *project) awaitStatus(t *testing.T, path string, status int) {
	t.Helper()
	var got int
	eventually(t, patience, fmt.Sprintf("GET %s = %d", path, status), func() bool {
		got = p.get(t, path).StatusCode
		return got == status
	})
}
