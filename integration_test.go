package main_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"

	"snowgate/integration/gatewaytest"
)

const (
	redisPassword = "of-the-integration-test"
	// dockerTime is how long a container may take to start or stop.
	dockerTime = 60 * time.Second
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Run(m)) }

// TestTheMainJourney is the product in one test, on the Redis image that
// docker-compose.yml runs: a client gets a token; the token is in Redis with an
// expiry; a request with it reaches the protected service and one without it
// does not; expiry really ends it; and it outlives a restart of Redis.
func TestTheMainJourney(t *testing.T) {
	redis := startRedis(t)
	service := gatewaytest.NewRecorder(t, "")
	worker := gatewaytest.NewClient("worker", "orders.read", "token_ttl: 5m")
	const ttl = 6 * time.Second // long enough to be asked about on a busy machine
	hasty := gatewaytest.NewClient("hasty", "orders.read", "token_ttl: "+ttl.String())
	g := gatewaytest.Start(t, gatewaytest.Options{
		Config: "clients:\n" + worker.YAML + hasty.YAML + `
routes:
  - {name: orders, path: /orders, upstreams: [` + service.URL + `], scopes: [orders.read]}
`,
		Env: []string{
			"SNOWGATE_REDIS_URL=redis://:" + redisPassword + "@" + redis.address,
			"SNOWGATE_STORE_TIMEOUT=5s", // the disk may be busy
			"SNOWGATE_CACHE_TTL=0s",     // each response shows what became of Redis
		},
	})

	token := g.Token(worker)
	redis.wantExpiry(t, token, 5*time.Minute)
	wantStatus(t, g, "without a token", "", http.StatusUnauthorized)
	wantStatus(t, g, "with a made-up token", token[:60]+"0000000000", http.StatusUnauthorized)
	if got := service.Requests(); len(got) > 0 {
		t.Fatalf("the service received %q without a token", got)
	}
	wantStatus(t, g, "with the token", token, http.StatusOK)
	if raw := service.Only(); gatewaytest.Header(raw, "X-Snowgate-Client")[0] != "worker" || len(gatewaytest.Header(raw, "Authorization")) > 0 {
		t.Errorf("the service received %q", raw)
	}

	begin := time.Now()
	short := g.Token(hasty)
	issued := time.Now()
	redis.wantExpiry(t, short, ttl)
	wantStatus(t, g, "with a short token", short, http.StatusOK)
	gatewaytest.Eventually(t, 2*ttl, "the short token ends", func() bool {
		return g.Get("/orders/1", short).StatusCode == http.StatusUnauthorized
	})
	if lived := time.Since(begin); lived < ttl-issued.Sub(begin) {
		t.Errorf("the token of %v lived for %v", ttl, lived)
	}
	gatewaytest.Eventually(t, 2*ttl, "Redis forgets the short token", func() bool {
		return redis.do(t, "EXISTS", "sg:t:"+idOf(short)) == "0"
	})

	redis.restart(t)
	g.WaitServed(10*time.Second, "the token after a restart of Redis", func() gatewaytest.Response { return g.Get("/orders/1", token) })
	redis.wantExpiry(t, token, 5*time.Minute)
	if status, _ := g.Post("/oauth2/revoke", worker, "token", token); status != http.StatusOK {
		t.Errorf("revocation: %d", status)
	}
	wantStatus(t, g, "with the revoked token", token, http.StatusUnauthorized)
	if got := redis.do(t, "EXISTS", "sg:t:"+idOf(token)); got != "0" {
		t.Error("the revoked token is still in Redis")
	}
}

func wantStatus(t *testing.T, g *gatewaytest.Gateway, what, token string, want int) {
	t.Helper()
	if got := g.Get("/orders/1", token); got.StatusCode != want {
		t.Errorf("%s: %d %s, want %d", what, got.StatusCode, got.Body, want)
	}
}

func idOf(token string) string { return strings.Split(token, "_")[1] }

// redisContainer is Redis in a container, with an append-only file.
type redisContainer struct {
	pool     *dockertest.Pool
	resource *dockertest.Resource
	address  string
}

// startRedis starts the image that docker-compose.yml names. Without a Docker
// engine the test is skipped, or fails if SNOWGATE_TEST_REQUIRE=1.
func startRedis(t *testing.T) *redisContainer {
	t.Helper()
	pool, err := dockertest.NewPool("")
	if err == nil {
		err = pool.Client.Ping()
	}
	if err != nil {
		if os.Getenv("SNOWGATE_TEST_REQUIRE") == "1" {
			t.Fatalf("no Docker engine answers (%v), and SNOWGATE_TEST_REQUIRE=1", err)
		}
		t.Skipf("SKIPPED, NOT TESTED: no Docker engine answers: %v", err)
	}
	pool.MaxWait = dockerTime
	repository, tag := composeImage(t)
	port := freePort(t) // a fixed one, so that it is the same after a restart
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository: repository, Tag: tag,
		Cmd:          []string{"redis-server", "--appendonly", "yes", "--requirepass", redisPassword},
		PortBindings: map[docker.Port][]docker.PortBinding{"6379/tcp": {{HostIP: "127.0.0.1", HostPort: port}}},
	}, func(config *docker.HostConfig) { config.AutoRemove = false })
	if err != nil {
		t.Fatalf("%s:%s does not start: %v", repository, tag, err)
	}
	t.Cleanup(func() {
		if err := pool.Purge(resource); err != nil {
			t.Errorf("the container of Redis stays: %v", err)
		}
	})
	r := &redisContainer{pool, resource, resource.GetHostPort("6379/tcp")}
	r.await(t)
	return r
}

// composeImage returns the image of the service redis in docker-compose.yml.
func composeImage(t *testing.T) (repository, tag string) {
	t.Helper()
	text, err := os.ReadFile("docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s*image: *(\S*redis\S*):(\S+)$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("docker-compose.yml names no image of Redis")
	}
	return string(found[1]), string(found[2])
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// await returns when Redis answers.
func (r *redisContainer) await(t *testing.T) {
	t.Helper()
	if err := r.pool.Retry(func() error {
		answer, err := r.try("PING")
		if err == nil && answer != "PONG" {
			err = fmt.Errorf("redis-cli: %s", answer)
		}
		return err
	}); err != nil {
		t.Fatalf("Redis does not answer: %v", err)
	}
}

// restart ends Redis in good order and starts it again. It does not leave that to
// the engine, because dockertest gives containers a stop signal that Redis ignores.
func (r *redisContainer) restart(t *testing.T) {
	t.Helper()
	id := r.resource.Container.ID
	if err := r.pool.Client.KillContainer(docker.KillContainerOptions{ID: id, Signal: docker.SIGTERM}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), dockerTime)
	defer cancel()
	if _, err := r.pool.Client.WaitContainerWithContext(id, ctx); err != nil {
		t.Fatalf("Redis does not end: %v", err)
	}
	if err := r.pool.Client.StartContainer(id, nil); err != nil {
		t.Fatal(err)
	}
	r.await(t)
}

// try runs redis-cli in the container.
func (r *redisContainer) try(command ...string) (string, error) {
	var out, errs bytes.Buffer
	code, err := r.resource.Exec(append([]string{"redis-cli"}, command...), dockertest.ExecOptions{
		Env: []string{"REDISCLI_AUTH=" + redisPassword}, StdOut: &out, StdErr: &errs,
	})
	if err == nil && code != 0 {
		err = fmt.Errorf("redis-cli: exit code %d: %s%s", code, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String()), err
}

func (r *redisContainer) do(t *testing.T, command ...string) string {
	t.Helper()
	answer, err := r.try(command...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// wantExpiry checks that the token's record ends by itself: the key lives one
// second longer than the token, whose expiry is an instant in the record.
func (r *redisContainer) wantExpiry(t *testing.T, token string, ttl time.Duration) {
	t.Helper()
	rest, err := strconv.Atoi(r.do(t, "PTTL", "sg:t:"+idOf(token)))
	if err != nil {
		t.Fatal(err)
	}
	// It is some moments younger than it was.
	got := time.Duration(rest) * time.Millisecond
	if slack := min(ttl/2, 30*time.Second); got > ttl+time.Second || got < ttl+time.Second-slack {
		t.Errorf("the record of a token of %v is kept for %v more", ttl, got)
	}
}
