package engine_test

import (
	"net/http"
	"testing"
	"time"
)

// While Docker cannot be reached, routes stay as they were; when it can be again,
// what was missed is made up for.
func TestEngineUnreachable(t *testing.T) {
	p := engine(t)
	l := p.load(t, "/inventory/1", "inventory")
	begin, mark := time.Now(), p.log.mark()
	p.compose(t, "stop", "-t", "1", "docker-proxy")
	p.awaitLog(t, mark, `"level":"warn"`, "Docker cannot be reached")
	labels := []string{"snowgate.enable", "true", "snowgate.path", "/missed", "snowgate.scopes", "orders.read"}
	p.launch(t, "missed", labels)
	awaitOutcomes(t, l, 200)
	if got := p.get(t, "/missed"); got.StatusCode != http.StatusNotFound {
		t.Errorf("a container that the gateway cannot know of: %d, want 404", got.StatusCode)
	}
	p.compose(t, "start", "docker-proxy")
	back := time.Now()
	p.awaitStatus(t, "/missed", http.StatusOK)
	t.Logf("the missed container is asked %v after the proxy is back", time.Since(back))
	outcomes := l.stop()
	if n := len(failures(outcomes)); n > 0 {
		t.Errorf("%d requests failed; %s", n, describe(outcomes, begin))
	}
}

// Containers with faulty labels, and those that cannot be reached, are named in
// the log and hurt nobody else.
func TestFaultyContainers(t *testing.T) {
	p := engine(t)
	others := p.bystander(t)
	mark := p.log.mark()
	enabled := func(more ...string) []string { return append([]string{"snowgate.enable", "true"}, more...) }
	p.launch(t, "thief", enabled("snowgate.path", "/oauth2", "snowgate.scopes", "orders.read"))
	p.launch(t, "rival", enabled("snowgate.path", "/billing", "snowgate.scopes", "billing.read"))
	p.launch(t, "open", enabled("snowgate.path", "/open", "snowgate.public", "true"))
	p.launch(t, "misspelt", enabled("snowgate.path", "/misspelt", "snowgate.scope", "orders.read"))
	island := p.launch(t, "island", enabled("snowgate.path", "/island", "snowgate.scopes", "orders.read"), "--network=none")
	for name, word := range map[string]string{
		"thief":    "/oauth2",
		"rival":    "/billing",
		"open":     "SNOWGATE_DOCKER_ALLOW_PUBLIC",
		"misspelt": "snowgate.scope",
		"island":   "network",
	} {
		p.awaitLog(t, mark, `"level":"warn"`, p.name+"-"+name, word)
	}
	if _, err := p.newToken(); err != nil {
		t.Errorf("tokens, after a label has claimed /oauth2: %v", err)
	}
	// A stopped container without a network in common with the gateway claims no route: it belongs
	// to another project.
	docker(t, "stop", "-t", "1", island)
	p.launch(t, "last", enabled("snowgate.path", "/last", "snowgate.scopes", "orders.read"))
	p.awaitStatus(t, "/last", http.StatusOK)
	for _, path := range []string{"/open", "/misspelt", "/island"} {
		if got := p.get(t, path); got.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s = %d, want 404", path, got.StatusCode)
		}
	}
	if got := p.get(t, "/inventory/1"); got.StatusCode != http.StatusOK {
		t.Errorf("GET /inventory/1 = %d, want 200", got.StatusCode)
	}
	others.mustBeFine(t)
}
