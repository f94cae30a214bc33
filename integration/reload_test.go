package integration_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

const (
	// reloadTime is how long a change of the file may take to be in force: the
	// gateway looks once a second and waits until the file is the same twice.
	reloadTime = 5 * time.Second
	reread     = "the configuration file was read again"
	refused    = "the configuration file has faults; the state before stays in force"
)

// fileOf makes a configuration file of clients and routes.
func fileOf(clients []gatewaytest.Credentials, routes ...string) string {
	text := "clients:\n"
	for _, c := range clients {
		text += c.YAML
	}
	return text + "routes:\n  - " + strings.Join(routes, "\n  - ") + "\n"
}

// replaceFile puts a new file in the place of the old one, as editors do.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), "next.yaml")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// overwriteFile changes the file in place, as a shell does.
func overwriteFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// waitLines waits for the n-th line with that message and returns it.
func waitLines(t *testing.T, g *gatewaytest.Gateway, message string, n int) map[string]any {
	t.Helper()
	gatewaytest.Eventually(t, reloadTime, fmt.Sprintf("line %d of %q", n, message), func() bool { return len(g.Lines(message)) >= n })
	return g.Lines(message)[n-1]
}

func tokenStatus(g *gatewaytest.Gateway, c gatewaytest.Credentials) int {
	status, _ := g.Post("/oauth2/token", c, "grant_type", "client_credentials")
	return status
}

// TestReload follows one gateway through changes of its file, while other
// requests go on and one is under way on a route that disappears.
func TestReload(t *testing.T) {
	t.Parallel()
	s := newStage(t, "SNOWGATE_LOG_LEVEL=info")
	stays, leaves := s.client, gatewaytest.NewClient("leaver", "svc")
	upstream := gatewaytest.NewRecorder(t, "")
	svc := routeLine(t, s)
	fresh := `{name: fresh, path: /fresh, upstreams: [` + upstream.URL + `], scopes: [svc]}`
	open := `{name: open, path: /open, upstreams: [` + upstream.URL + `], public: true}`
	traffic := startTraffic(s)
	defer traffic.stop()

	// A client and a route more, in place.
	overwriteFile(t, s.ConfigPath, fileOf([]gatewaytest.Credentials{stays, leaves}, svc, fresh, open))
	waitLines(t, s.Gateway, reread, 1)
	if got := s.Get("/fresh/1", s.Token(leaves)); got.StatusCode != http.StatusOK {
		t.Errorf("a new client on a new route: %d", got.StatusCode)
	}
	if got := s.Get("/open/1", ""); got.StatusCode != http.StatusOK {
		t.Errorf("a new public route: %d", got.StatusCode)
	}

	// The client goes, the public route becomes protected, by renaming. A
	// request to the service is under way.
	running := s.begin(t)
	replaceFile(t, s.ConfigPath, fileOf([]gatewaytest.Credentials{stays}, svc, strings.Replace(open, "public: true", "scopes: [svc]", 1)))
	waitLines(t, s.Gateway, reread, 2)
	if got := tokenStatus(s.Gateway, leaves); got != http.StatusUnauthorized {
		t.Errorf("a client that was removed: %d, want 401", got)
	}
	if got := s.Get("/open/1", ""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a route that is protected now: %d, want 401", got.StatusCode)
	}
	if got := s.Get("/fresh/1", s.token); got.StatusCode != http.StatusNotFound {
		t.Errorf("a route that was removed: %d, want 404", got.StatusCode)
	}
	s.release()
	_ = running.SetReadDeadline(time.Now().Add(stallTime))
	if response, err := http.ReadResponse(bufio.NewReader(running), nil); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("the request that was under way: %v, %v", response, err)
	}
	traffic.stop()
	if enough := traffic.served.Load() >= 20 || cuttest.Current() != cuttest.Whole; traffic.failed.Load() > 0 || !enough {
		t.Errorf("%d of %d requests failed while the file changed", traffic.failed.Load(), traffic.served.Load())
	}
}

// routeLine returns the route that newStage wrote into the file.
func routeLine(t *testing.T, s *stage) string {
	t.Helper()
	text, err := os.ReadFile(s.ConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\{name: svc.*\}`).FindString(string(text))
}

// traffic asks for one protected path again and again.
type traffic struct {
	served, failed atomic.Int64
	quit, done     chan struct{}
}

func startTraffic(s *stage) *traffic {
	c := &traffic{quit: make(chan struct{}), done: make(chan struct{})}
	request := s.Request(http.MethodGet, "/svc/1", nil)
	request.Header.Set("Authorization", "Bearer "+s.token)
	go func() {
		defer close(c.done)
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-c.quit:
				return
			case <-pace.C:
			}
			c.served.Add(1)
			if got, err := gatewaytest.Do(request); err != nil || got.StatusCode != http.StatusOK {
				c.failed.Add(1)
			}
		}
	}()
	return c
}

func (c *traffic) stop() {
	select {
	case <-c.quit:
	default:
		close(c.quit)
	}
	<-c.done
}

// TestBadFileChangesNothing: a typing error at three in the morning must not
// take the gateway down, half-applied or in whole.
func TestBadFileChangesNothing(t *testing.T) {
	t.Parallel()
	upstream := gatewaytest.NewRecorder(t, "")
	old, next := gatewaytest.NewClient("old", "a"), gatewaytest.NewClient("next", "a")
	route := `{name: one, path: /one, upstreams: [` + upstream.URL + `], scopes: [a]}`
	g := gatewaytest.Start(t, gatewaytest.Options{Config: fileOf([]gatewaytest.Credentials{old}, route)})
	token := g.Token(old)

	for i, bad := range []struct{ name, text, place, says string }{
		// The line is the sixth: clients, id, secrets, scopes, routes, and this.
		{"an unknown key", fileOf([]gatewaytest.Credentials{next}, `{name: one, path: /one, upstreems: [x]}`), "6:29", "upstreems"},
		{"not YAML", fileOf([]gatewaytest.Credentials{next}, `{name: "one, path: /one`), "7:1", "not YAML"},
		{"a route over the gateway's own paths", fileOf([]gatewaytest.Credentials{next}, `{name: one, path: /oauth2, upstreams: [http://x], public: true}`), "6:", "/oauth2"},
		{"no file", "", "", "no such file"},
	} {
		if bad.text == "" {
			if err := os.Remove(g.ConfigPath); err != nil {
				t.Fatal(err)
			}
		} else {
			replaceFile(t, g.ConfigPath, bad.text)
		}
		g.Signal(syscall.SIGHUP) // somebody waits: a response at once
		line := waitLines(t, g, refused, i+1)
		if says := fmt.Sprint(line["error"]); !strings.Contains(says, g.ConfigPath) || !strings.Contains(says, bad.place) || !strings.Contains(says, bad.says) {
			t.Errorf("%s: the log says %q, want the file, %q and %q", bad.name, says, bad.place, bad.says)
		}
		if got := g.Get("/one/1", token); got.StatusCode != http.StatusOK {
			t.Errorf("%s: the route: %d", bad.name, got.StatusCode)
		}
		if one, other := tokenStatus(g, old), tokenStatus(g, next); one != http.StatusOK || other != http.StatusUnauthorized {
			t.Errorf("%s: old client %d, new one %d, want 200 and 401", bad.name, one, other)
		}
	}
	if m := g.Metrics(); m.Sum("snowgate_config_reloads_total", `result="error"`) < 4 {
		t.Errorf("reloads: %v", m.Sum("snowgate_config_reloads_total", `result="error"`))
	}
	// The correction needs no signal.
	replaceFile(t, g.ConfigPath, fileOf([]gatewaytest.Credentials{next}, route))
	waitLines(t, g, reread, 1)
	if one, other := tokenStatus(g, old), tokenStatus(g, next); one != http.StatusUnauthorized || other != http.StatusOK {
		t.Errorf("after a good file: old client %d, new one %d, want 401 and 200", one, other)
	}
}

// TestFileThatStaysIsNotReadAgain: a gateway looks at its file for as long as a token of some
// seconds lives, and says nothing of it.
func TestFileThatStaysIsNotReadAgain(t *testing.T) {
	t.Parallel()
	brief := gatewaytest.NewClient("brief", "a", "token_ttl: 4s") // the gateway looks once a second
	route := `{name: open, path: /open, upstreams: [http://127.0.0.1:1], scopes: [a]}`
	g := gatewaytest.Start(t, gatewaytest.Options{Config: fileOf([]gatewaytest.Credentials{brief}, route)})
	token := g.Token(brief)
	gatewaytest.Eventually(t, 20*time.Second, "the token expires", func() bool {
		return g.Get("/open", token).StatusCode == http.StatusUnauthorized
	})
	if lines := g.Lines(reread); len(lines) != 0 {
		t.Errorf("the file was read again though it is the same: %v", lines)
	}
}

// TestHangup: SIGHUP reads the file at once and says so, changed or not, and
// never ends the gateway.
func TestHangup(t *testing.T) {
	t.Parallel()
	one, two := gatewaytest.NewClient("one", "a"), gatewaytest.NewClient("two", "a")
	route := `{name: open, path: /open, upstreams: [http://127.0.0.1:1], public: true}`
	g := gatewaytest.Start(t, gatewaytest.Options{Config: fileOf([]gatewaytest.Credentials{one}, route)})
	g.Signal(syscall.SIGHUP)
	waitLines(t, g, reread, 1)
	replaceFile(t, g.ConfigPath, fileOf([]gatewaytest.Credentials{one, two}, route))
	begin := time.Now()
	g.Signal(syscall.SIGHUP)
	waitLines(t, g, reread, 2)
	t.Logf("in force %v after SIGHUP", time.Since(begin))
	g.Token(two)
	if got := g.Metrics().Sum("snowgate_config_last_reload_timestamp_seconds"); got < float64(begin.Unix()) {
		t.Errorf("snowgate_config_last_reload_timestamp_seconds = %v, it is %v", got, begin.Unix())
	}
}
