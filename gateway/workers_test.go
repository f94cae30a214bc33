package gateway

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"snowgate/config"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/redisstore/embedded"
)

// idSettings are the settings of ids and the values that are tried; the empty one is: not given.
var idSettings = []struct {
	name   string
	values []string
}{
	{"WORKER_ID", []string{"", "auto", "ipv4", "lease", "registry", "3", "900"}},
	{"DATACENTER_ID", []string{"", "1", "40"}},
	{"ID_LAYOUT", []string{"", "time:41,worker:9,sequence:13", "time:41,datacenter:5,worker:8,sequence:9", "time:41,worker:8,sequence:9,rollback:3"}},
	{"ID_ROLLBACK", []string{"", "wait", "count", "ring", "fail"}},
	{"ID_ROLLBACK_WAIT", []string{"", "7ms"}},
	{"ID_RING_SIZE", []string{"", "1", "64"}},
	{"STATE_FILE", []string{"", "state"}},
	{"REDIS_URL", []string{"", "redis"}},
}

// combinations calls f with every combination of values of idSettings.
func combinations(f func(given map[string]string)) {
	given := map[string]string{}
	var choose func(i int)
	choose = func(i int) {
		if i == len(idSettings) {
			f(given)
			return
		}
		for _, value := range idSettings[i].values {
			if value == "" {
				delete(given, idSettings[i].name)
			} else {
				given[idSettings[i].name] = value
			}
			choose(i + 1)
		}
		delete(given, idSettings[i].name)
	}
	choose(0)
}

// TestIDSettings tries every combination of the settings of ids. Each is either refused, by naming
// one that was given, or every setting that was given has its effect: on the number and the layout
// of the ids, on the policy, on the file, and on Redis.
func TestIDSettings(t *testing.T) {
	bench := newSettingsBench(t)
	accepted, refused := 0, 0
	combinations(func(given map[string]string) {
		environ := bench.environ(given)
		cfg, err := config.Load(environ)
		if err == nil {
			accepted++
			bench.check(given, cfg)
			return
		}
		refused++
		if !slices.ContainsFunc(idSettings, func(s struct {
			name   string
			values []string
		}) bool {
			return given[s.name] != "" && strings.Contains(err.Error(), config.Prefix+s.name)
		}) {
			t.Errorf("%v is refused, and none of it is named: %v", given, err)
		}
	})
	t.Logf("%d combinations are accepted, %d are refused", accepted, refused)
	if accepted < 50 || refused < 50 {
		t.Errorf("%d combinations are accepted, %d are refused", accepted, refused)
	}
}

// settingsBench is what the combinations are tried on: a Redis in the process, a file, an address.
type settingsBench struct {
	t     *testing.T
	url   string
	store *redisstore.Store
	file  string
	octet int64
	seen  map[string]bool // sources that were tried
}

func newSettingsBench(t *testing.T) *settingsBench {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	store, err := redisstore.Open(redisstore.Options{URL: server.URL(), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	address, err := idgen.LocalIPv4(t.Context(), redisAddress(config.Secret{}))
	if err != nil {
		t.Skip(err)
	}
	octet, err := idgen.LastOctet(address)
	if err != nil {
		t.Fatal(err)
	}
	return &settingsBench{
		t: t, url: server.URL(), store: store, file: filepath.Join(t.TempDir(), "state"), octet: octet, seen: map[string]bool{},
	}
}

func (b *settingsBench) environ(given map[string]string) []string {
	var environ []string
	for name, value := range given {
		switch name {
		case "REDIS_URL":
			value = b.url
		case "STATE_FILE":
			value = b.file
		}
		environ = append(environ, config.Prefix+name+"="+value)
	}
	return environ
}

// check looks for the effect of every setting in a combination that was accepted.
func (b *settingsBench) check(given map[string]string, cfg config.Config) {
	b.t.Helper()
	policy, err := idgen.ParsePolicy(cfg.IDRollback, cfg.IDRollbackWait, cfg.IDRingSize)
	if err != nil {
		b.t.Errorf("%v is accepted, and has no policy: %v", given, err)
		return
	}
	text := fmt.Sprintf("%v %#v", policy, policy)
	for name, want := range map[string]string{
		"ID_ROLLBACK":      given["ID_ROLLBACK"],
		"ID_ROLLBACK_WAIT": map[bool]string{true: "7000000"}[given["ID_ROLLBACK_WAIT"] != ""],
		"ID_RING_SIZE":     given["ID_RING_SIZE"],
	} {
		if want != "" && !strings.Contains(text, want) {
			b.t.Errorf("%v is accepted, and %s has no effect: the policy is %s", given, name, text)
		}
	}
	source := fmt.Sprint(given["WORKER_ID"], " ", given["DATACENTER_ID"], " ", given["ID_LAYOUT"], " ", given["STATE_FILE"], " ", given["REDIS_URL"])
	if !b.seen[source] {
		b.seen[source] = true
		b.checkSource(given, cfg)
	}
}

// checkSource takes a worker number and makes an id.
func (b *settingsBench) checkSource(given map[string]string, cfg config.Config) {
	b.t.Helper()
	scheme, err := idgen.NewScheme(cfg.IDLayout, cfg.Epoch)
	if err != nil {
		b.t.Fatal(err)
	}
	rdb := b.store.Client()
	_ = os.Remove(b.file)
	rdb.FlushAll(b.t.Context())
	rdb.HSet(b.t.Context(), "{sg}:w", "meta", "1 1 - "+scheme.Fingerprint()) // long past the quarantine
	source, err := workerSource(b.t.Context(), cfg, b.store, "8080", func(redislease.Event) {})
	if err != nil {
		if !strings.Contains(err.Error(), "SNOWGATE_WORKER_ID") {
			b.t.Errorf("%v: %v", given, err)
		}
		return
	}
	generator, err := idgen.New(b.t.Context(), scheme, source)
	if err != nil {
		b.t.Errorf("%v is accepted, and has no generator: %v", given, err)
		return
	}
	defer func() { _ = generator.Close(context.Background()) }()
	id, err := generator.Next()
	if err != nil {
		b.t.Errorf("%v is accepted, and makes no id: %v", given, err)
		return
	}
	parts, err := scheme.Decompose(id)
	if err != nil {
		b.t.Fatal(err)
	}
	b.checkParts(given, cfg, scheme, parts)
	if _, err := os.Stat(b.file); given["STATE_FILE"] != "" && err != nil {
		b.t.Errorf("%v is accepted, and STATE_FILE has no effect: %v", given, err)
	}
	if leased := rdb.ZCard(b.t.Context(), "{sg}:wl").Val(); given["REDIS_URL"] != "" && leased != 1 {
		b.t.Errorf("%v is accepted, and REDIS_URL has no effect: %d numbers are leased there", given, leased)
	}
}

func (b *settingsBench) checkParts(given map[string]string, cfg config.Config, scheme idgen.Scheme, parts idgen.Parts) {
	b.t.Helper()
	want := map[string]int64{"": b.octet, "auto": b.octet, "ipv4": b.octet, "lease": 0, "registry": 1, "3": 3, "900": 900}[given["WORKER_ID"]]
	if parts.Worker != want {
		b.t.Errorf("%v is accepted, and the worker number is %d, want %d", given, parts.Worker, want)
	}
	if given["DATACENTER_ID"] != "" && parts.Datacenter != 1 {
		b.t.Errorf("%v is accepted, and DATACENTER_ID has no effect: it is %d", given, parts.Datacenter)
	}
	if given["ID_LAYOUT"] != "" && scheme.Layout().String() != given["ID_LAYOUT"] || cfg.IDLayout != scheme.Layout() {
		b.t.Errorf("%v is accepted, and the layout is %s", given, scheme.Layout())
	}
}
