package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// documentedRights returns what docs/how-to/check-before-a-start.md says that a user needs who may do nothing but run
// a gateway.
func documentedRights(t *testing.T) []string {
	t.Helper()
	_, rest, found := strings.Cut(readFile(t, filepath.Join("..", "docs", "how-to", "check-before-a-start.md")), "```acl\n")
	rights, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/how-to/check-before-a-start.md names no rights")
	}
	return strings.Fields(rights)
}

// TestConfigCheckRedis: config -check -redis names everything in Redis that would keep a gateway
// from working there, and passes beside one that works.
func TestConfigCheckRedis(t *testing.T) {
	t.Parallel()
	client := gatewaytest.NewClient("worker", "orders.read")
	server := redistest.Start(t)
	gatewayRights := slices.DeleteFunc(documentedRights(t), func(right string) bool { return right == "+multi" || right == "+discard" })
	rights := func(server *redistest.Server, rights ...string) string {
		server.Do(append([]string{"ACL", "SETUSER", "gateway", "reset", "on", ">hunter2"}, rights...)...)
		return "SNOWGATE_REDIS_URL=redis://gateway:hunter2@" + server.Addr()
	}
	exact := rights(server, append(gatewayRights, "+multi", "+discard")...)
	g := gatewaytest.Start(t, gatewaytest.Options{Config: "clients:\n" + client.YAML + protectedRoute, Env: []string{exact, "SNOWGATE_STORE_TIMEOUT=5s"}})
	g.Token(client)

	check := func(server *redistest.Server, code int, env []string, want ...string) {
		t.Helper()
		got, output := snowgate(t, env, "config", "-check", "-redis")
		if got != code {
			t.Errorf("it ends with %d, want %d:\n%s", got, code, output)
		}
		for _, text := range want {
			if !strings.Contains(output, text) {
				t.Errorf("it does not say %q:\n%s", text, output)
			}
		}
		if strings.Contains(output, "hunter2") {
			t.Errorf("it says the password:\n%s", output)
		}
	}
	check(server, 0, []string{exact, "SNOWGATE_CONFIG=" + g.ConfigPath})
	check(server, 2, []string{exact, "SNOWGATE_ID_LAYOUT=" + otherLayout, "SNOWGATE_TOKEN_KEY=" + tokenKey('a'), "SNOWGATE_EPOCH=2026-02-01T00:00:00Z"},
		otherLayout, "the epoch is configured as", "the token key is configured as", "SNOWGATE_ID_LAYOUT=time:41,worker:10,sequence:12")

	for _, missing := range []struct{ right, named string }{{"+zadd", "ZADD {sg}:wl"}, {"~sg:*", "SET sg:t:x"}, {"&{sg}:*", "PUBLISH {sg}:push"}} {
		left := slices.DeleteFunc(slices.Clone(gatewayRights), func(right string) bool { return right == missing.right })
		url := rights(server, append(left, "+multi", "+discard")...)
		check(server, 2, []string{url}, "SNOWGATE_REDIS_URL: its user may not", missing.named)
		check(server, 2, []string{rights(server, append(left, "+acl")...)}, missing.named)
	}
	check(server, 0, []string{rights(server, gatewayRights...)}, "its rights cannot be looked at")
	check(server, 0, []string{rights(server, append(gatewayRights, "+multi")...)}, "its rights cannot be looked at")
	check(server, 2, []string{"SNOWGATE_REDIS_URL=redis://gateway:wrong@" + server.Addr()}, "the password is wrong")
	rights(server, append(gatewayRights, "+multi", "+discard")...)

	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	check(server, 2, []string{exact}, "maxmemory-policy of this Redis is allkeys-lru", "noeviction")
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	check(server, 1, []string{"SNOWGATE_REDIS_URL=redis://127.0.0.1:1"}, "Redis cannot be asked")
	check(server, 2, nil, "SNOWGATE_REDIS_URL is not set")
	if code, output := snowgate(t, nil, "config", "-redis"); code != 2 || !strings.Contains(output, "-check") {
		t.Errorf("-redis alone ends with %d: %s", code, output)
	}
}

// TestConfigCheckClock: the offset between the clocks of Redis and the host is told.
func TestConfigCheckClock(t *testing.T) {
	t.Parallel()
	server := redistest.StartWithClock(t)
	server.Do("CONFIG", "SET", "appendonly", "yes") // or there is a remark
	url := []string{"SNOWGATE_REDIS_URL=" + server.URL()}
	if code, output := snowgate(t, url, "config", "-check", "-redis"); code != 0 || output != "ok: the variables, Redis; SNOWGATE_CONFIG is not set\n" {
		t.Errorf("with the clocks alike it ends with %d:\n%s", code, output)
	}
	server.StepClock(-1 * 3600e9)
	if code, output := snowgate(t, url, "config", "-check", "-redis"); code != 0 || !strings.Contains(output, "the clock of Redis is ") || !strings.Contains(output, "behind") {
		t.Errorf("with Redis an hour behind it ends with %d:\n%s", code, output)
	}
	if got := server.Do("DBSIZE"); got != "0" {
		t.Errorf("the check has left %s keys in Redis", got)
	}
}

// TestConfigCheckWithoutRedis: config -check finds what a start on this host would, all at once.
func TestConfigCheckWithoutRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "state")
	if err := os.WriteFile(file, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		env  []string
		want []string
	}{
		{[]string{"SNOWGATE_WORKER_ID=1", "SNOWGATE_STATE_FILE=" + file}, []string{"SNOWGATE_STATE_FILE", "corrupt", file}},
		{[]string{"SNOWGATE_WORKER_ID=1", "SNOWGATE_STATE_FILE=" + filepath.Join(dir, "none", "state")}, []string{"SNOWGATE_STATE_FILE", "no such file"}},
		{[]string{"SNOWGATE_WORKER_ID=ipv4", "SNOWGATE_ID_LAYOUT=time:41,worker:1,sequence:12", "SNOWGATE_STATE_FILE=" + file},
			[]string{"does not fit the worker field", "corrupt"}},
	} {
		code, output := snowgate(t, tt.env, "config", "-check")
		if code != 2 {
			t.Errorf("%v: it ends with %d:\n%s", tt.env, code, output)
		}
		for _, want := range tt.want {
			if !strings.Contains(output, want) {
				t.Errorf("%v: it does not say %q:\n%s", tt.env, want, output)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the check has left %v (%v)", left, err)
	}
}
