package config

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"snowgate/clients"
	"snowgate/idgen"
	"snowgate/limit"
)

// keyText is a good TOKEN_KEY.
var keyText = base64.StdEncoding.EncodeToString([]byte("0123456789abcdefghijklmnopqrstuv"))

// compareSecrets lets cmp look into the redacted types.
var compareSecrets = cmp.Options{
	cmp.AllowUnexported(Secret{}, Key{}, idgen.Layout{}),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.IgnoreUnexported(File{}),
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadDefaults(t *testing.T) {
	got, err := load([]string{"PATH=/bin", "snowgate_listen=x", "SNOWGATE=x"}, testNow)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Listen: ":8080", AdminListen: "127.0.0.1:9090", KeyPrefix: "sg", Issuer: "http://localhost:8080",
		Epoch: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), IDLayout: idgen.LayoutA, IDClock: ClockRedis, IDRollback: "monotonic",
		IDRollbackWait: 5 * time.Millisecond, IDRingSize: 200, WorkerID: WorkerID{Source: WorkerAuto},
		TokenTTL: time.Hour, TokenMaxTTL: 24 * time.Hour, StoreTimeout: 250 * time.Millisecond,
		CacheTTL: 5 * time.Second, CacheSize: 100_000, WaitTimeout: 100 * time.Millisecond,
		FailedAuthRate: Rate{limit.DefaultFailuresPerClient}, FailedAuthAddressRate: Rate{limit.DefaultFailuresPerAddress},
		UnknownTokenRate: Rate{limit.DefaultUnknownTokens},
		Transport:        TransportDirect, Drain: 5 * time.Second, ShutdownTimeout: 25 * time.Second, LogLevel: "info", LogFormat: "auto",
	}
	if diff := cmp.Diff(want, got, compareSecrets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadEverything(t *testing.T) {
	file := writeFile(t, "c.yaml", "clients: [{id: a, token_ttl: 2h}]")
	adminSecret, _ := clients.NewSecret()
	got, err := load([]string{
		"SNOWGATE_LISTEN=127.0.0.1:0", "SNOWGATE_LISTEN=:1", // the first counts, as for os.Getenv
		"SNOWGATE_ADMIN_LISTEN=", "SNOWGATE_CONFIG=" + file,
		"SNOWGATE_REDIS_URL=rediss://user:pw=@redis:6380/1?dial_timeout=1s", "SNOWGATE_KEY_PREFIX=prod:sg",
		"SNOWGATE_ISSUER=https://auth.example/a", "SNOWGATE_EPOCH=2020-01-01T00:00:00.5+02:00",
		"SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12,rollback:3", "SNOWGATE_ID_ROLLBACK=count",
		"SNOWGATE_ID_ROLLBACK_WAIT=0s", "SNOWGATE_ID_CLOCK=host", "SNOWGATE_WORKER_ID=31", "SNOWGATE_DATACENTER_ID=3",
		"SNOWGATE_TOKEN_TTL=1s", "SNOWGATE_TOKEN_MAX_TTL=2h",
		"SNOWGATE_CACHE_TTL=10s", "SNOWGATE_CACHE_SIZE=7", "SNOWGATE_FAIL_STATIC=1m", "SNOWGATE_WAIT_REPLICAS=2", "SNOWGATE_WAIT_TIMEOUT=1s",
		"SNOWGATE_FAILED_AUTH_RATE=off", "SNOWGATE_FAILED_AUTH_ADDRESS_RATE=1/s", "SNOWGATE_UNKNOWN_TOKEN_RATE=off",
		"SNOWGATE_ADMIN_CLIENT_SECRET=" + adminSecret.Reveal(),
		"SNOWGATE_STORE_TIMEOUT=1s", "SNOWGATE_TRUSTED_PROXIES=10.0.0.0/8, 192.168.0.1 ,::1,::ffff:10.1.1.1",
		"SNOWGATE_HSTS=MAX-AGE=31536000 ;preload; includesubdomains",
		"SNOWGATE_DRAIN=0s", "SNOWGATE_SHUTDOWN_TIMEOUT=1s", "SNOWGATE_TOKEN_KEY=" + keyText,
		"SNOWGATE_LOG_LEVEL=debug", "SNOWGATE_LOG_FORMAT=console", "SNOWGATE_TEST_REQUIRE=1",
	}, testNow)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.File.Clients) != 1 || got.File.Clients[0].TokenTTL != 2*time.Hour {
		t.Errorf("File = %v, want that of CONFIG", got.File)
	}
	got.File = File{}
	want := Config{
		Listen: "127.0.0.1:0", ConfigFile: file, RedisURL: Secret{"rediss://user:pw=@redis:6380/1?dial_timeout=1s"},
		KeyPrefix: "prod:sg", Issuer: "https://auth.example/a",
		Epoch: got.Epoch, IDLayout: idgen.LayoutC, IDClock: ClockHost, IDRollback: "count",
		IDRingSize: 200, WorkerID: WorkerID{WorkerFixed, 31}, DatacenterID: 3,
		TokenTTL: time.Second, TokenMaxTTL: 2 * time.Hour, StoreTimeout: time.Second,
		FailedAuthAddressRate: Rate{limit.Rate{Count: 1, Per: time.Second}},
		WaitReplicas:          2, WaitTimeout: time.Second,
		CacheTTL: 10 * time.Second, CacheSize: 7, FailStatic: time.Minute, AdminClientSecret: Secret{adminSecret.Reveal()},
		TrustedProxies: Prefixes{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.1/32"),
			netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.1.1.1/32"),
		},
		HSTS: "max-age=31536000; includeSubDomains; preload", Transport: TransportDirect,
		ShutdownTimeout: time.Second, TokenKey: Key{Secret{"0123456789abcdefghijklmnopqrstuv"}},
		LogLevel: "debug", LogFormat: "console",
	}
	if diff := cmp.Diff(want, got, compareSecrets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if epoch := time.Date(2019, 12, 31, 22, 0, 0, 5e8, time.UTC); !got.Epoch.Equal(epoch) {
		t.Errorf("Epoch = %v, want %v", got.Epoch, epoch)
	}
}

// Each of these is refused with exactly this one line.
func TestRefusedVariables(t *testing.T) {
	const zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	tests := []struct{ environ, want string }{
		{"LISTEN=8080", `SNOWGATE_LISTEN: "8080" is not an address such as :8080 or 127.0.0.1:8080`},
		{"LISTEN=:http", `SNOWGATE_LISTEN: ":http" does not end in a port number`},
		{"LISTEN=:65536", `SNOWGATE_LISTEN: ":65536" does not end in a port number`},
		{"LISTEN=http://x:1", `SNOWGATE_LISTEN: "http://x:1" is not an address such as :8080 or 127.0.0.1:8080`},
		{"ADMIN_LISTEN=off", `SNOWGATE_ADMIN_LISTEN: "off" is not an address such as :8080 or 127.0.0.1:8080`},
		{"ADMIN_LISTEN=:8080", `SNOWGATE_ADMIN_LISTEN: ":8080" is also SNOWGATE_LISTEN; the admin listener needs an address of its own`},
		{"LISTEN=127.0.0.1:9090", `SNOWGATE_ADMIN_LISTEN: the default is also SNOWGATE_LISTEN; the admin listener needs an address of its own`},
		{"KEY_PREFIX={sg}", `SNOWGATE_KEY_PREFIX: "{sg}" is not 1 to 64 letters, digits and ._:- that start and end with a letter or digit`},
		{"KEY_PREFIX=sg:", `SNOWGATE_KEY_PREFIX: "sg:" is not 1 to 64 letters, digits and ._:- that start and end with a letter or digit`},
		{"KEY_PREFIX=sg*", `SNOWGATE_KEY_PREFIX: "sg*" is not 1 to 64 letters, digits and ._:- that start and end with a letter or digit`},
		{"ISSUER=localhost:8080", `SNOWGATE_ISSUER: "localhost:8080" is not an absolute http or https URL`},
		{"ISSUER=ftp://x", `SNOWGATE_ISSUER: "ftp://x" is not an absolute http or https URL`},
		{"ISSUER=https://", `SNOWGATE_ISSUER: "https://" is not an absolute http or https URL`},
		{"ISSUER=https://x:0", `SNOWGATE_ISSUER: "https://x:0" is not an absolute http or https URL`},
		{"ISSUER=https://x/", `SNOWGATE_ISSUER: "https://x/" ends in a slash`},
		{"ISSUER=https://x?a=b", `SNOWGATE_ISSUER: "https://x?a=b" has a query or a fragment`},
		{"ISSUER=https://x#", `SNOWGATE_ISSUER: "https://x#" has a query or a fragment`},
		{"ISSUER=HTTPS://x", `SNOWGATE_ISSUER: "HTTPS://x" is written in another way than "https://x"`},
		{"ISSUER=https://u:hunter2@x", `SNOWGATE_ISSUER: [redacted] holds a user name or password`},
		{"EPOCH=2026", `SNOWGATE_EPOCH: "2026" is not an RFC 3339 time such as 2026-01-01T00:00:00Z`},
		{"EPOCH=2026-06-01T12:00:00.001Z", `SNOWGATE_EPOCH: "2026-06-01T12:00:00.001Z" is in the future`},
		{"EPOCH=2026-01-01T00:00:00.0001Z", `SNOWGATE_EPOCH: "2026-01-01T00:00:00.0001Z" is not a whole millisecond`},
		{"ID_LAYOUT=time:41,x:1,sequence:12", `SNOWGATE_ID_LAYOUT: "time:41,x:1,sequence:12" is not a layout: unknown field "x" (known: time, datacenter, worker, rollback, sequence)`},
		{"ID_CLOCK=wall", `SNOWGATE_ID_CLOCK: "wall" is none of redis, host`},
		{"ID_ROLLBACK=monotone", `SNOWGATE_ID_ROLLBACK: "monotone" is none of monotonic, wait, count, ring, fail; did you mean monotonic?`},
		{"ID_ROLLBACK=count", `SNOWGATE_ID_ROLLBACK: "count" needs a rollback field in SNOWGATE_ID_LAYOUT, time:41,worker:10,sequence:12`},
		{"ID_ROLLBACK_WAIT=-1ms", `SNOWGATE_ID_ROLLBACK_WAIT: "-1ms" is a negative duration`},
		{"ID_RING_SIZE=0", `SNOWGATE_ID_RING_SIZE: "0" is not a number from 1 to 65536`},
		{"ID_RING_SIZE=many", `SNOWGATE_ID_RING_SIZE: "many" is not a whole number, or too large`},
		{"ID_RING_SIZE=200", `SNOWGATE_ID_RING_SIZE: "200" has a use only with SNOWGATE_ID_ROLLBACK=ring; leave it out`},
		{"ID_ROLLBACK_WAIT=5ms", `SNOWGATE_ID_ROLLBACK_WAIT: "5ms" has a use only with SNOWGATE_ID_ROLLBACK=wait and count; leave it out`},
		{"WORKER_ID=-1", `SNOWGATE_WORKER_ID: "-1" is none of auto, ipv4, lease, registry and no number from 0 up`},
		{"WORKER_ID=Auto", `SNOWGATE_WORKER_ID: "Auto" is none of auto, ipv4, lease, registry and no number from 0 up`},
		{"WORKER_ID=1024", `SNOWGATE_WORKER_ID: "1024" does not fit the worker field of SNOWGATE_ID_LAYOUT; the largest is 1023`},
		{"DATACENTER_ID=1", `SNOWGATE_DATACENTER_ID: "1" does not fit the datacenter field of SNOWGATE_ID_LAYOUT; the largest is 0`},
		{"DATACENTER_ID=-1", `SNOWGATE_DATACENTER_ID: "-1" does not fit the datacenter field of SNOWGATE_ID_LAYOUT; the largest is 0`},
		{"DATACENTER_ID=0", `SNOWGATE_DATACENTER_ID: "0" has a use only with a datacenter field in SNOWGATE_ID_LAYOUT, time:41,worker:10,sequence:12; leave it out`},
		{"TOKEN_TTL=3600", `SNOWGATE_TOKEN_TTL: "3600" is not a duration such as 250ms, 90s or 1h30m`},
		{"TOKEN_TTL=\"1h\"", `SNOWGATE_TOKEN_TTL: "\"1h\"" is not a duration such as 250ms, 90s or 1h30m`}, // docker --env-file keeps quotes
		{"TOKEN_TTL=0s", `SNOWGATE_TOKEN_TTL: "0s" is shorter than a second`},
		{"TOKEN_TTL=25h", `SNOWGATE_TOKEN_TTL: "25h" is longer than SNOWGATE_TOKEN_MAX_TTL, 24h0m0s`},
		{"TOKEN_MAX_TTL=30m", `SNOWGATE_TOKEN_TTL: the default is longer than SNOWGATE_TOKEN_MAX_TTL, 30m0s`},
		{"TOKEN_MAX_TTL=-1h", `SNOWGATE_TOKEN_MAX_TTL: "-1h" is shorter than a second`}, // and nothing about TOKEN_TTL
		{"CACHE_TTL=-1s", `SNOWGATE_CACHE_TTL: "-1s" is a negative duration`},
		{"CACHE_TTL=500ms", `SNOWGATE_CACHE_TTL: "500ms" is shorter than a second; 0 turns the token cache off`},
		{"CACHE_TTL=2h", `SNOWGATE_CACHE_TTL: "2h" is longer than an hour`},
		{"CACHE_SIZE=0", `SNOWGATE_CACHE_SIZE: "0" is not a number from 1 to 10000000; SNOWGATE_CACHE_TTL=0 turns the token cache off`},
		{"FAIL_STATIC=-1s", `SNOWGATE_FAIL_STATIC: "-1s" is a negative duration`},
		{"WAIT_REPLICAS=1", `SNOWGATE_WAIT_REPLICAS: "1" needs SNOWGATE_REDIS_URL: the embedded Redis has no replicas`},
		{"WAIT_TIMEOUT=0s", `SNOWGATE_WAIT_TIMEOUT: "0s" is not a positive duration`},
		{"WAIT_ISSUE=true", `SNOWGATE_WAIT_ISSUE: "true" has a use only with SNOWGATE_WAIT_REPLICAS; leave it out`},
		{"WAIT_TIMEOUT=1s", `SNOWGATE_WAIT_TIMEOUT: "1s" has a use only with SNOWGATE_WAIT_REPLICAS; leave it out`},
		{"FAILED_AUTH_RATE=10", `SNOWGATE_FAILED_AUTH_RATE: "10" is no limit: a rate is a number per s, m or h, as in 100/s, 600/m, 5/h, or per several of them, as in 200/10s, or off`},
		{"ADMIN_CLIENT_SECRET=admin", `SNOWGATE_ADMIN_CLIENT_SECRET: the value is not a client secret: it does not start with sgs_ (snowgate client new makes one)`},
		{"STORE_TIMEOUT=0s", `SNOWGATE_STORE_TIMEOUT: "0s" is not a positive duration`},
		{"TRUSTED_PROXIES=10.0.0.1/8", `SNOWGATE_TRUSTED_PROXIES: "10.0.0.1/8" has "10.0.0.1/8", which is an address inside a network; the network is 10.0.0.0/8`},
		{"TRUSTED_PROXIES=::1,", `SNOWGATE_TRUSTED_PROXIES: "::1," has "", which is no address and no network such as 10.0.0.0/8`},
		{"TRUSTED_PROXIES=traefik", `SNOWGATE_TRUSTED_PROXIES: "traefik" has "traefik", which is no address and no network such as 10.0.0.0/8`},
		{"TRUSTED_PROXIES=fe80::1%eth0", `SNOWGATE_TRUSTED_PROXIES: "fe80::1%eth0" has "fe80::1%eth0", which is no address and no network such as 10.0.0.0/8`},
		{"TRUSTED_PROXIES=::ffff:10.0.0.0/104", `SNOWGATE_TRUSTED_PROXIES: "::ffff:10.0.0.0/104" has "::ffff:10.0.0.0/104"; write the network in IPv4 form`},
		{"DRAIN=-1s", `SNOWGATE_DRAIN: "-1s" is a negative duration`},
		{"DRAIN=25s", `SNOWGATE_DRAIN: "25s" is not shorter than SNOWGATE_SHUTDOWN_TIMEOUT, 25s`},
		{"SHUTDOWN_TIMEOUT=3s", `SNOWGATE_DRAIN: the default is not shorter than SNOWGATE_SHUTDOWN_TIMEOUT, 3s`},
		{"TOKEN_KEY=" + keyText[1:], `SNOWGATE_TOKEN_KEY: the value is not standard base64 with padding (openssl rand -base64 32 makes a key)`},
		{"TOKEN_KEY=MTIz", `SNOWGATE_TOKEN_KEY: the value holds 3 bytes instead of 32 (openssl rand -base64 32 makes a key)`},
		{"TOKEN_KEY=" + zeros, `SNOWGATE_TOKEN_KEY: the value is one byte 32 times over, not a key (openssl rand -base64 32 makes one)`},
		{"TLS_CERT=/x", `SNOWGATE_TLS_CERT: "/x" needs SNOWGATE_TLS_KEY, too`},
		{"TLS_KEY=/x", `SNOWGATE_TLS_KEY: "/x" has no use without SNOWGATE_TLS_CERT`},
		{"H2C=yes", `SNOWGATE_H2C: "yes" is neither true nor false`},
		{"DOCKER_HOST=/var/run/docker.sock", `SNOWGATE_DOCKER_HOST: "/var/run/docker.sock" is neither unix:///path/to/docker.sock nor tcp://host:port`},
		{"DOCKER_HOST=unix://var/run/docker.sock", `SNOWGATE_DOCKER_HOST: "unix://var/run/docker.sock" is neither unix:///path/to/docker.sock nor tcp://host:port`},
		{"DOCKER_HOST=tcp://docker-proxy", `SNOWGATE_DOCKER_HOST: "tcp://docker-proxy" is neither unix:///path/to/docker.sock nor tcp://host:port`},
		{"DOCKER_HOST=tcp://x:0", `SNOWGATE_DOCKER_HOST: "tcp://x:0" is neither unix:///path/to/docker.sock nor tcp://host:port`},
		{"DOCKER_HOST=tcp://a:b@x:2375", `SNOWGATE_DOCKER_HOST: [redacted] is neither unix:///path/to/docker.sock nor tcp://host:port`},
		{"DOCKER_HOST=ssh://x", `SNOWGATE_DOCKER_HOST: "ssh://x" is neither unix:///path/to/docker.sock nor tcp://host:port`},
		{"DOCKER_ALLOW_PUBLIC=true", `SNOWGATE_DOCKER_ALLOW_PUBLIC: "true" has no use without SNOWGATE_DOCKER_HOST`},
		{"DOCKER_ALLOW_PASS_TOKEN=true", `SNOWGATE_DOCKER_ALLOW_PASS_TOKEN: "true" has no use without SNOWGATE_DOCKER_HOST`},
		{"LOG_LEVEL=DEBUG", `SNOWGATE_LOG_LEVEL: "DEBUG" is none of trace, debug, info, warn, error`},
		{"LOG_FORMAT=text", `SNOWGATE_LOG_FORMAT: "text" is none of auto, json, console`},
		{"CONFIG=/none", `SNOWGATE_CONFIG: "/none" cannot be read: no such file or directory`},
		// A variable of a feature that this build lacks is unknown, and not ignored.
		{"DOCKER_CERT=/x", `SNOWGATE_DOCKER_CERT: unknown variable; did you mean SNOWGATE_DOCKER_HOST?`},
		{"TOKEN_TLL=1h", `SNOWGATE_TOKEN_TLL: unknown variable; did you mean SNOWGATE_TOKEN_TTL?`},
		{"TOKENTTL=", `SNOWGATE_TOKENTTL: unknown variable; did you mean SNOWGATE_TOKEN_TTL?`},
		{"REDIS_URLFILE=x", `SNOWGATE_REDIS_URLFILE: unknown variable; did you mean SNOWGATE_REDIS_URL_FILE?`},
		{"=x", `SNOWGATE_: unknown variable; docs/reference/variables.md has all of them`},
		{"\r\n: x=y", `"SNOWGATE_\r\n: x": unknown variable; docs/reference/variables.md has all of them`},
		{"PORT=8080", `SNOWGATE_PORT: unknown variable; did you mean SNOWGATE_LISTEN=:8080?`}, // no service link, see TestServiceLinks
		{"PORT=x", `SNOWGATE_PORT: unknown variable; did you mean SNOWGATE_LISTEN?`},
		{"ADMIN_PORT=x", `SNOWGATE_ADMIN_PORT: unknown variable; did you mean SNOWGATE_ADMIN_LISTEN?`},
		{"REDIS=redis://x", `SNOWGATE_REDIS: unknown variable; did you mean SNOWGATE_REDIS_URL?`},
		{"CONFIG_PATH=x", `SNOWGATE_CONFIG_PATH: unknown variable; did you mean SNOWGATE_CONFIG?`},
	}
	for _, tt := range tests {
		_, err := load([]string{Prefix + tt.environ}, testNow)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", tt.environ, err, tt.want)
		}
	}
}

func TestRedisURL(t *testing.T) {
	for _, good := range []string{
		"", "redis://redis", "redis://redis:6379/0", "redis://:hunter2@redis:6379", "rediss://u:p%40@[::1]:6379/1?read_timeout=1s",
		"unix:///run/redis.sock", "unix://u:hunter2@/run/redis.sock?db=1",
		"redis+sentinel://:hunter2@h:26379?master_name=m", "redis+cluster://h:1?addr=h:2", "rediss+cluster://:hunter2@h:1",
	} {
		if _, err := load([]string{"SNOWGATE_REDIS_URL=" + good}, testNow); err != nil {
			t.Errorf("REDIS_URL=%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"redis", "redis:6379", "hunter2", "redis://", "redis://:hunter2@", "redis://:hunter2@h:x", "redis://:hunter2@h:99999", "redis://:hunter2@h:6379#",
		"redis://:hunter2%@h", "http://:hunter2@h", "unix://run/redis.sock", "redis+nothing://:hunter2@h:1", "redis+cluster://:hunter2@h:1,h:2",
		" redis://:hunter2@h", "redis://:hunter2@h\n",
	} {
		_, err := load([]string{"SNOWGATE_REDIS_URL=" + bad}, testNow)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.HasPrefix(err.Error(), "SNOWGATE_REDIS_URL: the value ") {
			t.Errorf("REDIS_URL=%s: %v, want a fault without the value", bad, err)
		}
	}
}

// A URL that many write, and why it is none.
func TestRedisURLHints(t *testing.T) {
	for bad, want := range map[string]string{
		"redis://:hun/ter2@h:6379":     "percent-encode",
		"redis://:hun#ter2@h:6379/0":   "# is %23",
		"redis://:hun?ter2@h:6379/0":   "percent-encode",
		"redis://:hun%ter2@h:6379/0":   "percent-encode",
		"redis://u:hu/n:ter2@h:6379/0": "/ is %2F",
		"redis://h:6379/abc":           "names a database that is no number; write redis://h:6379/0",
		"rediss://u:pw@h/-1":           "names a database that is no number; write rediss://h/0",
		"redis://h:6379/1/2":           "names a database that is no number",
		"h:6379":                       "such as redis://host:6379/0",
		"localhost:6379":               "such as redis://host:6379/0",
	} {
		_, err := load([]string{"SNOWGATE_REDIS_URL=" + bad}, testNow)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "ter2") {
			t.Errorf("REDIS_URL=%s: %v, want %q", bad, err, want)
		}
	}
}

// TestTwoAdmins: the variable and the file must not make the same client.
func TestTwoAdmins(t *testing.T) {
	secret, digest := clients.NewSecret()
	path := writeFile(t, "clients.yaml", "")
	write := func(id string) {
		t.Helper()
		text := fmt.Sprintf("clients:\n  - id: %s\n    secrets: [{id: s1, sha256: %x}]\n", id, digest)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = `SNOWGATE_ADMIN_CLIENT_SECRET: makes a client "admin", and the configuration file has one, too`
	environ := []string{"SNOWGATE_CONFIG=" + path, "SNOWGATE_ADMIN_CLIENT_SECRET=" + secret.Reveal()}

	write("admin")
	if _, err := Load(environ); err == nil || err.Error() != want {
		t.Errorf("Load = %v, want %s", err, want)
	}
	write("another")
	cfg, err := Load(environ)
	if err != nil {
		t.Fatal(err)
	}
	write("admin")
	if _, err := cfg.parse(readContent(cfg.ConfigFile)); err == nil || err.Error() != want {
		t.Errorf("read again: %v, want %s", err, want)
	}
}

// A variable that would be accepted and ignored is refused.
func TestStateFile(t *testing.T) {
	cfg, err := load([]string{"SNOWGATE_STATE_FILE=/var/lib/snowgate/ids", "SNOWGATE_WORKER_ID=3"}, testNow)
	if err != nil || cfg.StateFile != "/var/lib/snowgate/ids" {
		t.Errorf("STATE_FILE without Redis: %q, %v", cfg.StateFile, err)
	}
	for _, other := range []string{"SNOWGATE_REDIS_URL=redis://redis", "SNOWGATE_WORKER_ID=lease", "SNOWGATE_WORKER_ID=registry"} {
		if _, err := load([]string{"SNOWGATE_STATE_FILE=/x", other}, testNow); err == nil || !strings.HasPrefix(err.Error(), "SNOWGATE_STATE_FILE: ") {
			t.Errorf("STATE_FILE beside %s: %v, want a fault", other, err)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url := write("url", "redis://:hunter2@redis\n")
	key := write("key", keyText+"\r\n")
	prefix := write("prefix", "prod")
	cfg, err := load([]string{
		"SNOWGATE_REDIS_URL_FILE=" + url, "SNOWGATE_TOKEN_KEY_FILE=" + key, "SNOWGATE_TOKEN_KEY=",
		"SNOWGATE_KEY_PREFIX_FILE=" + prefix, "SNOWGATE_LISTEN_FILE=",
	}, testNow)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.RedisURL.Reveal(); got != "redis://:hunter2@redis" {
		t.Errorf("RedisURL = %q, want the content less the line break", got)
	}
	if !cfg.TokenKey.IsSet() || cfg.KeyPrefix != "prod" || cfg.Listen != ":8080" {
		t.Errorf("Config = %v, want key and prefix read, and an empty LISTEN_FILE ignored", cfg)
	}

	password := write("password", "hunter2\nhunter2")
	tests := []struct {
		environ []string
		want    string
	}{
		{[]string{"REDIS_URL=redis://a", "REDIS_URL_FILE=" + url}, "SNOWGATE_REDIS_URL: is given twice, also as SNOWGATE_REDIS_URL_FILE"},
		{[]string{"TOKEN_KEY_FILE=/none/key"}, `SNOWGATE_TOKEN_KEY: SNOWGATE_TOKEN_KEY_FILE: cannot read "/none/key": no such file or directory`},
		{[]string{"TOKEN_KEY_FILE=/"}, `SNOWGATE_TOKEN_KEY: SNOWGATE_TOKEN_KEY_FILE: cannot read "/": is a directory`},
		{[]string{"TOKEN_KEY_FILE=" + write("e", "\n")}, "SNOWGATE_TOKEN_KEY: SNOWGATE_TOKEN_KEY_FILE: " + quotePath(filepath.Join(dir, "e")) + " is empty"},
		{[]string{"LISTEN_FILE=" + write("l", strings.Repeat("x", maxValueFile+1))}, "SNOWGATE_LISTEN: SNOWGATE_LISTEN_FILE: " + quotePath(filepath.Join(dir, "l")) + " is longer than 65536 bytes"},
		// The wrong file may have been named: what is in files is not repeated.
		{[]string{"LISTEN_FILE=" + password}, "SNOWGATE_LISTEN: the content of " + quotePath(password) + " is not an address such as :8080 or 127.0.0.1:8080"},
		{[]string{"TOKEN_TTL_FILE=" + password}, "SNOWGATE_TOKEN_TTL: the content of " + quotePath(password) + " is not a duration such as 250ms, 90s or 1h30m"},
		{[]string{"ID_LAYOUT_FILE=" + password}, "SNOWGATE_ID_LAYOUT: the content of " + quotePath(password) + " is not a layout: it must read like time:41,worker:10,sequence:12"},
		{[]string{"CONFIG_FILE=" + password}, "SNOWGATE_CONFIG: the content of " + quotePath(password) + " is not a path; to name the YAML file itself use SNOWGATE_CONFIG without _FILE"},
		{[]string{"CONFIG_FILE=" + write("p", "hunter2")}, "SNOWGATE_CONFIG: the content of " + quotePath(filepath.Join(dir, "p")) + " cannot be read: no such file or directory"},
	}
	for _, tt := range tests {
		environ := make([]string, len(tt.environ))
		for i, variable := range tt.environ {
			environ[i] = Prefix + variable
		}
		if _, err := load(environ, testNow); err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", tt.environ, err, tt.want)
		}
	}
}

func TestServiceLinks(t *testing.T) {
	tests := []struct {
		name, value string
		want        bool
	}{
		{"SNOWGATE_SERVICE_HOST", "10.0.0.1", true},
		{"SNOWGATE_SERVICE_PORT", "8080", true},
		{"SNOWGATE_SERVICE_PORT_HTTP", "8080", true},
		{"SNOWGATE_PORT", "tcp://10.0.0.1:8080", true},
		{"SNOWGATE_PORT_8080_TCP", "tcp://10.0.0.1:8080", true},
		{"SNOWGATE_PORT_8080_TCP_ADDR", "10.0.0.1", true},
		{"SNOWGATE_PORT_8080_TCP_PORT", "8080", true},
		{"SNOWGATE_PORT_8080_TCP_PROTO", "tcp", true},
		{"SNOWGATE_ADMIN_SERVICE_HOST", "10.0.0.1", true},    // service "snowgate-admin"
		{"SNOWGATE_ADMIN_PORT", "tcp://10.0.0.1:9090", true}, // service "snowgate-admin"
		{"SNOWGATE_PORT", "8080", false},                     // means LISTEN
		{"SNOWGATE_ADMIN_PORT", "9090", false},               // means ADMIN_LISTEN
		{"SNOWGATE_PORT", "", false},
		{"SNOWGATE_HOST", "tcp://10.0.0.1:8080", false},
		{"SNOWGATE_REPORT", "tcp://10.0.0.1:8080", false},
		{"SNOWGATE_SERVICE", "x", false},
	}
	for _, tt := range tests {
		if got := serviceLink(tt.name, tt.value); got != tt.want {
			t.Errorf("serviceLink(%s, %s) = %v, want %v", tt.name, tt.value, got, tt.want)
		}
		if _, err := load([]string{tt.name + "=" + tt.value}, testNow); (err == nil) != tt.want {
			t.Errorf("load(%s=%s) = %v", tt.name, tt.value, err)
		}
	}
}

// Faults of variables and of the file come in one list, sorted and typed.
func TestLoadReportsAllFaults(t *testing.T) {
	file := writeFile(t, "c", "clients: [{id: a, token_ttl: 2h}, {id: a}]\nroute: []\n")
	_, err := load([]string{
		"SNOWGATE_TOKEN_TTL=-1h", "SNOWGATE_LISTEN=x", "SNOWGATE_NONSENSE=1", "SNOWGATE_TOKEN_MAX_TTL=1h",
		"SNOWGATE_WORKER_ID=x", "SNOWGATE_CONFIG=" + file,
	}, testNow)
	want := strings.ReplaceAll(`SNOWGATE_LISTEN: "x" is not an address such as :8080 or 127.0.0.1:8080
SNOWGATE_NONSENSE: unknown variable; docs/reference/variables.md has all of them
SNOWGATE_TOKEN_TTL: "-1h" is shorter than a second
SNOWGATE_WORKER_ID: "x" is none of auto, ipv4, lease, registry and no number from 0 up
FILE:1:30: token_ttl 2h0m0s is longer than SNOWGATE_TOKEN_MAX_TTL, 1h0m0s
FILE:1:40: client id "a" is taken, at 1:16
FILE:2:1: unknown key "route" in the file; did you mean routes?`, "FILE", file)
	if err == nil {
		t.Fatal("no faults")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var faults Faults
	var first Fault
	if !errors.As(err, &faults) || len(faults) != 7 || !errors.As(err, &first) || first.Variable != "SNOWGATE_LISTEN" {
		t.Errorf("the error is %T, want Faults of which each can be had", err)
	}
}

// A value that could not be read makes no further faults.
func TestNoFaultsFromFaults(t *testing.T) {
	file := writeFile(t, "c", "clients: [{id: a, token_ttl: 48h}]")
	_, err := load([]string{"SNOWGATE_TOKEN_MAX_TTL=x", "SNOWGATE_ID_LAYOUT=x", "SNOWGATE_SHUTDOWN_TIMEOUT=x", "SNOWGATE_WORKER_ID=9999", "SNOWGATE_CONFIG=" + file}, testNow)
	if faults := faultsOf(err); len(faults) != 3 {
		t.Errorf("got %d faults, want 3:\n%v", len(faults), err)
	}
}

// TestIDSettingsThatCannotWork: what a start would refuse, or ignore, is a fault.
func TestIDSettingsThatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		environ []string
		want    string // how the error starts; empty: there is none
	}{
		{[]string{"SNOWGATE_ID_ROLLBACK=ring", "SNOWGATE_ID_RING_SIZE=1"}, "SNOWGATE_ID_RING_SIZE: "},
		{[]string{"SNOWGATE_ID_ROLLBACK=ring", "SNOWGATE_ID_RING_SIZE=2"}, ""},
		{[]string{"SNOWGATE_WORKER_ID=registry", "SNOWGATE_DATACENTER_ID=1", "SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12"}, "SNOWGATE_DATACENTER_ID: "},
		{[]string{"SNOWGATE_WORKER_ID=registry", "SNOWGATE_DATACENTER_ID=0", "SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12"}, "SNOWGATE_DATACENTER_ID: "},
		{[]string{"SNOWGATE_WORKER_ID=registry", "SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12"}, ""},
		{[]string{"SNOWGATE_DATACENTER_ID=0", "SNOWGATE_ID_LAYOUT=time:41,datacenter:2,worker:5,sequence:12"}, ""},
		{[]string{"SNOWGATE_ID_ROLLBACK=wait", "SNOWGATE_ID_ROLLBACK_WAIT=1s"}, ""},
		{[]string{"SNOWGATE_ID_ROLLBACK=count", "SNOWGATE_ID_ROLLBACK_WAIT=1s", "SNOWGATE_ID_LAYOUT=time:41,worker:7,sequence:12,rollback:3"}, ""},
		{[]string{"SNOWGATE_ID_ROLLBACK=fail", "SNOWGATE_ID_ROLLBACK_WAIT=1s"}, "SNOWGATE_ID_ROLLBACK_WAIT: "},
		{[]string{"SNOWGATE_ID_ROLLBACK=wait", "SNOWGATE_ID_RING_SIZE=300"}, "SNOWGATE_ID_RING_SIZE: "},
		{[]string{"SNOWGATE_CACHE_TTL=0", "SNOWGATE_CACHE_SIZE=100000"}, "SNOWGATE_CACHE_SIZE: "},
		{[]string{"SNOWGATE_CACHE_TTL=0"}, ""},
		{[]string{"SNOWGATE_WAIT_REPLICAS=0", "SNOWGATE_WAIT_TIMEOUT=1s"}, "SNOWGATE_WAIT_TIMEOUT: "},
		{[]string{"SNOWGATE_REDIS_URL=redis://redis", "SNOWGATE_WAIT_REPLICAS=1", "SNOWGATE_WAIT_TIMEOUT=1s"}, ""},
	} {
		_, err := load(tt.environ, testNow)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%v: %v, want a fault of %q", tt.environ, err, tt.want)
		}
	}
}

// The table in docs/reference/variables.md lists exactly the variables that there are.
func TestVariableTable(t *testing.T) {
	for _, v := range Variables() {
		if v.Meaning == "" || strings.Contains(v.Meaning, "|") || !strings.HasPrefix(v.Name, Prefix) {
			t.Errorf("%+v cannot be a line of the table", v)
		}
	}
	const page = "../docs/reference/variables.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	table, after, closed := strings.Cut(rest, tableEnd)
	switch {
	case !found:
		t.Fatalf("%s has no %s, and so no table of variables", page, tableBegin)
	case !closed:
		t.Fatalf("%s has %s, but no %s", page, tableBegin, tableEnd)
	case *update:
		updated := before + tableBegin + "\n" + variableTable() + tableEnd + after
		if err := os.WriteFile(page, []byte(updated), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		if diff := cmp.Diff(variableTable(), strings.TrimPrefix(table, "\n")); diff != "" {
			t.Errorf("%s is behind; go test ./config -run TestVariableTable -update writes its table (-want +got):\n%s", page, diff)
		}
	}
}

func TestPrint(t *testing.T) {
	cfg, err := load([]string{
		"SNOWGATE_CONFIG=testdata/good.yaml", "SNOWGATE_REDIS_URL=redis://user:hunter2@redis:6379/0?password=hunter2&db=1",
		"SNOWGATE_TOKEN_KEY=" + keyText, "SNOWGATE_ADMIN_LISTEN=", "SNOWGATE_WORKER_ID=7", "SNOWGATE_TRUSTED_PROXIES=10.0.0.0/8,::1",
	}, testNow)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/print.golden", out.String())
	// The printed routes read back as the same routes.
	_, routes, _ := strings.Cut(out.String(), "\nroutes:")
	again, err := parse("routes:" + routes)
	for _, route := range cfg.File.Routes { // what is set may be a credential
		for _, edits := range []Edits{route.EditRequest, route.EditResponse} {
			for name := range edits.Set {
				edits.Set[name] = redacted
			}
		}
	}
	if diff := cmp.Diff(cfg.File.Routes, again.Routes, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("the printed routes do not read back: %v\n%s", err, diff)
	}
}

// However a Config is printed, no secret of it shows.
func TestNoSecretShows(t *testing.T) {
	cfg, err := load([]string{"SNOWGATE_REDIS_URL=redis://user:hunter2@redis", "SNOWGATE_TOKEN_KEY=" + keyText}, testNow)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(struct{ R, K any }{cfg.RedisURL, &cfg.TokenKey})
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := cfg.Print(&printed); err != nil {
		t.Fatal(err)
	}
	outputs := []string{string(encoded), printed.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		outputs = append(outputs, fmt.Sprintf(verb, cfg), fmt.Sprintf(verb, cfg.RedisURL), fmt.Sprintf(verb, cfg.TokenKey), fmt.Sprintf(verb, &cfg.TokenKey))
	}
	key := string(cfg.TokenKey.Bytes())
	for _, out := range outputs {
		for _, canary := range []string{"hunter2", fmt.Sprintf("%x", "hunter2"), keyText, key, fmt.Sprintf("%x", key)} {
			if strings.Contains(out, canary) {
				t.Errorf("a secret shows: %s", out)
			}
		}
	}
}

// Whichever variable a secret is put in by mistake, no fault repeats it.
func TestNoFaultRepeatsASecretOfTheEnvironment(t *testing.T) {
	secret, _ := clients.NewSecret()
	part := secret.Reveal()[8:40]
	names := []string{"NONSENSE", secret.Reveal()}
	for _, v := range Variables() {
		names = append(names, strings.TrimPrefix(v.Name, Prefix))
	}
	for _, name := range names {
		for _, value := range []string{secret.Reveal(), "redis://:" + part + "@redis\n", "time:41," + secret.Reveal()} {
			_, err := load([]string{Prefix + name + "=" + value, "SNOWGATE_NONSENSE=x"}, testNow)
			if err == nil || strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v", name, err)
			}
			_, err = load([]string{Prefix + name + "_FILE=" + writeFile(t, "v", part), Prefix + name + "=", "SNOWGATE_NONSENSE=x"}, testNow)
			if err == nil || strings.Contains(err.Error(), part) {
				t.Errorf("%s_FILE: %v", name, err)
			}
		}
	}
}

func TestKeyBytesAreACopy(t *testing.T) {
	var key Key
	if err := key.UnmarshalText([]byte(keyText)); err != nil {
		t.Fatal(err)
	}
	key.Bytes()[0] = 'x'
	if key.Bytes()[0] != '0' || (Key{}).Bytes() != nil || (Key{}).String() != "" {
		t.Error("Bytes is not a copy, or the zero key is not empty")
	}
}

func TestPrefixesContains(t *testing.T) {
	var ps Prefixes
	if err := ps.UnmarshalText([]byte("10.0.0.0/8,fe80::/10,::1")); err != nil {
		t.Fatal(err)
	}
	for ip, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "11.0.0.1": false, "::1": true, "::2": false, "fe80::1%eth0": true,
	} {
		if got := ps.Contains(netip.MustParseAddr(ip)); got != want {
			t.Errorf("Contains(%s) = %v, want %v", ip, got, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"scopes", "secrets", "id", "token_ttl"}
	for name, want := range map[string]string{
		"scope": "scopes", "Scopes": "scopes", "sceopes": "scopes", "secrts": "secrets", "tokenttl": "token_ttl", "ttl": "", "ix": "", "": "", "timeout": "",
	} {
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got := Suggest(name, "", known); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", name, got, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("LISTEN=:1\nTOKEN_TTL=1h\nREDIS_URL=redis://:hunter2@h")
	f.Add("ID_LAYOUT=time:41,sequence:22\nWORKER_ID=0\nTRUSTED_PROXIES=::/0")
	f.Add("TOKEN_KEY=" + keyText + "\nISSUER=https://x/y\nEPOCH=2000-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		var environ []string
		for line := range strings.SplitSeq(text, "\n") {
			if name, _, _ := strings.Cut(line, "="); name != "CONFIG" && !strings.HasSuffix(name, fileSuffix) {
				environ = append(environ, Prefix+line)
			}
		}
		cfg, err := load(environ, testNow)
		if err != nil {
			if faults := faultsOf(err); len(faults) == 0 || strings.Count(err.Error(), "\n") != len(faults)-1 {
				t.Fatalf("not one line per fault: %q", err)
			}
			return
		}
		if cfg.TokenTTL > cfg.TokenMaxTTL || cfg.Drain >= cfg.ShutdownTimeout || cfg.IDLayout.IsZero() || cfg.Epoch.After(testNow) {
			t.Fatalf("load accepted %q: %v", text, cfg)
		}
	})
}
