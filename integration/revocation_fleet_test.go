package integration_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/internal/echo"
	"snowgate/tokens/tokenstest/redistest"
)

// fleet is three gateways on one Redis, each with a cable of its own to it. They
// have an administrator, a client called worker, and an upstream that echoes and
// streams.
type fleet struct {
	t         *testing.T
	redis     *redistest.Server
	gateways  []*gatewaytest.Gateway
	cables    []*gatewaytest.Cable
	upstream  string
	download  string
	client    gatewaytest.Credentials
	admin     gatewaytest.Credentials
	others    []gatewaytest.Credentials
	agent     *http.Client
	transport *http.Transport // of agent
}

// fleetOptions says how a fleet is started. The zero value is usable.
type fleetOptions struct {
	size     int               // gateways; 0: three
	on       *redistest.Server // nil: one of their own
	redis    []string          // further arguments of that
	env      []string
	envOf    func(gateway int) []string // may be nil
	others   []gatewaytest.Credentials  // further clients
	download string                     // URL of a service at /svc/download
}

// newFleet starts one. The bound is max(CACHE_TTL, 1 s) of env.
func newFleet(t *testing.T, env ...string) *fleet {
	t.Helper()
	return newFleetOf(t, fleetOptions{env: env})
}

func newFleetOf(t *testing.T, o fleetOptions) *fleet {
	t.Helper()
	f := &fleet{t: t, redis: o.on, others: o.others, download: o.download}
	if f.redis == nil {
		f.redis = redistest.Start(t, o.redis...)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	f.transport = transport
	f.agent = &http.Client{Transport: gatewaytest.Inspect(transport), Timeout: 20 * time.Second}
	upstream := cuttest.NewServer(echo.Handler("svc"))
	t.Cleanup(upstream.Close)
	f.upstream = upstream.URL
	f.client = gatewaytest.NewClient("worker", "svc svc.other", "introspect: true")
	f.admin = gatewaytest.NewClient("operator", "snowgate:admin")
	for range cmp.Or(o.size, 3) {
		f.cables = append(f.cables, gatewaytest.NewCable(t, f.redis.Addr()))
	}
	f.gateways = make([]*gatewaytest.Gateway, len(f.cables))
	for i := range f.gateways {
		env := slices.Clone(o.env)
		if o.envOf != nil {
			env = append(env, o.envOf(i)...)
		}
		f.gateways[i] = f.start(i, f.cables[i].Addr(), true, env...)
	}
	for _, g := range f.gateways {
		g.WaitLog("ready: tokens are checked and issued")
	}
	return f
}

// start starts gateway number i, which reaches Redis at address.
func (f *fleet) start(i int, address string, later bool, env ...string) *gatewaytest.Gateway {
	f.t.Helper()
	to := &url.URL{Scheme: "redis", User: url.UserPassword("", f.redis.Password()), Host: address}
	return gatewaytest.Start(f.t, gatewaytest.Options{
		NotReady: later,
		Config:   f.config(),
		Env: append([]string{
			"SNOWGATE_REDIS_URL=" + to.String(),
			fmt.Sprintf("SNOWGATE_WORKER_ID=%d", i+1),
			"SNOWGATE_LOG_LEVEL=info",
			"SNOWGATE_STORE_TIMEOUT=5s", // a busy machine is no fault of Redis
		}, env...),
	})
}

// config is the configuration file of all gateways.
func (f *fleet) config() string {
	text := "clients:\n" + f.client.YAML + f.admin.YAML
	for _, c := range f.others {
		text += c.YAML
	}
	text += `
routes:
  - {name: svc, path: /svc, upstreams: [` + f.upstream + `], scopes: [svc], websocket: true}
  - {name: other, path: /other, upstreams: [` + f.upstream + `], scopes: [svc.other]}
`
	if f.download != "" {
		text += "  - {name: download, path: /svc/download, upstreams: [" + f.download + "], scopes: [svc]}\n"
	}
	return text
}

// reload has every gateway read config anew, and returns when they have.
func (f *fleet) reload() {
	f.t.Helper()
	const message = "the configuration file was read again"
	for _, g := range f.gateways {
		before := len(g.Lines(message))
		if err := os.WriteFile(g.ConfigPath, []byte(f.config()), 0o600); err != nil {
			f.t.Fatal(err)
		}
		g.Signal(syscall.SIGHUP)
		gatewaytest.Eventually(f.t, 10*time.Second, "the file is read", func() bool { return len(g.Lines(message)) > before })
	}
}

// answered is what became of one request.
type answered struct {
	gateway int
	begin   time.Time
	status  int
}

// ask sends a request with token to gateway number i, on a kept connection.
func (f *fleet) ask(i int, path, token string) (answered, error) {
	got := answered{gateway: i}
	request, err := http.NewRequest(http.MethodGet, f.gateways[i].URL+path, nil)
	if err != nil {
		return got, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	got.begin = time.Now()
	response, err := f.agent.Do(request)
	if err != nil {
		return got, err
	}
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	_ = response.Body.Close()
	got.status = response.StatusCode
	return got, err
}

// status is the status of a response of gateway number i. It asks again after a
// 503, which is what a gateway has to say if the machine is too busy to confirm
// the rules within the bound.
func (f *fleet) status(i int, token string) int {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		got, err := f.ask(i, "/svc/x", token)
		if err != nil {
			f.t.Fatal(err)
		}
		if got.status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			return got.status
		}
		<-time.After(20 * time.Millisecond)
	}
}

// wantAll checks what every gateway answers.
func (f *fleet) wantAll(what, token string, want int) {
	f.t.Helper()
	for i := range f.gateways {
		if got := f.status(i, token); got != want {
			f.t.Errorf("%s: gateway %d answers %d, want %d", what, i, got, want)
		}
	}
}

// wantSoon waits until every gateway gives the response.
func (f *fleet) wantSoon(within time.Duration, what, token string, want int) {
	f.t.Helper()
	for i := range f.gateways {
		gatewaytest.Eventually(f.t, within, fmt.Sprintf("%s: gateway %d answers %d", what, i, want), func() bool {
			return f.status(i, token) == want
		})
	}
}

// token issues one and has every gateway cache it.
func (f *fleet) token() string {
	f.t.Helper()
	token := f.issue(0, f.client)
	f.wantAll("a new token", token, http.StatusOK)
	return token
}

// issue has gateway number i issue a token for c.
func (f *fleet) issue(i int, c gatewaytest.Credentials, form ...string) string {
	f.t.Helper()
	var response struct {
		AccessToken string `json:"access_token"`
	}
	body := f.post(i, "/oauth2/token", c, append([]string{"grant_type", "client_credentials"}, form...)...)
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		f.t.Fatal(err)
	}
	return response.AccessToken
}

// post sends a form to gateway number i, and again after a 503.
func (f *fleet) post(i int, path string, c gatewaytest.Credentials, form ...string) (body string) {
	f.t.Helper()
	gatewaytest.Eventually(f.t, 20*time.Second, path+" is served", func() bool {
		var status int
		status, body = f.gateways[i].Post(path, c, form...)
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			f.t.Fatalf("%s: %d %s", path, status, body)
		}
		return status == http.StatusOK
	})
	return body
}

// revoke has gateway number i revoke token by its text.
func (f *fleet) revoke(i int, token string) {
	f.t.Helper()
	f.post(i, "/oauth2/revoke", f.client, "token", token)
}

// rule has gateway number i write a rule: the members of the revocation.
func (f *fleet) rule(i int, members map[string]any) {
	f.t.Helper()
	text, err := json.Marshal(members)
	if err != nil {
		f.t.Fatal(err)
	}
	g, token := f.gateways[i], f.issue(i, f.admin, "scope", "snowgate:admin")
	gatewaytest.Eventually(f.t, 20*time.Second, "the rule is written", func() bool {
		request := g.Request(http.MethodPost, "", bytes.NewReader(text))
		request.URL.Host, request.Host = strings.TrimPrefix(g.AdminURL, "http://"), ""
		request.URL.Path = "/admin/v1/revocations"
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+token)
		got := g.Do(request)
		if got.StatusCode != http.StatusCreated && got.StatusCode != http.StatusServiceUnavailable {
			f.t.Fatalf("revocation of %s: %d %s", text, got.StatusCode, got.Body)
		}
		return got.StatusCode == http.StatusCreated
	})
}

// revocation is a way to end a token of the fleet's client that was issued by
// gateway 0. It returns when gateway 0 has answered.
type revocation struct {
	name   string
	revoke func(token string)
	others bool // tokens of other gateways for other clients are not concerned
}

func (f *fleet) revocations() []revocation {
	return []revocation{
		{"token", func(token string) { f.revoke(0, token) }, true},
		{"client", func(string) { f.rule(0, map[string]any{"client": f.client.ID}) }, true},
		{"worker", func(string) {
			f.rule(0, map[string]any{"worker": 1, "from": instant(-time.Hour), "until": instant(0)})
		}, true},
		{"before", func(string) { f.rule(0, map[string]any{"before": instant(0)}) }, false},
	}
}

// instant is a time from now, to the millisecond.
func instant(d time.Duration) string {
	return time.Now().Add(d).UTC().Format("2006-01-02T15:04:05.000Z")
}

// load is requests with one token at all gateways, at a steady rate.
type load struct {
	f         *fleet
	stop      chan struct{}
	workers   sync.WaitGroup
	mu        sync.Mutex
	responses []answered
	faults    []error
}

// start asks every gateway from so many callers, each 100 times a second.
func (f *fleet) load(token string, callers int) *load {
	l := &load{f: f, stop: make(chan struct{})}
	for i := range f.gateways {
		for range callers {
			l.workers.Go(func() { l.run(i, token) })
		}
	}
	return l
}

func (l *load) run(i int, token string) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for {
		got, err := l.f.ask(i, "/svc/x", token)
		l.mu.Lock()
		if err != nil {
			l.faults = append(l.faults, err)
		} else {
			l.responses = append(l.responses, got)
		}
		l.mu.Unlock()
		select {
		case <-l.stop:
			return
		case <-pace.C:
		}
	}
}

// count returns how many responses with a status a gateway has given.
func (l *load) count(gateway, status int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, got := range l.responses {
		if got.gateway == gateway && got.status == status {
			n++
		}
	}
	return n
}

// end ends the load and returns all responses.
func (l *load) end() []answered {
	l.f.t.Helper()
	close(l.stop)
	l.workers.Wait()
	for _, err := range l.faults {
		if errors.Is(err, io.ErrUnexpectedEOF) && cuttest.Current() != cuttest.Whole {
			continue // in pieces, it lasts so long that the token is watched, and the revocation cuts it
		}
		l.f.t.Errorf("a request under load: %v", err)
	}
	return l.responses
}

// lag returns how long after since a gateway began to serve a request for the
// last time, at the most: 0 if that was before.
func lag(responses []answered, gateway int, since time.Time) time.Duration {
	var last time.Duration
	for _, got := range responses {
		if got.gateway == gateway && got.status == http.StatusOK {
			last = max(last, got.begin.Sub(since))
		}
	}
	return last
}

// percentile returns the p-th percentile.
func percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)*p/100]
}

// durationOf returns the duration in an environment variable, for what takes too
// long to be done every time.
func durationOf(t *testing.T, name string, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}
