package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// patience is how long another gateway may take to follow a change, with room for
// a machine that is busy with other things.
const patience = 5 * time.Second

// administered is a gateway with a route, and an administrator of it.
type administered struct {
	*gatewaytest.Gateway
	t      *testing.T
	token  string
	secret string // of the administrator
	worker int
}

// administrator is the client that the gateways are bootstrapped with.
func administrator() gatewaytest.Credentials {
	secret, _ := clients.NewSecret()
	return gatewaytest.Credentials{ID: clients.AdminID, Secret: secret.Reveal()}
}

func startAdministered(t *testing.T, redis *redistest.Server, worker int, admin gatewaytest.Credentials, upstream *gatewaytest.Recorder, env ...string) *administered {
	t.Helper()
	return startAdministeredBy(t, "", redis, worker, admin, upstream, env...)
}

// startAdministeredBy starts the gateway of a binary, "" for the one under test.
func startAdministeredBy(t *testing.T, binary string, redis *redistest.Server, worker int, admin gatewaytest.Credentials, upstream *gatewaytest.Recorder, env ...string) *administered {
	t.Helper()
	g := gatewaytest.Start(t, gatewaytest.Options{
		Binary: binary,
		Config: "clients:\n" + fileClient.YAML + "routes:\n  - {name: orders, path: /orders, upstreams: [" + upstream.URL + "], scopes: [orders.read]}\n",
		Env: append([]string{
			"SNOWGATE_REDIS_URL=" + redis.URL(), fmt.Sprint("SNOWGATE_WORKER_ID=", worker),
			"SNOWGATE_ADMIN_CLIENT_SECRET=" + admin.Secret, "GORACE=atexit_sleep_ms=0",
			// This test is about who wins, not about the speed of a busy machine.
			"SNOWGATE_STORE_TIMEOUT=5s",
		}, env...),
	})
	return &administered{g, t, g.Token(admin, "scope", clients.AdminScope), admin.Secret, worker}
}

var fileClient = gatewaytest.NewClient("in-the-file", "orders.read")

// ask sends a request to the admin API. header holds names and values in turn.
func (a *administered) ask(method, path, body string, header ...string) gatewaytest.Response {
	a.t.Helper()
	response, err := a.tryAsk(method, path, body, header...)
	if err != nil {
		a.t.Fatal(err)
	}
	return response
}

func (a *administered) tryAsk(method, path, body string, header ...string) (gatewaytest.Response, error) {
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.AdminURL+"/admin/v1"+path, strings.NewReader(body))
	if err != nil {
		return gatewaytest.Response{}, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	return gatewaytest.Do(request)
}

// create makes a client and returns its credentials.
func (a *administered) create(id string) gatewaytest.Credentials {
	a.t.Helper()
	got := a.ask("POST", "/clients", `{"client_id":"`+id+`","scope":"orders.read"}`)
	var made struct {
		Secret string `json:"client_secret"`
	}
	if err := json.Unmarshal([]byte(got.Body), &made); err != nil || got.StatusCode != http.StatusCreated {
		a.t.Fatalf("create %s: %d %s", id, got.StatusCode, got.Body)
	}
	return gatewaytest.Credentials{ID: id, Secret: made.Secret}
}

// canCall reports whether a token opens the route: 200 or 401, and nothing else.
func (a *administered) canCall(token string) bool {
	a.t.Helper()
	got := a.Get("/orders/1", token)
	if got.StatusCode != http.StatusOK && got.StatusCode != http.StatusUnauthorized {
		a.t.Errorf("GET /orders/1 = %d %s", got.StatusCode, got.Body)
	}
	return got.StatusCode == http.StatusOK
}

func TestAdminAPIReadsItsOwnWrites(t *testing.T) {
	t.Parallel()
	g := startAdministered(t, redistest.Start(t), 1, administrator(), gatewaytest.NewRecorder(t, ""))
	for i := range 20 {
		client := g.create(fmt.Sprintf("client-%d", i))
		if !g.canCall(g.Token(client)) {
			t.Fatalf("client %d cannot call at once", i)
		}
		if got := g.ask("GET", "/clients/"+client.ID, ""); got.StatusCode != http.StatusOK || got.Header.Get("ETag") == "" {
			t.Fatalf("read: %d %s", got.StatusCode, got.Body)
		}
		if list := g.ask("GET", "/clients?source=registry", ""); strings.Count(list.Body, `"client_id"`) != i+1 {
			t.Fatalf("list after %d: %s", i+1, list.Body)
		}
	}
}

func TestAdminAPICreatesOnce(t *testing.T) {
	t.Parallel()
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	gateways := []*administered{startAdministered(t, redis, 1, admin, upstream), startAdministered(t, redis, 2, admin, upstream)}
	const attempts = 200
	var wg sync.WaitGroup
	responses := make(chan gatewaytest.Response, attempts)
	begin := make(chan struct{})
	for i := range attempts {
		wg.Go(func() {
			<-begin
			response, err := gateways[i%len(gateways)].tryAsk("POST", "/clients", `{"client_id":"one","scope":"orders.read"}`)
			if err != nil {
				t.Error(err)
			}
			responses <- response
		})
	}
	close(begin)
	wg.Wait()
	close(responses)
	count := map[int]int{}
	var secret string
	for response := range responses {
		count[response.StatusCode]++
		if response.StatusCode == http.StatusCreated {
			var made struct {
				Secret string `json:"client_secret"`
			}
			if err := json.Unmarshal([]byte(response.Body), &made); err != nil {
				t.Error(err)
			}
			secret = made.Secret
		}
	}
	if count[http.StatusCreated] != 1 || count[http.StatusCreated]+count[http.StatusConflict] != attempts {
		t.Fatalf("answers by status: %v, want one 201 and else 409", count)
	}
	// The one that was made is the one whose secret was shown.
	gatewaytest.Eventually(t, patience, "both gateways know the client", func() bool {
		status, _ := gateways[1].Post("/oauth2/token", gatewaytest.Credentials{ID: "one", Secret: secret}, "grant_type", "client_credentials")
		return status == http.StatusOK
	})
	if !gateways[0].canCall(gateways[0].Token(gatewaytest.Credentials{ID: "one", Secret: secret})) {
		t.Error("the secret that was shown does not work")
	}
}

// A change at one gateway is in force at the other within a second, for live tokens, too.
func TestAdminAPIReachesTheOtherGateway(t *testing.T) {
	t.Parallel()
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	here, there := startAdministered(t, redis, 1, admin, upstream), startAdministered(t, redis, 2, admin, upstream)
	steps := []struct {
		what string
		do   func(client gatewaytest.Credentials) gatewaytest.Response
		back bool // the client can get new tokens afterwards
	}{
		{"disable", func(c gatewaytest.Credentials) gatewaytest.Response {
			return here.ask("PUT", "/clients/"+c.ID, `{"client_id":"`+c.ID+`","scope":"orders.read","disabled":true}`, "If-Match", "*")
		}, false},
		{"delete", func(c gatewaytest.Credentials) gatewaytest.Response {
			return here.ask("DELETE", "/clients/"+c.ID, "", "If-Match", "*")
		}, false},
		{"take the scope away", func(c gatewaytest.Credentials) gatewaytest.Response {
			return here.ask("PUT", "/clients/"+c.ID, `{"client_id":"`+c.ID+`","scope":"other"}`, "If-Match", "*")
		}, true},
		{"revoke", func(c gatewaytest.Credentials) gatewaytest.Response {
			return here.ask("POST", "/revocations", `{"client":"`+c.ID+`"}`)
		}, true},
	}
	for i, step := range steps {
		client := here.create(fmt.Sprintf("client-%d", i))
		var token string
		gatewaytest.Eventually(t, patience, "the other gateway knows the client", func() bool {
			status, _ := there.Post("/oauth2/token", client, "grant_type", "client_credentials")
			return status == http.StatusOK
		})
		token = there.Token(client)
		if !here.canCall(token) || !there.canCall(token) {
			t.Fatalf("%s: the token is not good before", step.what)
		}
		if got := step.do(client); got.StatusCode/100 != 2 {
			t.Fatalf("%s: %d %s", step.what, got.StatusCode, got.Body)
		}
		stopped := func(g *administered) bool {
			got := g.Get("/orders/1", token).StatusCode
			if got != http.StatusOK && got != http.StatusUnauthorized && got != http.StatusForbidden {
				t.Errorf("%s: %d", step.what, got)
			}
			return got != http.StatusOK
		}
		begin := time.Now()
		if !stopped(here) {
			t.Errorf("%s: the token is still good where it was done", step.what)
		}
		gatewaytest.Eventually(t, patience, step.what+" at the other gateway", func() bool { return stopped(there) })
		gatewaytest.Eventually(t, patience, step.what+": new tokens at the other gateway", func() bool {
			status, _ := there.Post("/oauth2/token", client, "grant_type", "client_credentials")
			return (status == http.StatusOK) == step.back
		})
		t.Logf("%s: in force at the other gateway, for live tokens and new ones, %v after the answer", step.what, time.Since(begin))
	}
}

// A secret is rotated without a gap, and a leaked one without an overlap.
func TestAdminAPIRotatesSecrets(t *testing.T) {
	t.Parallel()
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	here, there := startAdministered(t, redis, 1, admin, upstream), startAdministered(t, redis, 2, admin, upstream)
	first := here.create("worker")
	add := func(body string) gatewaytest.Credentials {
		got := here.ask("POST", "/clients/worker/secrets", body)
		var made struct {
			Secret string `json:"client_secret"`
		}
		if err := json.Unmarshal([]byte(got.Body), &made); err != nil || got.StatusCode != http.StatusCreated {
			t.Fatalf("add a secret: %d %s", got.StatusCode, got.Body)
		}
		return gatewaytest.Credentials{ID: "worker", Secret: made.Secret}
	}
	works := func(g *administered, c gatewaytest.Credentials) bool {
		status, body := g.Post("/oauth2/token", c, "grant_type", "client_credentials")
		if status != http.StatusOK && status != http.StatusUnauthorized {
			t.Errorf("token request: %d %s", status, body)
		}
		return status == http.StatusOK
	}
	second := add(`{"others_expire_in":3600}`)
	if !works(here, first) || !works(here, second) {
		t.Error("during the overlap not both secrets work")
	}
	gatewaytest.Eventually(t, patience, "the new secret works at the other gateway", func() bool { return works(there, second) })
	if !works(there, first) {
		t.Error("during the overlap the old secret does not work at the other gateway")
	}
	third := add(`{"others_expire_in":0}`)
	if works(here, first) || works(here, second) || !works(here, third) {
		t.Error("after a rotation without an overlap an old secret works, or the new one does not")
	}
	gatewaytest.Eventually(t, patience, "the old secrets are gone at the other gateway", func() bool {
		return !works(there, first) && !works(there, second) && works(there, third)
	})
	// The last use of the one that is left is told, here before it is written down.
	got := here.ask("GET", "/clients/worker/secrets", "")
	if strings.Count(got.Body, `"id":`) != 1 || !strings.Contains(got.Body, `"last_used_at":`) {
		t.Errorf("secrets: %s", got.Body)
	}
}

func TestAdminAPISparesConfiguredClients(t *testing.T) {
	t.Parallel()
	g := startAdministered(t, redistest.Start(t), 1, administrator(), gatewaytest.NewRecorder(t, ""))
	token := g.Token(fileClient)
	for _, request := range [][2]string{{"PUT", `{"client_id":"in-the-file"}`}, {"DELETE", ""}} {
		if got := g.ask(request[0], "/clients/in-the-file", request[1], "If-Match", "*"); got.StatusCode != http.StatusConflict || !strings.Contains(got.Body, "configuration file") {
			t.Errorf("%s: %d %s", request[0], got.StatusCode, got.Body)
		}
	}
	if got := g.ask("POST", "/clients", `{"client_id":"in-the-file"}`); got.StatusCode != http.StatusConflict {
		t.Errorf("create: %d %s", got.StatusCode, got.Body)
	}
	if !g.canCall(token) {
		t.Error("the client's token is not good any more")
	}
	// All of it was written down.
	outcomes := map[any]int{}
	for _, line := range g.Lines("audit") {
		outcomes[line["outcome"]]++
		if line["actor"] != clients.AdminID || line["actor_token_id"] == "" || line["request_id"] == "" {
			t.Errorf("audit line %v", line)
		}
	}
	if outcomes["refused"] != 3 || len(outcomes) != 1 {
		t.Errorf("outcomes of the audit lines: %v, want 3 refused", outcomes)
	}
}

func TestAdminAPIWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	g := startAdministered(t, redis, 1, administrator(), gatewaytest.NewRecorder(t, ""), "SNOWGATE_STORE_TIMEOUT=250ms")
	g.create("worker")
	redis.Freeze()
	for _, request := range [][3]string{
		{"POST", "/clients", `{"client_id":"late"}`},
		{"POST", "/revocations", `{"client":"worker"}`},
		{"DELETE", "/clients/worker", ""},
	} {
		got := g.ask(request[0], request[1], request[2], "If-Match", "*")
		if got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s %s without Redis: %d %s", request[0], request[1], got.StatusCode, got.Body)
		}
	}
	redis.Resume()
	gatewaytest.Eventually(t, 2*patience, "the API works again", func() bool {
		return g.ask("GET", "/clients/in-the-file", "").StatusCode == http.StatusOK
	})
}

// The routes, the keys and the state of a real gateway have the form that the
// document promises; the handlers' own tests use made-up ones.
func TestAdminAPIShowsTheGateway(t *testing.T) {
	t.Parallel()
	g := startAdministered(t, redistest.Start(t), 1, administrator(), gatewaytest.NewRecorder(t, ""))
	for path, want := range map[string][]string{
		"/routes":       {`"name":"orders"`, `"source":"file"`, `"scopes":["orders.read"]`},
		"/keys":         {`{"keys":[{"state":"current"}]}`},
		"/health":       {`"ready":true`, `"reachable":true`, `"version":`, `"clients":2`},
		"/revocations":  {`"revocations":[`},
		"/openapi.json": {`"openapi": "3.1.0"`},
	} {
		got := g.ask("GET", path, "")
		for _, part := range want {
			if got.StatusCode != http.StatusOK || !strings.Contains(got.Body, part) {
				t.Errorf("GET %s = %d %.500s, want %s in it", path, got.StatusCode, got.Body, part)
			}
		}
	}
	if got := g.ask("POST", "/keys", ""); got.StatusCode != http.StatusCreated {
		t.Errorf("POST /keys = %d %s", got.StatusCode, got.Body)
	}
	// The clock that judges is that of Redis.
	if got := g.ask("POST", "/revocations", `{"before":"2200-01-01T00:00:00Z"}`); got.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(got.Body, "future") {
		t.Errorf("a revocation of the future = %d %s", got.StatusCode, got.Body)
	}
	if got := g.ask("GET", "/nothing", ""); got.StatusCode != http.StatusNotFound || got.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("GET /nothing = %d %v", got.StatusCode, got.Header)
	}
	if got := g.ask("BREW", "/clients", ""); got.StatusCode != http.StatusNotImplemented && got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("BREW /clients = %d", got.StatusCode)
	}
}
