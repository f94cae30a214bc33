package redisstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest/redistest"
)

// monitored runs a monitor of store until the test ends, and returns the changes that it reports.
func monitored(t *testing.T, store *redisstore.Store, cfg redisstore.MonitorConfig) (*redisstore.Monitor, <-chan redisstore.Health) {
	t.Helper()
	changes := make(chan redisstore.Health, 16)
	cfg.OnChange = func(h redisstore.Health) { changes <- h }
	monitor := store.Monitor(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { monitor.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return monitor, changes
}

// nextChange returns the next report, or fails the test if there is none.
func nextChange(t *testing.T, changes <-chan redisstore.Health) redisstore.Health {
	t.Helper()
	select {
	case h := <-changes:
		return h
	case <-time.After(10 * time.Second):
		t.Fatal("the monitor reports no change")
		return redisstore.Health{}
	}
}

func TestMonitorFollowsTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	monitor, changes := monitored(t, store, redisstore.MonitorConfig{})
	h := nextChange(t, changes)
	if !h.Reachable || h.Kind != redisstore.KindOK || h.Err != nil || h.Since.IsZero() || h.Settings.Policy != "noeviction" || h.Settings.Version == "" {
		t.Errorf("Health of a good server = %+v", h)
	}
	if h.Measured.IsZero() || h.Offset.Abs() > h.RoundTrip/2+time.Millisecond {
		t.Errorf("the clock of this machine is %s off itself, with a round trip of %s", h.Offset, h.RoundTrip)
	}
	steps := []struct {
		name      string
		do        func()
		reachable bool
		kind      string
	}{
		{"frozen", server.Freeze, false, redisstore.KindTimeout},
		{"resumed", server.Resume, true, redisstore.KindOK},
		{"killed", server.Kill, false, redisstore.KindRefused},
		{"restarted", server.Restart, true, redisstore.KindOK},
		{"a replica", func() { server.Do("REPLICAOF", "127.0.0.1", "1") }, false, ""}, // of nobody: stale, and read-only
		{"a primary", func() { server.Do("REPLICAOF", "NO", "ONE") }, true, redisstore.KindOK},
		{"another password", func() { server.SetPassword("x"); server.Do("CLIENT", "KILL", "TYPE", "normal") }, false, redisstore.KindAuth},
	}
	for _, step := range steps {
		step.do()
		h := nextChange(t, changes)
		if h.Reachable != step.reachable || step.kind != "" && h.Kind != step.kind {
			t.Errorf("%s: Health = %+v, want reachable: %t, kind %q", step.name, h, step.reachable, step.kind)
		}
		if got := monitor.Health(); got.Reachable != h.Reachable {
			t.Errorf("%s: Health() = %+v differs from the report", step.name, got)
		}
	}
}

func TestMonitorReportsEviction(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (*redistest.Server, string){
		"standalone": func(t *testing.T) (*redistest.Server, string) {
			server := redistest.Start(t)
			return server, server.URL()
		},
		"cluster": clusterNode,
	} {
		t.Run(name, func(t *testing.T) {
			server, url := start(t)
			server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			_, changes := monitored(t, open(t, redisstore.Options{URL: url, Timeout: 5 * time.Second}), redisstore.MonitorConfig{})
			if h := nextChange(t, changes); !h.Reachable || h.Settings.Policy != "allkeys-lru" || len(h.Settings.Remarks(0)) != 2 {
				t.Errorf("Health = %+v, want a warning about allkeys-lru", h)
			}
		})
	}
}

// TestMonitorMeasuresTheClock: the local clock is wrong by an hour.
func TestMonitorMeasuresTheClock(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"embedded": startEmbedded(t),
		"real":     redistest.Start(t).URL(),
		"cluster":  startCluster(t),
	} {
		_, changes := monitored(t, open(t, redisstore.Options{URL: url, Timeout: 5 * time.Second}), redisstore.MonitorConfig{
			Now: func() time.Time { return time.Now().Add(-time.Hour) },
		})
		h := nextChange(t, changes)
		if off := (h.Offset - time.Hour).Abs(); !h.Reachable || off > h.RoundTrip/2+time.Millisecond {
			t.Errorf("%s: Health = %+v, want an offset of an hour", name, h)
		}
	}
}

func TestMonitorWithoutServer(t *testing.T) {
	t.Parallel()
	store := open(t, redisstore.Options{URL: "unix:///nonexistent/redis.sock"})
	monitor, changes := monitored(t, store, redisstore.MonitorConfig{})
	h := nextChange(t, changes)
	if h.Reachable || h.Kind != redisstore.KindRefused || h.Err == nil || !h.Measured.IsZero() {
		t.Errorf("Health = %+v, want unreachable and no clock", h)
	}
	if h := monitor.Health(); h.Reachable {
		t.Errorf("Health() = %+v", h)
	}
}

// TestMonitorNamesMissingRights: Redis is not reachable for a user who has lost the right to read
// tokens.
func TestMonitorNamesMissingRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "gateway", "on", ">hunter2", "~*", "&*", "+@all")
	store := open(t, redisstore.Options{URL: "redis://gateway:hunter2@" + server.Addr()})
	monitor, _ := monitored(t, store, redisstore.MonitorConfig{})
	reachable := func(want bool) func() bool {
		return func() bool { h := monitor.Health(); return h.Reachable == want && !h.Since.IsZero() }
	}
	eventually(t, "Redis is reachable", reachable(true))
	for _, right := range []string{"get", "mget", "getex"} {
		server.Do("ACL", "SETUSER", "gateway", "-"+right)
		eventually(t, "the monitor sees that "+right+" is refused", reachable(false))
		if h := monitor.Health(); h.Kind != redisstore.KindAuth || !strings.Contains(h.Err.Error(), "'"+right+"'") {
			t.Errorf("without the right to %s: %s, %v, want auth and the command named", right, h.Kind, h.Err)
		}
		server.Do("ACL", "SETUSER", "gateway", "+"+right)
		eventually(t, "Redis is reachable again", reachable(true))
	}
}
