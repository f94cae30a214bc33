package integration_test

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"snowgate/integration/gatewaytest"
	"snowgate/proxy/docker/dockertest"
)

// reload puts text behind the routes of the file and has it read.
func (s *dockerSite) reload(routes string) {
	s.t.Helper()
	text, err := os.ReadFile(s.ConfigPath)
	if err != nil {
		s.t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "routes: [")
	own := "{name: file, path: /file, upstreams: [" + s.service("file") + "], public: true}"
	if err := os.WriteFile(s.ConfigPath, []byte(head+"routes: ["+own+routes+"]\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	read := len(s.Lines("the configuration file was read again"))
	s.Signal(syscall.SIGHUP)
	gatewaytest.Eventually(s.t, discoverySoon, "read the file", func() bool {
		return len(s.Lines("the configuration file was read again")) > read
	})
}

// TestVerdictsBesideLabels: no label makes a verdict of 403 one of 200, whatever its place.
func TestVerdictsBesideLabels(t *testing.T) {
	t.Parallel()
	docker := dockertest.Start(t, "tcp")
	s := newDockerSite(t, docker, "SNOWGATE_TRUSTED_PROXIES="+ownAddress(t).Addr().String()+",127.0.0.1")
	s.reload(`, {name: beside, path: /beside, scopes: [beside.admin]}, {name: hosted, host: shop.example, path: /only, scopes: [beside.admin]}`)
	list := []dockertest.Container{
		s.container("deeper", "path", "/beside/admin"),
		s.container("equal", "path", "/beside"),
		s.container("onhost", "path", "/beside", "host", "shop.example"),
		s.container("above", "path", "/", "host", "shop.example"),
		s.container("apart", "path", "/apart"),
	}
	for i := range list {
		list[i].Labels["com.docker.compose.service"] = list[i].ID
	}
	docker.Set(list...)
	docker.Event("start", "apart")
	s.becomes("/apart", "200 apart") // the others were looked at by then
	for _, tt := range []struct {
		host, uri string
		want      int
	}{
		{"other.example", "/beside", 403},
		{"other.example", "/beside/admin", 403},
		{"other.example", "/beside/admin/x?y", 403},
		{"shop.example", "/beside", 403},
		{"shop.example", "/beside/admin", 403},
		{"SHOP.example:443", "/beside/admin", 403},
		{"shop.example", "/only/x", 403},
		{"shop.example", "/", 403}, // no route
		{"other.example", "/apart", 200},
		{"shop.example", "/apart/x", 200},
	} {
		got := verdict(s.Gateway, described{http.MethodGet, tt.uri, tt.host, s.token})
		if got.StatusCode != tt.want {
			t.Errorf("the verdict on %s%s is %d %s, want %d", tt.host, tt.uri, got.StatusCode, got.Body, tt.want)
		}
	}
}

// TestFileTakesThePlaceOfALabel: the file wins, and the label's route comes back when the file
// gives the place up.
func TestFileTakesThePlaceOfALabel(t *testing.T) {
	t.Parallel()
	docker := dockertest.Start(t, "unix")
	s := newDockerSite(t, docker)
	docker.Set(s.container("one", "path", "/a/b", "name", "label"))
	docker.Event("start", "one")
	s.becomes("/a/b", "200 one")
	for i, tt := range []struct{ name, path, reason string }{
		{"taker", "/a/b", `route "label" of shop/svc: it would take requests for host "" and path "/a/b" from route "taker" of the file`},
		{"above", "/a", `from route "above" of the file, which has host "" and path "/a"`},
		{"label", "/elsewhere", `route "label" of shop/svc: route "label" of the file has the same name`},
	} {
		s.reload(", {name: " + tt.name + ", path: " + tt.path + ", upstreams: [" + s.service("taken") + "], public: true}")
		want := "200 taken"
		if tt.path == "/elsewhere" {
			want = "404"
		}
		s.becomes("/a/b", want)
		lines := s.Lines("a discovered route is not in force")
		if len(lines) != i+1 || !strings.Contains(lines[i]["reason"].(string), tt.reason) {
			t.Errorf("%s: the log says %v, want one more with %s", tt.name, lines, tt.reason)
		}
		if m := s.Metrics(); m.Sum("snowgate_discovery_refused_routes") != 1 {
			t.Errorf("%s: %v routes are refused, want 1", tt.name, m.Sum("snowgate_discovery_refused_routes"))
		}
		s.reload("")
		s.becomes("/a/b", "200 one")
		if back := s.Lines("a discovered route is in force again"); len(back) != i+1 {
			t.Errorf("%s: the log says %v, want that the route is back", tt.name, back)
		}
	}
}
