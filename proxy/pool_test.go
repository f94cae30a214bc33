package proxy_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/proxy/route"
)

const unavailableResponse = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

// silence reads a request and closes the connection without a response.
func silence(net.Conn, string) bool { return false }

// testClock is a clock that tests move.
type testClock struct{ now atomic.Int64 }

func newTestClock() *testClock {
	c := new(testClock)
	c.now.Store(time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *testClock) time() time.Time { return time.Unix(0, c.now.Load()) }

func (c *testClock) advance(d time.Duration) { c.now.Add(int64(d)) }

func several(us ...*url.URL) route.Route {
	return route.Route{Name: "public", Path: "/public", Upstreams: us, Public: true}
}

// statuses asks n times and returns the status codes that came back.
func (g *gateway) statuses(t testing.TB, n int, raw string) (codes []int) {
	t.Helper()
	for range n {
		response, _ := g.ask(t, raw)
		codes = append(codes, response.StatusCode)
	}
	return codes
}

func (g *gateway) swap(t testing.TB, routes ...route.Route) {
	t.Helper()
	table, err := route.NewTable(routes, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.router.Swap(table)
}

// eventually waits until ok reports true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patienceOfTests); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestDeadReplicaIsSteppedAround: nothing was sent to who cannot be connected to,
// so no request needs to fail for it, whatever its method and body.
func TestDeadReplicaIsSteppedAround(t *testing.T) {
	alive := newUpstream(t, says(okResponse))
	dead := &url.URL{Scheme: "http", Host: closedPort(t)}
	g := newGateway(t, gatewayOptions{}, several(dead, alive.url))
	for range 8 {
		for _, raw := range []string{
			get("/public", ""),
			"POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
		} {
			if response, body := g.ask(t, raw); response.StatusCode != http.StatusOK {
				t.Fatalf("%.4s = %d %s", raw, response.StatusCode, body)
			}
			if got := alive.received(t); strings.HasSuffix(raw, "hello") && !strings.HasSuffix(got, "hello") {
				t.Errorf("the body was lost on the way: %q", got)
			}
		}
	}
	states := g.router.Replicas("public")
	if len(states) != 2 || states[0].Healthy || states[0].Failures != 3 || states[0].Reason == "" || states[0].Changed.IsZero() || !states[1].Healthy {
		t.Errorf("states: %+v, want the first one out after 3 failures", states)
	}
}

// TestBrokenResponsesTakeOut: after three in a row, and back through a half-open probe
// after a pause that doubles.
func TestBrokenResponsesTakeOut(t *testing.T) {
	clock := newTestClock()
	var well atomic.Bool
	bad := newUpstream(t, func(conn net.Conn, request string) bool {
		return well.Load() && says(okResponse)(conn, request)
	})
	g := newGateway(t, gatewayOptions{now: clock.time}, several(bad.url, newUpstream(t, says(okResponse)).url))
	asked := func(n, want int, when string) {
		t.Helper()
		before := len(bad.requests)
		g.statuses(t, n, get("/public", ""))
		if got := len(bad.requests) - before; got != want {
			t.Fatalf("%s: the replica got %d requests of %d, want %d", when, got, n, want)
		}
	}
	asked(6, 3, "at first")
	asked(6, 0, "taken out")
	clock.advance(999 * time.Millisecond)
	asked(6, 0, "just before the pause is over")
	clock.advance(time.Millisecond)
	asked(6, 1, "after the first pause")
	clock.advance(time.Second)
	asked(6, 0, "in the second pause, which is longer")
	clock.advance(time.Second)
	well.Store(true)
	asked(1, 1, "after the second pause")
	asked(6, 3, "after a good answer")
}

// TestPauseHasABound: a replica that is back is found within 30 s.
func TestPauseHasABound(t *testing.T) {
	clock := newTestClock()
	bad := newUpstream(t, silence)
	g := newGateway(t, gatewayOptions{now: clock.time}, several(bad.url, newUpstream(t, says(okResponse)).url))
	g.statuses(t, 6, get("/public", ""))
	for i := range 12 {
		clock.advance(30 * time.Second)
		before := len(bad.requests)
		g.statuses(t, 3, get("/public", ""))
		if got := len(bad.requests) - before; got != 1 {
			t.Fatalf("probe %d: %d requests, want 1", i, got)
		}
	}
}

// TestFailingFleetSpeaksForItself: when all replicas fail, clients are told what they say, or 502,
// and never that none is healthy.
func TestFailingFleetSpeaksForItself(t *testing.T) {
	a, b := newUpstream(t, says(unavailableResponse)), newUpstream(t, says(unavailableResponse))
	g := newGateway(t, gatewayOptions{}, several(a.url, b.url))
	for range 20 {
		if response, _ := g.ask(t, get("/public", "")); response.Header.Get("Content-Type") != "" || response.StatusCode != 503 {
			t.Fatalf("%d %v, want the 503 of the service", response.StatusCode, response.Header)
		}
	}
	dead := func() *url.URL { return &url.URL{Scheme: "http", Host: closedPort(t)} }
	g = newGateway(t, gatewayOptions{}, several(dead(), dead()))
	for _, code := range g.statuses(t, 20, get("/public", "")) {
		if code != http.StatusBadGateway {
			t.Fatalf("nobody can be reached: %d, want 502", code)
		}
	}
}

// TestOneEndpointDoesNotEjectReplicas: whatever clients send to an endpoint that fails, in any
// order, every other request is answered, and no replica is taken out.
func TestOneEndpointDoesNotEjectReplicas(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "it counts many requests, and each takes longer")
	script := func(conn net.Conn, request string) bool {
		if strings.HasPrefix(request, "GET /public/bad ") {
			return says(unavailableResponse)(conn, request)
		}
		return neverOr(says(okResponse))(conn, request)
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		a, b := newUpstream(t, script), newUpstream(t, script)
		spec := several(a.url, b.url)
		spec.Timeout = 20 * time.Millisecond
		g := newGateway(t, gatewayOptions{}, spec)
		for range 20 {
			path := "/public/bad"
			switch random.IntN(40) {
			case 0:
				path = "/public/never"
			default:
				if random.IntN(2) == 0 {
					path = "/public/good"
				}
			}
			response, body := g.ask(t, get(path, ""))
			if path == "/public/good" && response.StatusCode >= 500 && response.StatusCode != 504 || strings.Contains(body, "No replica") {
				t.Fatalf("seed %d: %s = %d %s", seed, path, response.StatusCode, body)
			}
		}
		for _, state := range g.router.Replicas("public") {
			if !state.Healthy {
				t.Fatalf("seed %d: %+v, want it in use", seed, state)
			}
		}
		g.Close()
	}
}

// TestOnlyReplicaIsNeverTakenOut: its own responses tell more than ours.
func TestOnlyReplicaIsNeverTakenOut(t *testing.T) {
	service := newUpstream(t, says(unavailableResponse))
	g := newGateway(t, gatewayOptions{}, public(service.url))
	g.statuses(t, 10, get("/public", ""))
	if len(service.requests) != 10 || !g.router.Replicas("public")[0].Healthy {
		t.Errorf("the only replica got %d requests of 10", len(service.requests))
	}
	dead := newGateway(t, gatewayOptions{}, public(&url.URL{Scheme: "http", Host: closedPort(t)}))
	for _, code := range dead.statuses(t, 10, get("/public", "")) {
		if code != http.StatusBadGateway {
			t.Errorf("a service that cannot be reached = %d, want 502", code)
		}
	}
}

// TestWhoLeavesSaysNothing: a client that hangs up is no failure of the replica
// that it had to wait for, and does not use the probe up.
func TestWhoLeavesSaysNothing(t *testing.T) {
	clock := newTestClock()
	var hang atomic.Bool
	slow := newUpstream(t, func(conn net.Conn, _ string) bool {
		if hang.Load() {
			_, _ = conn.Read(make([]byte, 1)) // until the gateway hangs up
			return false
		}
		return false
	})
	g := newGateway(t, gatewayOptions{now: clock.time}, several(slow.url, newUpstream(t, says(okResponse)).url))
	g.statuses(t, 6, get("/public", ""))
	hang.Store(true)
	clock.advance(time.Second)
	for len(slow.requests) > 0 {
		<-slow.requests
	}
	probe := dial(t, g.address())
	probe.send(get("/public", ""))
	slow.received(t)
	probe.Close()
	for line, _ := g.log.next(t); line.Status != 499; line, _ = g.log.next(t) {
	}
	if state := g.router.Replicas("public")[0]; state.Failures != 3 || state.InFlight != 0 {
		t.Errorf("after a client that left: %+v, want 3 failures and nothing in flight", state)
	}
	hang.Store(false)
	clock.advance(time.Second)
	g.statuses(t, 1, get("/public", ""))
	if len(slow.requests) != 1 {
		t.Error("nobody probes any more")
	}
}

func TestHealthSurvivesSwap(t *testing.T) {
	bad, good := newUpstream(t, silence), newUpstream(t, says(okResponse))
	spec := several(bad.url, good.url)
	g := newGateway(t, gatewayOptions{now: newTestClock().time}, spec)
	g.statuses(t, 6, get("/public", ""))
	spec.StripPrefix = true
	g.swap(t, spec)
	g.statuses(t, 6, get("/public", ""))
	if len(bad.requests) != 3 {
		t.Errorf("after a reload the replica that was out got %d requests, want none", len(bad.requests)-3)
	}
	g.swap(t)
	g.swap(t, spec)
	g.statuses(t, 2, get("/public", ""))
	if len(bad.requests) < 4 { // a request that is sent again takes a turn too
		t.Error("an upstream that no table named is remembered")
	}
}

func TestLeastInFlight(t *testing.T) {
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	slow := newUpstream(t, func(conn net.Conn, _ string) bool {
		<-release
		_, err := io.WriteString(conn, okResponse)
		return err == nil
	})
	quick := newUpstream(t, says(okResponse))
	spec := several(slow.url, quick.url)
	spec.Balance = route.LeastInFlight
	g := newGateway(t, gatewayOptions{}, spec)
	waiting := dial(t, g.address())
	waiting.send(get("/public", ""))
	slow.received(t)
	for range 6 {
		g.statuses(t, 1, get("/public", ""))
		eventually(t, "the answer is out", func() bool { return g.router.Replicas("public")[1].InFlight == 0 })
	}
	if len(quick.requests) != 6 || g.router.Replicas("public")[0].InFlight != 1 {
		t.Errorf("the idle replica got %d requests of 6; states %+v", len(quick.requests), g.router.AllReplicas())
	}
	let()
	waiting.answer("GET")
	eventually(t, "nothing in flight", func() bool { return g.router.Replicas("public")[0].InFlight == 0 })
}

// TestOneRetry: of what may have been sent already, only idempotent requests
// without a body are sent again, once, to another replica.
func TestOneRetry(t *testing.T) {
	tests := []struct {
		raw    string
		status int
		why    string
	}{
		{get("/public", ""), 200, "idempotent"},
		{"DELETE /public HTTP/1.1\r\nHost: h\r\n\r\n", 200, "idempotent, though not safe"},
		{"PUT /public HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 200, "idempotent, and the body is empty"},
		{"POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 502, "not idempotent"},
		{"POST /public HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n", 502, "whether the service knows keys, nobody knows"},
		{"PATCH /public HTTP/1.1\r\nHost: h\r\n\r\n", 502, "not idempotent"},
		{"PUT /public HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 502, "the body is gone"},
		{"GET /public HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 502, "the body is gone"},
	}
	for _, test := range tests {
		first := newUpstream(t, silence)
		second := newUpstream(t, says(okResponse))
		g := newGateway(t, gatewayOptions{}, several(first.url, second.url))
		response, _ := g.ask(t, test.raw)
		want := 0
		if test.status == http.StatusOK {
			want = 1
		}
		if response.StatusCode != test.status || len(first.requests) != 1 || len(second.requests) != want {
			t.Errorf("%.60q = %d, sent %d and %d times, want %d, 1 and %d: %s",
				test.raw, response.StatusCode, len(first.requests), len(second.requests), test.status, want, test.why)
		}
	}
	var all []*testService
	var urls []*url.URL
	for range 4 {
		one := newUpstream(t, silence)
		all, urls = append(all, one), append(urls, one.url)
	}
	g := newGateway(t, gatewayOptions{}, several(urls...))
	g.ask(t, get("/public", ""))
	sent := 0
	for _, one := range all {
		sent += len(one.requests)
	}
	if sent != 2 {
		t.Errorf("no replica answers: the request was sent %d times, want twice", sent)
	}
}

// TestResponsesAreNotRetried: neither what a service says, nor what it began to
// say, nor that it took too long.
func TestResponsesAreNotRetried(t *testing.T) {
	for _, s := range []script{
		saysAndCloses(unavailableResponse),
		saysAndCloses("HTTP/1.1 2"),
		saysAndCloses("garbage\r\n\r\n"),
		saysAndCloses("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
		func(conn net.Conn, _ string) bool { _, _ = conn.Read(make([]byte, 1)); return false },
	} {
		first, second := newUpstream(t, s), newUpstream(t, says(okResponse))
		spec := several(first.url, second.url)
		spec.Timeout = 100 * time.Millisecond
		g := newGateway(t, gatewayOptions{}, spec)
		c := dial(t, g.address())
		c.send(get("/public", "Connection: close\r\n"))
		_, _ = io.ReadAll(c)
		if len(first.requests) != 1 || len(second.requests) != 0 {
			t.Errorf("sent %d and %d times, want once to the first", len(first.requests), len(second.requests))
		}
	}
}

// TestKeptConnectionIsClosed: a service may close a connection just when the next
// request is sent on it. Such a request is sent again once if it is idempotent;
// net/http by itself would use up every connection there is, and take an
// Idempotency-Key for leave to send a POST twice.
func TestKeptConnectionIsClosed(t *testing.T) {
	tests := []struct {
		raw          string
		status, sent int
	}{
		{get("/public", ""), 502, 2},
		{"POST /public HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 502, 1},
		{"POST /public HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n", 502, 1},
		{"POST /public HTTP/1.1\r\nHost: h\r\nX-Idempotency-Key: k\r\nContent-Length: 0\r\n\r\n", 502, 1},
	}
	for _, test := range tests {
		const kept = 4
		var together sync.WaitGroup
		together.Add(kept)
		var closing atomic.Bool
		service := newUpstream(t, func(conn net.Conn, _ string) bool {
			if closing.Load() {
				return false
			}
			together.Done()
			together.Wait() // so that each has a connection of its own
			_, err := io.WriteString(conn, okResponse)
			return err == nil
		})
		g := newGateway(t, gatewayOptions{}, public(service.url))
		var clients []*connection
		for range kept {
			c := dial(t, g.address())
			c.send(get("/public", ""))
			clients = append(clients, c)
		}
		for _, c := range clients {
			c.answer("GET")
			service.received(t)
		}
		closing.Store(true)
		response, _ := g.ask(t, test.raw)
		if response.StatusCode != test.status || len(service.requests) != test.sent {
			t.Errorf("%.60q = %d, sent %d times, want %d and %d times",
				test.raw, response.StatusCode, len(service.requests), test.status, test.sent)
		}
	}
}

func TestKeptConnectionIsClosedOnce(t *testing.T) {
	var asked atomic.Int64
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		if asked.Add(1) == 2 {
			return false
		}
		_, err := io.WriteString(conn, okResponse)
		return err == nil
	})
	g := newGateway(t, gatewayOptions{}, public(service.url))
	if got := fmt.Sprint(g.statuses(t, 2, get("/public", ""))); got != "[200 200]" || asked.Load() != 3 {
		t.Errorf("got %s after %d requests, want two 200 after 3", got, asked.Load())
	}
}

func TestMaxInFlight(t *testing.T) {
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		<-release
		_, err := io.WriteString(conn, okResponse)
		return err == nil
	})
	other := newUpstream(t, says(okResponse))
	limited, free := public(service.url), public(other.url)
	limited.MaxInFlight = 2
	free.Name, free.Path = "free", "/free"
	g := newGateway(t, gatewayOptions{}, limited, free)
	var waiting []*connection
	for range 2 {
		c := dial(t, g.address())
		c.send(get("/public", ""))
		service.received(t)
		waiting = append(waiting, c)
	}
	refused := func(when string) {
		t.Helper()
		response, _ := g.ask(t, get("/public", ""))
		if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %v, want 503 with Retry-After", when, response.StatusCode, response.Header)
		}
	}
	refused("beyond the limit")
	if got := g.statuses(t, 1, get("/free", "")); got[0] != http.StatusOK {
		t.Errorf("another route = %d", got[0])
	}
	g.swap(t, limited, free)
	refused("after a reload")
	let()
	for _, c := range waiting {
		c.answer("GET")
	}
	eventually(t, "there is room again", func() bool { return g.statuses(t, 1, get("/public", ""))[0] == http.StatusOK })
}

// checked is a service with a path for its health.
func checked(t *testing.T) (u *url.URL, sick *atomic.Bool, requests *atomic.Int64) {
	t.Helper()
	sick, requests = new(atomic.Bool), new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			requests.Add(1)
			return
		}
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	return mustParse(t, server.URL), sick, requests
}

func TestActiveChecks(t *testing.T) {
	a, sick, requests := checked(t)
	b, bothSick, _ := checked(t)
	spec := several(a, b)
	spec.Health = &route.HealthCheck{Path: "/livez", Interval: 10 * time.Millisecond, Timeout: patienceOfTests}
	g := newGateway(t, gatewayOptions{}, spec)
	healthy := func(want bool) func() bool {
		return func() bool { return g.router.Replicas("public")[0].Healthy == want }
	}
	sick.Store(true)
	eventually(t, "the sick replica is out", healthy(false))
	g.statuses(t, 6, get("/public", ""))
	if requests.Load() != 0 {
		t.Errorf("a replica whose check fails got %d requests", requests.Load())
	}
	bothSick.Store(true)
	eventually(t, "503 with Retry-After", func() bool {
		response, _ := g.ask(t, get("/public", ""))
		return response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "1"
	})
	sick.Store(false)
	eventually(t, "it is well again", healthy(true))
	if g.statuses(t, 1, get("/public", "")); requests.Load() != 1 {
		t.Error("a replica that is well again gets nothing")
	}

	sick.Store(true)
	eventually(t, "the sick replica is out", healthy(false))
	spec.Health = nil
	g.swap(t, spec)
	if !healthy(true)() {
		t.Error("who is not checked any more is still out")
	}
}
