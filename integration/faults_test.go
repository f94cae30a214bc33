package integration_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

const (
	// refusalTime is how long a decision may take that needs a Redis which gives
	// no response: SNOWGATE_STORE_TIMEOUT and what the gateway adds. The machine
	// may be busy with other tests, so it is asked of the best of some tries, and
	// stallTime of every single one.
	refusalTime = 300 * time.Millisecond
	stallTime   = 2 * time.Second
	// returnTime is how long after Redis is back the gateway may go on refusing.
	returnTime = time.Second
	// reissueTime is the same for new tokens, although the claim on the worker
	// number has to be renewed first.
	reissueTime = time.Second
	// issueTime is the same where no gateway has a number yet: a Redis that is new
	// may have lost data, and hands out numbers after about 4 s.
	issueTime = 8 * time.Second
)

// TestMain lets more tests run at a time than there are processors: they wait
// for servers most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("6")
	}
	os.Exit(gatewaytest.Run(m))
}

// scene is a gateway on a Redis of its own, with a client, a protected and a
// public route, and a token.
type scene struct {
	*gatewaytest.Gateway
	t        *testing.T
	redis    *redistest.Server
	upstream *gatewaytest.Recorder
	client   gatewaytest.Credentials
	token    string
}

// newScene starts a gateway on server.
func newScene(t *testing.T, server *redistest.Server, o gatewaytest.Options) *scene {
	t.Helper()
	s := &scene{t: t, redis: server, upstream: gatewaytest.NewRecorder(t, "")}
	s.client = gatewaytest.NewClient("worker", "orders.read", "introspect: true")
	s.join(o)
	if !o.NotReady {
		s.token = s.Token(s.client)
	}
	return s
}

// join starts the scene's gateway, with its client and routes.
func (s *scene) join(o gatewaytest.Options) {
	s.t.Helper()
	o.Config = "clients:\n" + s.client.YAML + `
routes:
  - {name: orders, path: /orders, upstreams: [` + s.upstream.URL + `], scopes: [orders.read]}
  - {name: public, path: /public, upstreams: [` + s.upstream.URL + `], public: true}
`
	// Without the cache every decision shows what has become of Redis.
	o.Env = append([]string{"SNOWGATE_REDIS_URL=" + s.redis.URL(), "SNOWGATE_CACHE_TTL=0"}, o.Env...)
	s.Gateway = gatewaytest.Start(s.t, o)
}

// beside starts one more gateway on the same Redis.
func (s *scene) beside(o gatewaytest.Options) *scene {
	s.t.Helper()
	other := *s
	other.join(o)
	return &other
}

func (s *scene) post(path string, form ...string) gatewaytest.Response {
	s.t.Helper()
	values := make(url.Values)
	for i := 0; i+1 < len(form); i += 2 {
		values.Add(form[i], form[i+1])
	}
	request := s.Request(http.MethodPost, path, strings.NewReader(values.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(s.client.ID, s.client.Secret)
	return s.Do(request)
}

func (s *scene) issue() gatewaytest.Response {
	return s.post("/oauth2/token", "grant_type", "client_credentials")
}

func (s *scene) introspect() gatewaytest.Response {
	return s.post("/oauth2/introspect", "token", s.token)
}

func (s *scene) revoke() gatewaytest.Response { return s.post("/oauth2/revoke", "token", s.token) }

func (s *scene) call() gatewaytest.Response { return s.Get("/orders/1", s.token) }

// decisions are all that need Redis.
func (s *scene) decisions() map[string]func() gatewaytest.Response {
	return map[string]func() gatewaytest.Response{
		"token": s.issue, "introspection": s.introspect, "revocation": s.revoke, "protected route": s.call,
	}
}

// wantRefused makes every decision at once and checks that each is refused for
// want of Redis. It returns how long the slowest took.
func (s *scene) wantRefused(decisions map[string]func() gatewaytest.Response) time.Duration {
	s.t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var slowest time.Duration
	for name, decide := range decisions {
		wg.Go(func() {
			got := decide()
			mu.Lock()
			defer mu.Unlock()
			slowest = max(slowest, got.Duration)
			s.wantUnavailable(name, got)
		})
	}
	wg.Wait()
	return slowest
}

func (s *scene) wantUnavailable(name string, got gatewaytest.Response) {
	s.t.Helper()
	if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		s.t.Errorf("%s: %d, Retry-After %q, want 503 with one", name, got.StatusCode, got.Header.Get("Retry-After"))
	}
	if challenge := got.Header.Values("WWW-Authenticate"); len(challenge) > 0 {
		s.t.Errorf("%s: WWW-Authenticate %q: the credentials were not judged", name, challenge)
	}
	if strings.Contains(got.Body, "active") {
		s.t.Errorf("%s: %s: whether the token is active is not known", name, got.Body)
	}
	if got.Duration > stallTime {
		s.t.Errorf("%s: took %v", name, got.Duration)
	}
}

// wantNotReady waits for /readyz to miss Redis, and checks that what needs no
// Redis goes on.
func (s *scene) wantNotReady() {
	s.t.Helper()
	gatewaytest.Eventually(s.t, 3*time.Second, "/readyz names Redis", func() bool {
		got := s.Get("/readyz", "")
		var state struct{ Missing []string }
		if err := json.Unmarshal([]byte(got.Body), &state); err != nil {
			s.t.Fatalf("/readyz: %v in %s", err, got.Body)
		}
		return got.StatusCode == http.StatusServiceUnavailable && strings.Contains(strings.Join(state.Missing, " "), "redis")
	})
	for _, path := range []string{"/livez", "/public/1", "/.well-known/oauth-authorization-server"} {
		if got := s.Get(path, ""); got.StatusCode != http.StatusOK {
			s.t.Errorf("%s: %d while Redis is away, want 200", path, got.StatusCode)
		}
	}
	// Requests that can be judged without Redis are judged: those without credentials, and those
	// with a text that was never a token.
	for _, token := range []string{"", "nonsense"} {
		if got := s.Get("/orders/1", token); got.StatusCode != http.StatusUnauthorized {
			s.t.Errorf("token %q: %d while Redis is away, want 401", token, got.StatusCode)
		}
	}
}

// wantBack checks that the same token is good again soon after Redis is.
func (s *scene) wantBack() {
	s.t.Helper()
	begin := time.Now()
	route := s.WaitServed(returnTime, "the protected route", s.call)
	introspection := s.WaitServed(time.Until(begin.Add(returnTime)), "introspection", s.introspect)
	if got := s.introspect(); !strings.Contains(got.Body, `"active":true`) {
		s.t.Errorf("introspection after Redis is back: %s", got.Body)
	}
	ready := s.WaitServed(time.Until(begin.Add(returnTime)), "/readyz", func() gatewaytest.Response { return s.Get("/readyz", "") })
	s.t.Logf("back: route after %v, introspection %v later, /readyz %v later", route, introspection, ready)
}

// wantIssued waits for a new token.
func (s *scene) wantIssued(within time.Duration) {
	s.t.Helper()
	s.t.Logf("back: tokens are issued after %v", s.WaitServed(within, "the token endpoint", s.issue))
}

// wantRevoked revokes the scene's token.
func (s *scene) wantRevoked() {
	s.t.Helper()
	if got := s.revoke(); got.StatusCode != http.StatusOK {
		s.t.Errorf("revocation: %d %s", got.StatusCode, got.Body)
	}
	if got := s.call(); got.StatusCode != http.StatusUnauthorized {
		s.t.Errorf("with a revoked token: %d, want 401", got.StatusCode)
	}
}

// TestRedisGoesAndComesBack: promise c of the security notes. Whatever happens
// to Redis, nothing is decided by guessing, nothing waits for long, what needs no
// Redis goes on, and nobody has to restart the gateway.
func TestRedisGoesAndComesBack(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "it measures parts of a second, and a request takes as long")
	t.Parallel()
	for _, fault := range []struct {
		name      string
		end, mend func(*redistest.Server)
	}{
		{"stopped", (*redistest.Server).Stop, (*redistest.Server).Restart},
		{"killed", (*redistest.Server).Kill, (*redistest.Server).Restart},
		// Connections stay open and nobody answers: only time tells.
		{"frozen", (*redistest.Server).Freeze, (*redistest.Server).Resume},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, redistest.Start(t, keepsData...), gatewaytest.Options{})
			best := stallTime
			for try := 0; try < 5 && (try == 0 || best > refusalTime); try++ {
				fault.end(s.redis)
				best = min(best, s.wantRefused(s.decisions()))
				s.wantNotReady()
				fast := s.wantRefused(s.decisions())
				t.Logf("refused within %v at first, %v later", best, fast)
				fault.mend(s.redis)
				s.wantBack()
			}
			if best > refusalTime {
				t.Errorf("a refusal took %v at best, want at most %v", best, refusalTime)
			}
			s.wantIssued(reissueTime)
			s.wantRevoked()
			if !s.Alive() {
				t.Error("the gateway ended")
			}
		})
	}
}

// keepsData makes a Redis that is killed come back with its data. What it has written the
// system keeps; fsync is for machines that fail, and a slow disk would make it hang.
var keepsData = []string{"--appendonly", "yes", "--appendfsync", "no"}

// TestLongOutage: an outage of more than the time that is reserved ahead for ids
// costs new tokens no more than a short one. The gateway's worker number is still
// its own when Redis comes back with its data.
func TestLongOutage(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t, keepsData...), gatewaytest.Options{})
	s.redis.Kill()
	hammer(4*time.Second, func() { s.wantUnavailable("protected route", s.call()) })
	s.redis.Restart()
	s.wantBack()
	s.wantIssued(reissueTime)
	s.wantRevoked()
}

// TestRedisRestartedEmpty: the tokens are gone, and that is what callers hear;
// the gateway gives Redis back what it knows and goes on.
func TestRedisRestartedEmpty(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{})
	key := s.redis.Do("HGETALL", "{sg}:tagkey")
	s.redis.Kill()
	s.wantRefused(s.decisions())
	s.wantNotReady()
	s.redis.Restart()
	gatewaytest.Eventually(t, returnTime, "the token is refused as unknown", func() bool {
		got := s.call()
		if got.StatusCode != http.StatusServiceUnavailable && got.StatusCode != http.StatusUnauthorized {
			t.Fatalf("a token that Redis has forgotten: %d, want 401", got.StatusCode)
		}
		return got.StatusCode == http.StatusUnauthorized
	})
	if got := s.introspect(); got.StatusCode != http.StatusOK || got.Body != "{\"active\":false}\n" {
		t.Errorf("introspection of a token that Redis has forgotten: %d %q", got.StatusCode, got.Body)
	}
	s.wantIssued(issueTime)
	s.token = s.Token(s.client)
	s.wantBack()
	gatewaytest.Eventually(t, 2*returnTime, "Redis is given the epoch back", func() bool { return s.redis.Do("EXISTS", "{sg}:epoch") == "1" })
	gatewaytest.Eventually(t, 2*returnTime, "Redis is given the tag key back", func() bool { return s.redis.Do("HGETALL", "{sg}:tagkey") == key })
	// A gateway that starts now takes these, and so accepts the tokens of the one that runs.
	newcomer := s.beside(gatewaytest.Options{NotReady: true, Env: []string{"SNOWGATE_WORKER_ID=2"}})
	newcomer.WaitServed(5*time.Second, "/readyz of a newcomer", func() gatewaytest.Response { return newcomer.Get("/readyz", "") })
	if got := newcomer.call(); got.StatusCode != http.StatusOK {
		t.Errorf("a token of the gateway that lived through it, at a newcomer: %d", got.StatusCode)
	}
}

// unjudged is well-formed; whether it is a token nobody can tell without a key.
var unjudged = "sgt_0123456789A_" + strings.Repeat("0", 54)

// TestRedisAbsentAtStart: the order in which containers start does not matter.
func TestRedisAbsentAtStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	s := newScene(t, server, gatewaytest.Options{NotReady: true})
	s.token = unjudged
	s.wantRefused(s.decisions())
	s.wantNotReady()
	server.Restart()
	t.Logf("ready %v after Redis", s.WaitServed(returnTime, "/readyz?for=decide", func() gatewaytest.Response { return s.Get("/readyz?for=decide", "") }))
	if got := s.call(); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a forged token, now that there are keys: %d, want 401", got.StatusCode)
	}
	s.wantIssued(issueTime)
	s.token = s.Token(s.client)
	s.wantBack()
}

// TestWrongRedisPassword: an operator must see from the log what is wrong, Redis
// must not see an attack, and a corrected password is enough.
func TestWrongRedisPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	right := server.Password()
	const wrong = "not-the-password-of-this-redis"
	s := newScene(t, server, gatewaytest.Options{
		NotReady: true,
		Env:      []string{"SNOWGATE_REDIS_URL=" + strings.Replace(server.URL(), right, wrong, 1)},
	})
	down := s.WaitLog("Redis cannot be used: requests that need it are answered with 503")
	if down["kind"] != "auth" || !strings.Contains(fmt.Sprint(down["error"]), "WRONGPASS") {
		t.Errorf("the log says %v, want that the password is wrong", down)
	}
	s.wantNotReady()
	s.token = unjudged
	s.wantRefused(s.decisions())

	// Two seconds of requests, as fast as four callers can.
	const span = 2 * time.Second
	before := connections(s.redis)
	requests := hammer(span, func() { s.wantUnavailable("token", s.issue()) })
	attempts := connections(s.redis) - before
	t.Logf("%d requests, %d connections to Redis in %v", requests, attempts, span)
	if most := 50; attempts > most {
		t.Errorf("%d connections to a Redis that refuses the password in %v, want at most %d", attempts, span, most)
	}
	if lines := s.Lines(down["message"].(string)); len(lines) != 1 {
		t.Errorf("the log says so %d times, want once", len(lines))
	}
	for _, password := range []string{wrong, right} {
		if strings.Contains(s.Log(), password) {
			t.Error("the log holds a password of Redis")
		}
	}
	server.SetPassword(wrong)
	t.Logf("ready %v after the password is right", s.WaitServed(2*returnTime, "/readyz?for=decide", func() gatewaytest.Response { return s.Get("/readyz?for=decide", "") }))
	s.wantIssued(issueTime)
}

// connections returns how many connections Redis has accepted in its life.
func connections(server *redistest.Server) int {
	return int(server.Info("stats", "total_connections_received"))
}

// hammer calls f from four goroutines for the given time and returns how often.
func hammer(span time.Duration, f func()) int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var n int
	end := time.Now().Add(span)
	for range 4 {
		wg.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for range pace.C {
				if time.Now().After(end) {
					return
				}
				f()
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return n
}

// TestRedisTurnsReplica: after a failover the old primary may lag behind. What
// it lacks proves nothing, and it takes no writes.
func TestRedisTurnsReplica(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{})
	other := s.Token(s.client)
	// It follows a primary that is not there, and keeps its data.
	s.redis.Do("REPLICAOF", "127.0.0.1", "1")
	s.wantRefused(map[string]func() gatewaytest.Response{"token": s.issue, "revocation": s.revoke})
	s.redis.Do("CONFIG", "SET", "replica-read-only", "no")
	s.redis.Do("DEL", "sg:t:"+tokenID(other)) // as if it had not arrived yet
	s.redis.Do("CONFIG", "SET", "replica-read-only", "yes")
	lacking := *s
	lacking.token = other
	lacking.wantRefused(map[string]func() gatewaytest.Response{"protected route": lacking.call, "introspection": lacking.introspect})
	for name, got := range map[string]gatewaytest.Response{"protected route": s.call(), "introspection": s.introspect()} {
		if got.StatusCode == http.StatusUnauthorized || strings.Contains(got.Body, `"active":false`) {
			t.Errorf("%s with a token that the replica has: %d %s", name, got.StatusCode, got.Body)
		}
	}
	s.wantNotReady()
	// By now it is known that this is no primary. Its copy of a token may be one
	// that the new primary has revoked.
	s.wantRefused(s.decisions())
	s.redis.Do("REPLICAOF", "NO", "ONE")
	s.wantBack()
	s.wantIssued(reissueTime)
	s.wantRevoked()
}

func tokenID(token string) string { return strings.Split(token, "_")[1] }

// TestRedisFull: new tokens find no room, the ones that are there go on, and the
// gateway keeps its worker number meanwhile.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t, "--maxmemory-policy", "noeviction"), gatewaytest.Options{})
	s.redis.Do("CONFIG", "SET", "maxmemory", "1")
	s.wantRefused(map[string]func() gatewaytest.Response{"token": s.issue})
	refused := 0
	hammer(5*time.Second, func() { // longer than the ceiling of ids reaches ahead
		if got := s.call(); got.StatusCode != http.StatusOK {
			refused++
		}
	})
	if refused > 0 {
		t.Errorf("%d calls with a good token were refused while Redis was full", refused)
	}
	s.wantRefused(map[string]func() gatewaytest.Response{"token": s.issue})
	if got := s.introspect(); !strings.Contains(got.Body, `"active":true`) {
		t.Errorf("introspection while Redis is full: %d %s", got.StatusCode, got.Body)
	}
	if got := s.Get("/readyz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("/readyz while Redis is full: %d %s: the gateway can decide", got.StatusCode, got.Body)
	}
	s.redis.Do("CONFIG", "SET", "maxmemory", "0")
	s.wantIssued(returnTime)
	if m := s.Metrics(); m.Sum("snowgate_redis_errors_total", `kind="oom"`) == 0 {
		t.Error("no error of the kind oom was counted")
	}
	if got := s.Metrics().Sum("idgen_healthy"); got != 1 {
		t.Errorf("idgen_healthy = %v, want 1: the worker number was kept", got)
	}
	s.wantRevoked()
}

// TestEvictionPolicyIsWarnedOf: such a Redis throws live tokens away.
func TestEvictionPolicyIsWarnedOf(t *testing.T) {
	t.Parallel()
	for policy, warned := range map[string]bool{"allkeys-lru": true, "volatile-ttl": true, "noeviction": false} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			g := newScene(t, redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", policy), gatewaytest.Options{NotReady: true})
			g.WaitServed(5*time.Second, "/readyz", func() gatewaytest.Response { return g.Get("/readyz", "") })
			var line string
			for text := range strings.Lines(g.Log()) {
				if strings.Contains(text, "maxmemory") {
					line = text
				}
			}
			if found := strings.Contains(line, policy) && strings.Contains(line, `"level":"warn"`); found != warned {
				t.Errorf("%s: the log warns: %v, want %v: %s", policy, found, warned, line)
			}
		})
	}
}

// TestAnotherEpochRefusesToStart: ids of two epochs in one deployment would
// collide and expire at wrong times.
func TestAnotherEpochRefusesToStart(t *testing.T) {
	t.Parallel()
	const other = "2025-06-01T00:00:00Z"
	s := newScene(t, redistest.Start(t), gatewaytest.Options{NotReady: true})
	s.WaitServed(5*time.Second, "/readyz", func() gatewaytest.Response { return s.Get("/readyz", "") })
	second := s.beside(gatewaytest.Options{NotReady: true, Env: []string{"SNOWGATE_EPOCH=" + other, "SNOWGATE_WORKER_ID=2"}})
	if code := second.Wait(); code == 0 || code == -1 {
		t.Errorf("exit code %d, want one that says failure", code)
	}
	for _, epoch := range []string{other, "2026-01-01T00:00:00Z"} {
		if !strings.Contains(second.Log(), epoch) {
			t.Errorf("the reason does not name %s:\n%s", epoch, second.Log())
		}
	}
	if got := s.redis.Do("GET", "{sg}:epoch"); !strings.HasPrefix(got, "2026-01-01") {
		t.Errorf("the epoch in Redis is %q now", got)
	}
}

// TestTwoGatewaysOnOneRedis: they share tokens and revocations and nothing else.
func TestTwoGatewaysOnOneRedis(t *testing.T) {
	t.Parallel()
	auto := gatewaytest.Options{Env: []string{"SNOWGATE_WORKER_ID=auto"}}
	first := newScene(t, redistest.Start(t), auto)
	second := first.beside(auto)

	// Both prefer the last octet of the one address of this host.
	one, two := workerOf(first), workerOf(second)
	if one == two || one > 255 || two < 256 {
		t.Errorf("worker numbers %v and %v, want the octet and one from 256 up", one, two)
	}
	if got := second.call(); got.StatusCode != http.StatusOK {
		t.Errorf("a token of one gateway at the other: %d", got.StatusCode)
	}
	second.token = second.Token(second.client)
	if got := first.Get("/orders/1", second.token); got.StatusCode != http.StatusOK {
		t.Errorf("a token of the other gateway at the one: %d", got.StatusCode)
	}
	if got := second.post("/oauth2/revoke", "token", first.token); got.StatusCode != http.StatusOK {
		t.Errorf("revocation at the other gateway: %d", got.StatusCode)
	}
	gatewaytest.Eventually(t, returnTime, "the revocation counts at the gateway that issued the token", func() bool {
		return first.call().StatusCode == http.StatusUnauthorized
	})
	if got := second.call(); got.StatusCode != http.StatusOK {
		t.Errorf("the token that was not revoked: %d", got.StatusCode)
	}
	// One that leaves gives its number back in good order; the next one starts.
	second.Signal(terminate)
	if code := second.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	third := first.beside(auto)
	if got := workerOf(third); got == one || got < 256 {
		t.Errorf("the next gateway has worker number %v beside the one with %v", got, one)
	}
}

func workerOf(s *scene) float64 {
	s.t.Helper()
	var state struct{ Issuing struct{ Worker float64 } }
	if err := json.Unmarshal([]byte(s.Get("/readyz", "").Body), &state); err != nil {
		s.t.Fatal(err)
	}
	return state.Issuing.Worker
}

// TestRedisFarAway: with a round trip of half of SNOWGATE_STORE_TIMEOUT a gateway starts, and
// no decision is refused: what a new connection takes is not counted against it.
func TestRedisFarAway(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "a response takes as long as it may")
	t.Parallel()
	const timeout = 400 * time.Millisecond
	server := redistest.Start(t)
	cable := gatewaytest.NewCable(t, server.Addr())
	cable.Delay(timeout / 4)
	client := gatewaytest.NewClient("worker", "orders.read", "introspect: true")
	g := gatewaytest.Start(t, gatewaytest.Options{
		NotReady: true, Config: "clients:\n" + client.YAML,
		Env: []string{
			"SNOWGATE_REDIS_URL=" + strings.Replace(server.URL(), server.Addr(), cable.Addr(), 1),
			"SNOWGATE_STORE_TIMEOUT=" + timeout.String(),
		},
	})
	gatewaytest.Eventually(t, time.Minute, "the gateway is ready", func() bool { return g.Get("/readyz", "").StatusCode == http.StatusOK })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 3 {
				status, body := g.Post("/oauth2/token", client, "grant_type", "client_credentials")
				if status != http.StatusOK {
					t.Errorf("token: %d %s", status, body)
				}
			}
		})
	}
	wg.Wait()
	token := g.Token(client)
	for range 3 {
		if status, body := g.Post("/oauth2/introspect", client, "token", token); status != http.StatusOK || !strings.Contains(body, `"active":true`) {
			t.Errorf("introspection: %d %s", status, body)
		}
	}
}
