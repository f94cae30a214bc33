package integration_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// otherLayout is one that tests change to.
const otherLayout = "time:41,worker:4,sequence:18"

// tokenKey returns a usable tag key.
func tokenKey(fill byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string([]byte{fill, 0x17}), 16)))
}

// wantRefusedStart starts a gateway on redis, or on an embedded one if that is nil, and checks that
// it ends with exit code 2, names all of want, and never refuses a token meanwhile.
func wantRefusedStart(t *testing.T, redis *redistest.Server, env []string, token string, want ...string) {
	t.Helper()
	if redis != nil {
		env = append([]string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_STORE_TIMEOUT=5s"}, env...)
	}
	g := gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, NotReady: true, Env: env})
	for token != "" {
		request := g.Request(http.MethodGet, "/orders/1", nil)
		request.Header.Set("Authorization", "Bearer "+token)
		got, err := gatewaytest.Do(request)
		if err != nil {
			break // it has ended
		}
		if got.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a gateway that must not start answers a living token with %d", got.StatusCode)
			break
		}
	}
	if code := g.Wait(); code != 2 {
		t.Errorf("it ends with %d, want 2", code)
	}
	log := g.Log()
	for _, text := range append(want, "the gateway cannot go on") {
		if !strings.Contains(log, text) {
			t.Errorf("its log does not say %q:\n%s", text, log)
		}
	}
}

const protectedRoute = "routes:\n  - {name: orders, path: /orders, upstreams: [\"http://127.0.0.1:1\"], scopes: [orders.read]}\n"

// TestAnotherInstallation: a gateway whose epoch, layout or token key is not the recorded one does
// not start, names both values and the way out, and never refuses a living token.
func TestAnotherInstallation(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	client := gatewaytest.NewClient("worker", "orders.read")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML + protectedRoute,
		Env:    []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_TOKEN_KEY=" + tokenKey('a'), "SNOWGATE_STORE_TIMEOUT=5s"},
	})
	token := g.Token(client)
	for name, tt := range map[string]struct {
		env  []string
		want []string
	}{
		"epoch": {[]string{"SNOWGATE_EPOCH=2026-02-01T00:00:00Z", "SNOWGATE_TOKEN_KEY=" + tokenKey('a')},
			[]string{"2026-02-01T00:00:00Z", "SNOWGATE_EPOCH=2026-01-01T00:00:00Z", "snowgate ids rebase"}},
		"layout": {[]string{"SNOWGATE_ID_LAYOUT=" + otherLayout, "SNOWGATE_TOKEN_KEY=" + tokenKey('a')},
			[]string{otherLayout, "SNOWGATE_ID_LAYOUT=time:41,worker:10,sequence:12"}},
		"token key":    {[]string{"SNOWGATE_TOKEN_KEY=" + tokenKey('b')}, []string{"the SNOWGATE_TOKEN_KEY that the other gateways have"}},
		"no token key": {nil, []string{"SNOWGATE_TOKEN_KEY", "redis"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantRefusedStart(t, redis, append(tt.env, "SNOWGATE_WORKER_ID=2"), token, tt.want...)
		})
	}
}

// TestInstallationChangesUnderAGateway: a running gateway responds with 503, never 401, once the record is
// another, says why, and goes on when it is back.
func TestInstallationChangesUnderAGateway(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{})
	for field, value := range map[string]string{"layout": otherLayout, "token_key": "0123456789ab"} {
		was := s.redis.Do("HGET", "{sg}:installation", field)
		s.redis.Do("HSET", "{sg}:installation", field, value)
		gatewaytest.Eventually(t, 3*time.Second, "the gateway is not ready", func() bool {
			if got := s.call(); got.StatusCode != http.StatusOK && got.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("a living token gets %d", got.StatusCode)
			}
			got := s.Get("/readyz", "")
			return got.StatusCode == http.StatusServiceUnavailable && strings.Contains(got.Body, value) && strings.Contains(got.Body, was)
		})
		s.wantRefused(s.decisions())
		s.redis.Do("HSET", "{sg}:installation", field, was)
		s.WaitServed(3*time.Second, "a living token", func() gatewaytest.Response { return s.call() })
	}
}

// TestWorkerNumberThatCannotBeHad: the number of a living gateway, an octet that is wider than its
// field and a state file that is damaged keep a gateway from starting.
func TestWorkerNumberThatCannotBeHad(t *testing.T) {
	t.Parallel()
	t.Run("of a living gateway", func(t *testing.T) {
		t.Parallel()
		redis := redistest.Start(t)
		gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, Env: []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_WORKER_ID=ipv4"}})
		wantRefusedStart(t, redis, []string{"SNOWGATE_WORKER_ID=ipv4"}, "", "SNOWGATE_WORKER_ID=ipv4", "is leased by", "SNOWGATE_WORKER_ID=lease")
	})
	t.Run("an octet that is too wide", func(t *testing.T) {
		t.Parallel()
		if address, err := idgen.LocalIPv4(t.Context(), ""); err != nil || address.As4()[3] < 2 {
			t.Skipf("the address of this host, %v, ends in a number of one bit", address)
		}
		for _, source := range []string{"ipv4", "auto"} {
			wantRefusedStart(t, nil, []string{"SNOWGATE_WORKER_ID=" + source, "SNOWGATE_ID_LAYOUT=time:41,worker:1,sequence:12"}, "",
				"SNOWGATE_WORKER_ID", "does not fit the worker field of SNOWGATE_ID_LAYOUT")
		}
	})
	t.Run("a damaged state file", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(file, []byte("idgen-ceiling v1 nonsense\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefusedStart(t, nil, []string{"SNOWGATE_STATE_FILE=" + file}, "", "corrupt", file)
	})
	t.Run("a state file without a directory", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "none", "state")
		wantRefusedStart(t, nil, []string{"SNOWGATE_STATE_FILE=" + file}, "", "SNOWGATE_STATE_FILE", file)
	})
}

// TestWorkerNumberIsLost: a gateway that has lost its number to another one names the reason, and
// goes on deciding.
func TestWorkerNumberIsLost(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{})
	record := strings.Fields(s.redis.Do("HGET", "{sg}:w", "1"))
	if len(record) != 6 {
		t.Fatalf("the record of worker number 1 is %q", record)
	}
	record[0], record[4], record[5] = "thief", "10.0.0.9:8080", "thief:1:1"
	s.redis.Do("HSET", "{sg}:w", "1", strings.Join(record, " "))
	gatewaytest.Eventually(t, 15*time.Second, "the reason is named", func() bool {
		got := s.Get("/readyz?for=issue", "")
		if strings.Contains(got.Body, "10.0.0.9") || strings.Contains(got.Body, "thief") {
			t.Fatalf("/readyz tells strangers who has the number: %s", got.Body)
		}
		return got.StatusCode == http.StatusServiceUnavailable && strings.Contains(got.Body, "the worker number is taken")
	})
	if got := s.Get("/readyz", ""); got.StatusCode != http.StatusOK {
		t.Errorf("/readyz is %d %s, want 200 for a minute", got.StatusCode, got.Body)
	}
	if got := s.call(); got.StatusCode != http.StatusOK {
		t.Errorf("a living token gets %d", got.StatusCode)
	}
	s.wantUnavailable("token", s.issue())
}

// TestReadyWithTheFirstToken: on an empty Redis no token can be issued for a while, and the gateway
// is not ready until one can; deciding is told apart.
func TestReadyWithTheFirstToken(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	client := gatewaytest.NewClient("worker", "orders.read")
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + client.YAML, NotReady: true,
		Env: []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_STORE_TIMEOUT=5s"},
	})
	apart := false
	gatewaytest.Eventually(t, 20*time.Second, "the gateway is ready", func() bool {
		deciding := g.Get("/readyz?for=decide", "")
		got := g.Get("/readyz", "")
		var state struct{ Deciding, Issuing struct{ Ready bool } }
		if err := json.Unmarshal([]byte(got.Body), &state); err != nil {
			t.Fatalf("%v in %s", err, got.Body)
		}
		apart = apart || deciding.StatusCode == http.StatusOK && state.Deciding.Ready && !state.Issuing.Ready
		return got.StatusCode == http.StatusOK
	})
	g.Token(client) // the first try
	if !apart {
		t.Error("deciding was never told apart from issuing")
	}
	if got := g.Get("/readyz?for=issue", ""); got.StatusCode != http.StatusOK {
		t.Errorf("/readyz?for=issue is %d %s", got.StatusCode, got.Body)
	}
}

// snowgate runs a command of the binary with env and returns its exit code and what it prints.
func snowgate(t *testing.T, env []string, args ...string) (code int, output string) {
	t.Helper()
	cmd := exec.Command(gatewaytest.Binary(t), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "SNOWGATE_STORE_TIMEOUT=5s"}, env...)
	out, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestRebase changes the layout of an installation that runs: its gateways answer 503 from then on,
// never 401, those with the new layout start, issue ids above all old ones, and refuse old tokens.
func TestRebase(t *testing.T) {
	t.Parallel()
	s := newScene(t, redistest.Start(t), gatewaytest.Options{})
	beside := s.beside(gatewaytest.Options{Env: []string{"SNOWGATE_WORKER_ID=2"}})
	env := []string{"SNOWGATE_REDIS_URL=" + s.redis.URL()}

	before := s.redis.Do("HGETALL", "{sg}:installation") + s.redis.Do("GET", "{sg}:epoch")
	code, output := snowgate(t, env, "ids", "rebase", "-layout", otherLayout, "-dry-run")
	for _, want := range []string{otherLayout, "tokens live", "Gateways are running", "New ids sort above all old ones", "Nothing was changed"} {
		if !strings.Contains(output, want) {
			t.Errorf("the dry run does not say %q:\n%s", want, output)
		}
	}
	if after := s.redis.Do("HGETALL", "{sg}:installation") + s.redis.Do("GET", "{sg}:epoch"); code != 0 || after != before {
		t.Errorf("the dry run ends with %d and has changed %q to %q", code, before, after)
	}

	// Ids of the last minutes would come again while their tokens live.
	tomorrow := time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC).Format(time.RFC3339)
	if code, output = snowgate(t, env, "ids", "rebase", "-epoch", tomorrow); code != 1 || !strings.Contains(output, "would be issued again while they live") || !strings.Contains(output, "wait until") {
		t.Errorf("a change that repeats ids ends with %d:\n%s", code, output)
	}

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for _, g := range []*scene{s, beside} {
				if got := g.Get("/orders/1", s.token); got.StatusCode != http.StatusOK && got.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("during the change a living token gets %d %s", got.StatusCode, got.Body)
				}
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	old, err := idgen.Parse(strings.Split(s.Token(s.client), "_")[1])
	if err != nil {
		t.Fatal(err)
	}
	if code, output = snowgate(t, env, "ids", "rebase", "-layout", otherLayout); code != 0 || !strings.Contains(output, "SNOWGATE_ID_LAYOUT="+otherLayout) {
		t.Fatalf("the change ends with %d:\n%s", code, output)
	}
	for _, g := range []*scene{s, beside} {
		gatewaytest.Eventually(t, 5*time.Second, "a running gateway is not ready", func() bool {
			got := g.Get("/readyz", "")
			return got.StatusCode == http.StatusServiceUnavailable && strings.Contains(got.Body, otherLayout)
		})
		g.wantUnavailable("protected route", g.Get("/orders/1", s.token))
		g.wantUnavailable("token", g.issue())
	}
	if meta := s.redis.Do("HGET", "{sg}:w", "meta"); !strings.Contains(meta, otherLayout) {
		t.Errorf("the registry is %q: gateways of the old layout may begin it anew", meta)
	}
	next := s.beside(gatewaytest.Options{Env: []string{"SNOWGATE_WORKER_ID=3", "SNOWGATE_ID_LAYOUT=" + otherLayout}})
	token := next.Token(next.client)
	close(stop)
	<-stopped
	id, err := idgen.Parse(strings.Split(token, "_")[1])
	if err != nil || id <= old {
		t.Errorf("the first new id, %v, is not above the last old one, %v (%v)", id, old, err)
	}
	if got := next.Get("/orders/1", token); got.StatusCode != http.StatusOK {
		t.Errorf("a new token gets %d %s", got.StatusCode, got.Body)
	}
	if got := next.Get("/orders/1", s.token); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("an old token gets %d %s from a new gateway, want 401", got.StatusCode, got.Body)
	}
	wantRefusedStart(t, s.redis, []string{"SNOWGATE_WORKER_ID=4"}, token, otherLayout)
	if code, output = snowgate(t, env, "ids", "rebase", "-layout", otherLayout); code != 2 || !strings.Contains(output, "recorded already") {
		t.Errorf("the same change again ends with %d:\n%s", code, output)
	}
}

// TestRebaseOfTheTokenKey: another token key is a change of the installation.
func TestRebaseOfTheTokenKey(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	client := gatewaytest.NewClient("worker", "orders.read")
	options := func(key string) gatewaytest.Options {
		return gatewaytest.Options{
			Config: "clients:\n" + client.YAML + protectedRoute,
			Env:    []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_TOKEN_KEY=" + key, "SNOWGATE_STORE_TIMEOUT=5s", "SNOWGATE_WORKER_ID=lease"},
		}
	}
	g := gatewaytest.Start(t, options(tokenKey('a')))
	token := g.Token(client)
	env := []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_TOKEN_KEY=" + tokenKey('b')}
	if code, output := snowgate(t, env, "ids", "rebase", "-token-key"); code != 0 {
		t.Fatalf("the change ends with %d:\n%s", code, output)
	}
	gatewaytest.Eventually(t, 5*time.Second, "the running gateway answers 503", func() bool {
		status := g.Get("/orders/1", token).StatusCode
		if status == http.StatusUnauthorized {
			t.Error("a living token gets 401")
		}
		return status == http.StatusServiceUnavailable
	})
	next := gatewaytest.Start(t, options(tokenKey('b')))
	if got := next.Get("/orders/1", token); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("an old token gets %d, want 401", got.StatusCode)
	}
	next.Token(client)
}

// TestRebaseOfAStateFile: without Redis, the state file is what a change is made to.
func TestRebaseOfAStateFile(t *testing.T) {
	t.Parallel()
	env := []string{"SNOWGATE_STATE_FILE=" + filepath.Join(t.TempDir(), "state")}
	first := gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, Env: env})
	if code, output := snowgate(t, env, "ids", "rebase", "-layout", otherLayout); code != 1 || !strings.Contains(output, "in use") {
		t.Errorf("beside a running gateway it ends with %d:\n%s", code, output)
	}
	first.Signal(os.Interrupt)
	first.Wait()
	wantRefusedStart(t, nil, append(env, "SNOWGATE_ID_LAYOUT="+otherLayout), "", "time:41,worker:10,sequence:12", otherLayout)
	if code, output := snowgate(t, env, "ids", "rebase", "-layout", otherLayout); code != 0 {
		t.Fatalf("it ends with %d:\n%s", code, output)
	}
	gatewaytest.Start(t, gatewaytest.Options{Config: protectedRoute, Env: append(env, "SNOWGATE_ID_LAYOUT="+otherLayout)})
}

// TestRemarksOnRedis: settings of Redis that lose tokens sooner or later are named at the start, in the
// metrics, in /readyz and by config -check, and not any more when they are mended.
func TestRemarksOnRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "no")
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients: []\n", Env: []string{"SNOWGATE_REDIS_URL=" + server.URL(), "SNOWGATE_STORE_TIMEOUT=5s"}})
	remark := func(name string) float64 { return g.Metrics().Sum("snowgate_redis_remark", `remark="`+name+`"`) }
	for _, name := range []string{"eviction", "append_only"} {
		if remark(name) != 1 {
			t.Errorf("snowgate_redis_remark of %s = %v, want 1", name, remark(name))
		}
		if n := strings.Count(g.Log(), `"remark":"`+name+`"`); n != 1 {
			t.Errorf("%s is logged %d times, want once", name, n)
		}
	}
	if body := g.Get("/readyz", "").Body; !strings.Contains(body, "set noeviction") || !strings.Contains(body, "set appendonly yes") || !strings.Contains(body, `"ready":true`) {
		t.Errorf("/readyz = %s, want both remarks, and ready", body)
	}
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	code, output := snowgate(t, []string{"SNOWGATE_REDIS_URL=" + server.URL()}, "config", "-check", "-redis")
	if code != 0 || !strings.Contains(output, "append-only") || strings.Contains(output, "eviction") {
		t.Errorf("config -check -redis = %d:\n%s\nwant one remark", code, output)
	}
	server.Kill() // at the new connection the settings are asked for again
	server.Restart()
	server.Do("CONFIG", "SET", "appendonly", "yes")
	g.WaitServed(patience, "/readyz", func() gatewaytest.Response { return g.Get("/readyz", "") })
	other := gatewaytest.Start(t, gatewaytest.Options{Config: "clients: []\n", Env: []string{"SNOWGATE_REDIS_URL=" + server.URL(), "SNOWGATE_WORKER_ID=2", "SNOWGATE_STORE_TIMEOUT=5s"}})
	if body := other.Get("/readyz", "").Body; strings.Contains(body, "remarks") {
		t.Errorf("/readyz of a gateway on a good Redis = %s, want no remark", body)
	}
}
