package integration_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/clients"
	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestRuleOfANewerRelease: another gateway writes a rule of a kind that this release does not know.
// Tokens that it may match are answered with 503, all others as before, and the rule survives a Redis
// that loses it.
func TestRuleOfANewerRelease(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, fleetOptions{size: 2})
	old := f.token()
	until := time.Now().Add(50 * time.Millisecond)
	gatewaytest.Eventually(t, patience, "the instant has come", func() bool { return time.Now().After(until.Add(time.Millisecond)) })
	value := fmt.Sprintf(`{"end":%d,"created":%d,"kind":"scope","scope":"svc","from":0,"until":%d}`,
		time.Now().Add(time.Hour).UnixMilli(), until.UnixMilli(), until.UnixMilli())
	const field = "i:scope-svc"
	f.redis.Do("HSET", "{sg}:rev", field, value)
	f.redis.Do("HINCRBY", "{sg}:rev", "v", "1")
	for i, g := range f.gateways {
		gatewaytest.Eventually(t, patience, fmt.Sprintf("gateway %d holds the rule", i), func() bool {
			return g.Metrics().Sum("snowgate_revocation_rules_unknown") == 1
		})
		if got, err := f.ask(i, "/svc/x", old); err != nil || got.status != http.StatusServiceUnavailable {
			t.Errorf("gateway %d answers %d, %v to a token that the rule may match, want 503", i, got.status, err)
		}
		line := g.WaitLog("a newer version wrote a revocation rule of a kind that this one does not know: " +
			"tokens that it may match are answered with 503 until they expire; upgrade this gateway")
		if line["rule"] != "scope-svc" || line["kind"] != "scope" {
			t.Errorf("gateway %d logs %v, want the rule named", i, line)
		}
	}
	fresh := f.issue(1, f.client)
	f.wantAll("a token issued after the rule", fresh, http.StatusOK)
	f.redis.Do("HDEL", "{sg}:rev", field, "v")
	gatewaytest.Eventually(t, patience, "Redis is given the rule back", func() bool { return rulesIn(f.redis)[field] == value })
	for i, g := range f.gateways {
		if n := strings.Count(g.Log(), "scope-svc"); n != 1 {
			t.Errorf("gateway %d logs the rule %d times, want once", i, n)
		}
	}
}

// TestNewcomerOnAnEmptiedRedis: Redis loses everything, and a gateway is started in the same moment.
// It does not say that the registry's clients are unknown before the others have given them back.
func TestNewcomerOnAnEmptiedRedis(t *testing.T) {
	t.Parallel()
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	living := startAdministered(t, redis, 1, admin, upstream)
	var known []gatewaytest.Credentials
	for i := range 20 {
		known = append(known, living.create(fmt.Sprintf("client-%d", i)))
	}
	living.Signal(syscall.SIGSTOP) // so that the others are later than the newcomer
	redis.Do("FLUSHALL")
	newcomer := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + fileClient.YAML, NotReady: true,
		Env: []string{"SNOWGATE_REDIS_URL=" + redis.URL(), "SNOWGATE_WORKER_ID=2", "SNOWGATE_STORE_TIMEOUT=5s"},
	})
	newcomer.WaitLog("the revocation rules are confirmed")
	refused := 0
	ask := func(client gatewaytest.Credentials) bool {
		status, body := newcomer.Post("/oauth2/token", client, "grant_type", "client_credentials")
		if status == http.StatusUnauthorized {
			t.Fatalf("the newcomer says %s of a client that there is", body)
		}
		refused++
		return status == http.StatusOK
	}
	for _, client := range known {
		ask(client)
	}
	living.Signal(syscall.SIGCONT)
	gatewaytest.Eventually(t, 20*time.Second, "the newcomer issues tokens", func() bool { return ask(known[0]) })
	t.Logf("%d requests were answered with 503 before", refused)
}

// TestBesideThePreviousRelease: the previous release and this one work on one Redis. What either does,
// the other sees: tokens, revocations of every kind, clients, secrets and tag keys. Then the old one
// is replaced, under traffic, and nothing is refused that was good.
func TestBesideThePreviousRelease(t *testing.T) {
	cuttest.SkipUnlessWhole(t, "an older release has no relay")
	t.Parallel()
	previous := gatewaytest.Previous(t)
	redis, admin, upstream := redistest.Start(t), administrator(), gatewaytest.NewRecorder(t, "")
	old := startAdministeredBy(t, previous, redis, 1, admin, upstream)
	current := startAdministered(t, redis, 2, admin, upstream)
	for name, pair := range map[string][2]*administered{"old, current": {old, current}, "current, old": {current, old}} {
		crossCheck(t, name, pair[0], pair[1])
	}
	replaceUnderTraffic(t, old, current, func() *administered { return startAdministered(t, redis, 1, admin, upstream) })
}

// crossCheck has here do everything that gateways share, and compares what there sees.
func crossCheck(t *testing.T, name string, here, there *administered) {
	t.Helper()
	suffix := strings.ReplaceAll(name, ", ", "-")
	soon := func(what string, f func() bool) {
		t.Helper()
		gatewaytest.Eventually(t, patience, name+": "+what, f)
	}
	// same compares what both show. When a secret was last used, each notes for itself at first.
	uses := regexp.MustCompile(`,?"last_used_at":[^,}]*`)
	same := func(what, path string) {
		t.Helper()
		var diff string
		equal := func() bool {
			one, other := here.ask("GET", path, ""), there.ask("GET", path, "")
			diff = cmp.Diff(uses.ReplaceAllString(one.Body, ""), uses.ReplaceAllString(other.Body, ""))
			return diff == "" && one.StatusCode == http.StatusOK
		}
		for late := time.Now().Add(patience); !equal(); {
			if time.Now().After(late) {
				t.Errorf("%s: they show different things of %s (-one +other):\n%s", name, what, diff)
				return
			}
		}
	}
	if plain := here.Token(fileClient); !here.canCall(plain) || !there.canCall(plain) {
		t.Errorf("%s: a token of a client of the file is not good", name)
	}
	client := here.create("client-" + suffix)
	soon("the client is known", func() bool {
		status, _ := there.Post("/oauth2/token", client, "grant_type", "client_credentials")
		return status == http.StatusOK
	})
	token := there.Token(client)
	if !here.canCall(token) || !there.canCall(token) {
		t.Errorf("%s: a token of the other release is not good", name)
	}
	same("a token", "/tokens/"+tokenID(token))
	same("the clients", "/clients?source=registry")
	same("the tag keys", "/keys")
	for what, revoke := range map[string]func(token string){
		"the token":  func(token string) { here.Post("/oauth2/revoke", client, "token", token) },
		"its id":     func(token string) { here.ask("DELETE", "/tokens/"+tokenID(token), "") },
		"the client": func(string) { here.ask("POST", "/revocations", `{"client":"`+client.ID+`"}`) },
		"the worker": func(string) {
			here.ask("POST", "/revocations", fmt.Sprintf(`{"worker":%d,"from":%q,"until":%q}`, there.worker, instant(-time.Minute), instant(0)))
		},
		"everything": func(string) { here.ask("POST", "/revocations", `{"before":"`+instant(0)+`"}`) },
	} {
		token := there.Token(client)
		if !here.canCall(token) || !there.canCall(token) {
			t.Errorf("%s: a new token is not good before %s is revoked", name, what)
		}
		revoke(token)
		if here.canCall(token) {
			t.Errorf("%s: %s is revoked, and the token is good here", name, what)
		}
		soon(what+" is revoked there", func() bool { return !there.canCall(token) })
		for _, g := range []*administered{here, there} { // the administrator's token may be gone, too
			g.token = g.Token(gatewaytest.Credentials{ID: clients.AdminID, Secret: here.secret}, "scope", clients.AdminScope)
		}
	}
	same("the revocations", "/revocations")
	rotated := here.ask("POST", "/clients/"+client.ID+"/secrets", `{}`, "If-Match", "*")
	if rotated.StatusCode != http.StatusCreated {
		t.Errorf("%s: a new secret: %d %s", name, rotated.StatusCode, rotated.Body)
	}
	if got := here.ask("PUT", "/clients/"+client.ID, `{"client_id":"`+client.ID+`","scope":"orders.read","disabled":true}`, "If-Match", "*"); got.StatusCode != http.StatusOK {
		t.Errorf("%s: disable: %d %s", name, got.StatusCode, got.Body)
	}
	soon("the client is disabled there", func() bool {
		status, _ := there.Post("/oauth2/token", client, "grant_type", "client_credentials")
		return status == http.StatusUnauthorized
	})
	same("the clients", "/clients?source=registry")
	if got := here.ask("DELETE", "/clients/"+client.ID, "", "If-Match", "*"); got.StatusCode != http.StatusNoContent {
		t.Errorf("%s: delete: %d %s", name, got.StatusCode, got.Body)
	}
	same("the clients", "/clients?source=registry")
	if got := here.ask("POST", "/keys", `{}`); got.StatusCode/100 != 2 {
		t.Errorf("%s: rotate the tag key: %d %s", name, got.StatusCode, got.Body)
	}
	same("the tag keys", "/keys")
}

// replaceUnderTraffic stops old, starts its successor, and asks all the time whether tokens of all
// three are good on those that run.
func replaceUnderTraffic(t *testing.T, old, current *administered, successor func() *administered) {
	t.Helper()
	client := current.create("traffic")
	gatewaytest.Eventually(t, patience, "the client is known", func() bool {
		status, _ := old.Post("/oauth2/token", client, "grant_type", "client_credentials")
		return status == http.StatusOK
	})
	issued := []string{old.Token(client), current.Token(client)}
	differences, asked := 0, 0
	ask := func(at *administered) {
		for _, token := range issued {
			if asked++; !at.canCall(token) {
				differences++
			}
		}
	}
	for range 50 {
		ask(old)
		ask(current)
		issued = append(issued[1:], old.Token(client))
	}
	old.Signal(syscall.SIGTERM)
	stopped := make(chan struct{})
	go func() { defer close(stopped); old.Wait() }()
	for running := true; running; {
		select {
		case <-stopped:
			running = false
		default:
			ask(current)
		}
	}
	next := successor()
	for range 50 {
		ask(next)
		ask(current)
		issued = append(issued[1:], next.Token(client))
	}
	t.Logf("%d requests while the gateway was replaced", asked)
	if differences > 0 {
		t.Errorf("%d of %d requests with good tokens were refused", differences, asked)
	}
}
