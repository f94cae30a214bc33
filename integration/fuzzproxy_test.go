package integration_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// How long the fuzzer looks with one seed, and with how many: the long look needs
// SNOWGATE_TEST_LONG=1 and go test -timeout 20m. On a busy machine it looks longer, until
// it has seen enough.
const (
	fuzzShort    = 2500 * time.Millisecond
	fuzzLong     = 15 * time.Second
	fuzzSeeds    = 40
	fuzzArrivals = 5 // at every route that can be reached
	fuzzPatience = time.Minute
)

// TestFuzzProxy looks for a request that gets to a service without a verdict on
// it: by mutating targets, header fields and framing of whole conversations, in
// HTTP/1.1 and in HTTP/2, and comparing what arrives with what was sent. See
// [town.judge] for what is held against it.
//
// Every conversation follows from a seed. A failure names it, and
//
//	SNOWGATE_FUZZ_SEED=seed go test ./integration -run TestFuzzProxy
//
// repeats its run.
func TestFuzzProxy(t *testing.T) {
	t.Parallel()
	if seed, err := strconv.ParseUint(os.Getenv("SNOWGATE_FUZZ_SEED"), 10, 64); err == nil {
		newTown(t).fuzz(fuzzShort, seed)
		return
	}
	if os.Getenv("SNOWGATE_TEST_LONG") != "1" {
		newTown(t).fuzz(fuzzShort, 1, rand.Uint64())
		return
	}
	for range fuzzSeeds { // each with a gateway of its own, for whose log there is room
		t.Run("", func(t *testing.T) { newTown(t).fuzz(fuzzLong, rand.Uint64()) })
	}
}

// fuzzers is how many conversations go on at a time. Most wait.
const fuzzers = 24

// fuzz holds conversations made from each of the seeds for that long, and judges
// what became of them.
func (w *town) fuzz(long time.Duration, seeds ...uint64) {
	w.t.Helper()
	for _, seed := range seeds {
		w.run(seed, long)
	}
	w.wantBroad()
}

// run holds conversations made from seed for that long, and for longer if some route was not reached.
func (w *town) run(seed uint64, long time.Duration) {
	w.t.Helper()
	var next atomic.Uint64
	var running sync.WaitGroup
	begin := time.Now()
	goesOn := func() bool { return time.Since(begin) < long || !w.isBroad() && time.Since(begin) < fuzzPatience }
	for range fuzzers {
		running.Go(func() {
			for goesOn() && w.Alive() && !w.hasFaults() {
				w.hold(newConversation(w, seed, next.Add(1)))
			}
		})
	}
	running.Wait()
	w.t.Logf("seed %d: %d conversations in %v", seed, next.Load(), time.Since(begin).Round(time.Millisecond))
	for _, fault := range w.faultsFound() {
		w.t.Errorf("seed %d: %s", seed, fault)
	}
	for _, r := range w.routes {
		if r.scope != "" && r.reachable {
			w.wantCanary(r)
		}
	}
}

// wantCanary sends an ordinary request with a good token.
func (w *town) wantCanary(r *fuzzRoute) {
	w.t.Helper()
	client := w.worker.ID
	if r.scope == "other.use" {
		client = w.other.ID
	}
	s := &sent{method: "GET", target: r.path + "/canary", host: r.exampleHost(), client: client, framed: true, lined: true}
	w.ledger.add(s)
	got := w.Exchange(rawGet(s.host, s.target, fmt.Sprintf("X-Tag: %d", s.serial), bearer(w.tokens[client])))
	if got.StatusCode != 200 {
		w.t.Errorf("route %s: a good request afterwards = %d %s, want 200", r.name, got.StatusCode, got.Body)
	}
}

// isBroad reports whether every route that can be reached was, some times.
func (w *town) isBroad() bool {
	return !slices.ContainsFunc(w.routes, func(r *fuzzRoute) bool { return r.reachable && r.arrivals.Load() < fuzzArrivals })
}

// wantBroad checks that the fuzzer was no empty exercise: that a fair part of
// what it sent got through to every service, and a fair part did not.
func (w *town) wantBroad() {
	w.t.Helper()
	total, arrived := w.requests.Load(), int64(0)
	var report []string
	for _, r := range w.routes {
		n := r.arrivals.Load()
		arrived += n
		report = append(report, fmt.Sprintf("%s %d", r.name, n))
		if r.reachable && n < fuzzArrivals {
			w.t.Errorf("route %s was reached %d times: the fuzzer does not get there", r.name, n)
		}
		if !r.reachable && n > 0 {
			w.t.Errorf("route %s was reached, and nobody has a token for it", r.name)
		}
	}
	w.t.Logf("%d requests sent, %d arrived: %s", total, arrived, strings.Join(report, ", "))
	w.t.Logf("answers: %s", w.statuses.String())
	if arrived*20 < total || arrived*10 > total*9 {
		w.t.Errorf("%d of %d requests arrived, want neither nearly all nor hardly any", arrived, total)
	}
	for _, status := range []int{500, 502, 504} {
		if n := w.statuses.count(status); n > 0 {
			w.t.Errorf("%d answers with status %d: no service has failed, so a client has done that", n, status)
		}
	}
}

// town is a gateway, routes of every kind, and behind each a spy.
type town struct {
	*gatewaytest.Gateway
	t        testing.TB
	routes   []*fuzzRoute
	worker   gatewaytest.Credentials // has svc.use
	other    gatewaytest.Credentials // has other.use only
	tokens   map[string]string       // good ones, by client
	ids      map[string]string       // clients, by the public part of their tokens
	bad      []string                // tokens that are none, any more or at all
	ledger   *tagLedger
	requests atomic.Int64
	statuses tally

	mu     sync.Mutex
	faults []string
}

// fuzzRoute is a route of the gateway, and what may come through it. Every route
// has a service of its own.
type fuzzRoute struct {
	name, host, path string
	scope            string // empty: public
	strip            bool   // the path is removed before it is forwarded
	add              string // goes before what is forwarded
	more             string // further keys of the configuration
	reachable        bool   // somebody has a token for it
	scheme           string // of the upstream, http if empty

	seal     string // what only the gateway adds to requests on this route
	arrivals atomic.Int64
}

func (r *fuzzRoute) exampleHost() string {
	if r.host == "" {
		return "any.test"
	}
	return r.host
}

func newRoutes() []*fuzzRoute {
	return []*fuzzRoute{
		{name: "beside", host: "beside.test", path: "/svc", scope: "svc.use", reachable: true},
		{name: "beside-public", host: "beside.test", path: "/public", reachable: true},
		{name: "below", host: "below.test", path: "/svc", scope: "svc.use", reachable: true},
		{name: "below-admin", host: "below.test", path: "/svc/admin", scope: "svc.admin"},
		{name: "below-other", host: "below.test", path: "/svc/other", scope: "other.use", reachable: true},
		{name: "below-all", host: "below.test", path: "/", reachable: true},
		{name: "slash", host: "slash.test", path: "/svc", scope: "svc.use", more: "allow_encoded_slash: true", reachable: true},
		{name: "slash-all", host: "slash.test", path: "/", more: "allow_encoded_slash: true, websocket: true", reachable: true},
		{name: "strip", host: "strip.test", path: "/api/v1", scope: "svc.use", strip: true, more: "strip_prefix: true", reachable: true},
		{name: "move", host: "strip.test", path: "/old", scope: "svc.use", strip: true, add: "/new/place", more: "strip_prefix: true, add_prefix: /new/place", reachable: true},
		{name: "socket", host: "beside.test", path: "/ws", scope: "svc.use", more: "websocket: true", reachable: true},
		{name: "audience", host: "beside.test", path: "/svc/aud", scope: "svc.use", more: "audience: \"https://elsewhere.example\""},
		{name: "pass", host: "beside.test", path: "/pass", scope: "svc.use", more: "pass_token: true", reachable: true},
		{name: "methods", host: "beside.test", path: "/reading", scope: "svc.use", more: "methods: [GET, HEAD]", reachable: true},
		{name: "h2c", host: "h2.test", path: "/svc", scope: "svc.use", scheme: "h2c", reachable: true},
		{name: "h2c-public", host: "h2.test", path: "/public", scheme: "h2c", reachable: true},
		{name: "any", path: "/open", reachable: true},
		{name: "any-svc", path: "/closed", scope: "svc.use", reachable: true},
	}
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{
		t: t, routes: newRoutes(), ledger: newTagLedger(),
		worker: gatewaytest.NewClient("worker", "svc.use"),
		other:  gatewaytest.NewClient("other", "other.use"),
		tokens: map[string]string{}, ids: map[string]string{},
	}
	nobody := gatewaytest.NewClient("admin-of-others", "svc.admin")
	config := "clients:\n" + w.worker.YAML + w.other.YAML + nobody.YAML + "routes:\n"
	for i, r := range w.routes {
		r.seal = fmt.Sprintf("%s-%x", r.name, rand.Uint64())
		access := "public: true"
		if r.scope != "" {
			access = "scopes: [" + r.scope + "]"
		}
		if r.more != "" {
			access += ", " + r.more
		}
		config += fmt.Sprintf("  - {name: %s, host: %q, path: %s, upstreams: [\"%s\"], set_request_headers: {X-Seal: %s}, timeout: 5s, %s}\n",
			r.name, r.host, r.path, newSpy(w, w.routes[i]), r.seal, access)
	}
	w.Gateway = gatewaytest.Start(t, gatewaytest.Options{
		Config: strings.ReplaceAll(config, `host: "", `, ""), Env: []string{"SNOWGATE_H2C=true", "SNOWGATE_LOG_LEVEL=info", "SNOWGATE_STORE_TIMEOUT=10s", "GORACE=atexit_sleep_ms=0"},
	})
	w.issue()
	return w
}

// issue gets good tokens and makes bad ones of them.
func (w *town) issue() {
	w.t.Helper()
	for _, client := range []gatewaytest.Credentials{w.worker, w.other} {
		w.tokens[client.ID] = w.Token(client)
		w.ids[publicID(w.tokens[client.ID])] = client.ID
	}
	good := w.tokens[w.worker.ID]
	revoked := w.Token(w.worker)
	if status, body := w.Post("/oauth2/revoke", w.worker, "token", revoked); status != 200 {
		w.t.Fatalf("POST /oauth2/revoke = %d %s", status, body)
	}
	last := good[len(good)-1]
	w.bad = []string{
		revoked, good[:len(good)-1] + string(rune('0'+(last+1)%10)), good[:len(good)-1], good + "0", publicID(good),
		strings.ToLower(good), "x", good[:40] + w.tokens[w.other.ID][40:], "sgt_" + strings.Repeat("0", 66),
	}
}

// fault records what must not have happened.
func (w *town) fault(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < 20 {
		w.faults = append(w.faults, fmt.Sprintf(format, arguments...))
	}
}

func (w *town) hasFaults() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.faults) > 0
}

// faultsFound returns the faults so far and forgets them.
func (w *town) faultsFound() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.faults
	w.faults = nil
	return found
}

// routeFor is a second opinion on which route a canonical path of a host belongs
// to: it looks at all of them, in a way that shares nothing with the gateway.
func (w *town) routeFor(host, path string) *fuzzRoute {
	var best *fuzzRoute
	for _, r := range w.routes {
		prefix := strings.TrimSuffix(r.path, "/")
		if r.host != "" && r.host != host || path != prefix && !strings.HasPrefix(path, prefix+"/") {
			continue
		}
		if best == nil || best.host == "" && r.host != "" || best.host == r.host && len(r.path) > len(best.path) {
			best = r
		}
	}
	return best
}

// tally counts answers by status.
type tally struct {
	counts [600]atomic.Int64
}

func (c *tally) add(status int) {
	if status >= 0 && status < len(c.counts) {
		c.counts[status].Add(1)
	}
}

func (c *tally) count(status int) int64 { return c.counts[status].Load() }

func (c *tally) String() string {
	var text []string
	for status := range c.counts {
		if n := c.counts[status].Load(); n > 0 {
			text = append(text, fmt.Sprintf("%d×%d", n, status))
		}
	}
	return strings.Join(text, " ")
}
