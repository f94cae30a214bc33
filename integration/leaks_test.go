package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
	"snowgate/tokens/tokenstest/redistest"
)

// inner is a test within a test: what it reports is kept, and what it cleans up can be called.
type inner struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (i *inner) Cleanup(f func()) { i.cleanups = append(i.cleanups, f) }
func (i *inner) Errorf(format string, args ...any) {
	i.errors = append(i.errors, fmt.Sprintf(format, args...))
}

// end cleans up as at the end of a test.
func (i *inner) end() {
	for n := len(i.cleanups) - 1; n >= 0; n-- {
		i.cleanups[n]()
	}
}

// TestEveryTestLooksForLeaks: a secret that gets into the log, a refusal or Redis fails the test
// that let it get there.
func TestEveryTestLooksForLeaks(t *testing.T) { // not parallel: another test would report the refusal
	upstream := cuttest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(r.URL.Query().Get("echo")))
	}))
	t.Cleanup(upstream.Close)
	server := redistest.Start(t)
	client := gatewaytest.NewClient("worker", "a")
	for name, test := range map[string]struct {
		leak func(g *gatewaytest.Gateway, token string)
		want string // empty: nothing leaks
	}{
		"nothing":   {func(g *gatewaytest.Gateway, token string) { g.Get("/echo", token) }, ""},
		"the log":   {func(g *gatewaytest.Gateway, token string) { g.Get("/echo/"+token[20:40], "") }, "the log holds a token"},
		"Basic":     {func(g *gatewaytest.Gateway, _ string) { g.Get("/echo/"+basicOf(client)[30:50], "") }, "the log holds the Basic credentials of worker"},
		"a refusal": {func(g *gatewaytest.Gateway, token string) { g.Get("/echo?echo="+token[:50], "") }, "a response with 418 holds a token"},
		"a key":     {func(_ *gatewaytest.Gateway, token string) { server.Do("SET", "x:"+token[20:40], "1") }, "Redis holds a token"},
		"a hash":    {func(_ *gatewaytest.Gateway, _ string) { server.Do("HSET", "x", "secret", client.Secret) }, "Redis holds the secret of worker"},
		"a set":     {func(_ *gatewaytest.Gateway, token string) { server.Do("ZADD", "x", "1", token) }, "Redis holds a token"},
	} {
		i := &inner{TB: t}
		g := gatewaytest.Start(i, gatewaytest.Options{
			Config: "clients:\n" + client.YAML + "routes:\n  - {name: echo, path: /echo, upstreams: [" + upstream.URL + "], public: true}\n",
			Env:    []string{"SNOWGATE_REDIS_URL=" + server.URL()},
		})
		token := g.Token(client)
		test.leak(g, token)
		i.end()
		server.Do("DEL", "x", "x:"+token[20:40])
		got := strings.Join(i.errors, "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) || len(i.errors) > 1 {
			t.Errorf("%s: %q, want %q in it", name, got, test.want)
		}
	}
}

// TestEmbeddedRedisIsSearched: so does what the Redis inside the process holds.
func TestEmbeddedRedisIsSearched(t *testing.T) { // not parallel, as the one before
	client := gatewaytest.NewClient("worker", "a")
	for name, plant := range map[string]bool{"nothing": false, "a token": true} {
		i := &inner{TB: t}
		g := gatewaytest.Start(i, gatewaytest.Options{Config: "clients:\n" + client.YAML})
		token := g.Token(client)
		options, err := redis.ParseURL(g.EmbeddedURL())
		if err != nil {
			t.Fatalf("the embedded Redis is not found: %v", err)
		}
		embedded := redis.NewClient(options)
		if plant {
			err = embedded.Set(t.Context(), "x", token, 0).Err()
		}
		if size := embedded.DBSize(t.Context()).Val(); err != nil || size < 2 {
			t.Errorf("%d keys, %v: want what the gateway has stored", size, err)
		}
		_ = embedded.Close()
		i.end()
		if found := strings.Contains(strings.Join(i.errors, "\n"), "Redis holds a token"); found != plant {
			t.Errorf("%s: %q", name, i.errors)
		}
	}
}
