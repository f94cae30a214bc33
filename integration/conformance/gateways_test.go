package conformance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// gateways are those of the cases by name, each with its issuer and further
// variables.
var gateways = map[string]struct {
	issuer string
	env    []string
}{
	"root":  {issuer: "https://as.example"},
	"path":  {issuer: "https://as.example/tenant/a"},                                         // an issuer with a path
	"down":  {issuer: "https://as.example"},                                                  // it never reaches its Redis
	"limit": {issuer: "https://as.example", env: []string{"SNOWGATE_FAILED_AUTH_RATE=10/m"}}, // the others have no limit
}

// routes are those of every gateway. $UPSTREAM tells what it received, see echo.
const routes = `
routes:
  - {name: read, path: /read, upstreams: [$UPSTREAM], scopes: [orders.read]}
  - {name: write, path: /write, upstreams: [$UPSTREAM], scopes: [orders.write]}
  - {name: both, path: /both, upstreams: [$UPSTREAM], scopes: [orders.read, orders.write]}
  - {name: any, path: /any, upstreams: [$UPSTREAM]}
  - {name: orders, path: /orders, upstreams: [$UPSTREAM], audience: "https://orders.example"}
  - {name: billing, path: /billing, upstreams: [$UPSTREAM], scopes: [orders.read], audience: "https://billing.example"}
  - {name: public, path: /public, upstreams: [$UPSTREAM], public: true}
`

// newClients makes the clients of the cases.
func newClients() []gatewaytest.Credentials {
	const audiences = `audiences: ["https://orders.example", "https://billing.example"]`
	return []gatewaytest.Credentials{
		gatewaytest.NewClient("worker", "orders.read orders.write", audiences, "token_ttl: 30m"),
		gatewaytest.NewClient("other", "orders.read"),
		gatewaytest.NewClient("plain", ""), // no scope, no audience
		gatewaytest.NewClient("a.b~c-d_e", "orders.read"),
		gatewaytest.NewClient("operator", "orders.read snowgate:admin"),
		gatewaytest.NewClient("brief", "orders.read", "token_ttl: 1s"),
		gatewaytest.NewClient("monitor", "", "introspect: true"),
		gatewaytest.NewClient("orders-api", "orders.read", "introspect: audience", `audiences: ["https://orders.example"]`),
		gatewaytest.NewClient("stock-api", "", "introspect: audience", `audiences: ["https://stock.example"]`),
	}
}

// gateway is a running gateway and what the cases need to know of it.
type gateway struct {
	*gatewaytest.Gateway
	issuer  string
	clients map[string]gatewaytest.Credentials
	expired func() string // a token of the client brief
}

// start runs the gateways with those names.
func start(t *testing.T, names ...string) map[string]*gateway {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(echo))
	t.Cleanup(upstream.Close)
	clients := newClients()
	config := "clients:\n"
	byID := make(map[string]gatewaytest.Credentials)
	for _, c := range clients {
		config += c.YAML
		byID[c.ID] = c
	}
	config += strings.ReplaceAll(routes, "$UPSTREAM", upstream.URL)
	running := make(map[string]*gateway)
	for _, name := range names {
		issuer := gateways[name].issuer
		env := append(gateways[name].env, "SNOWGATE_ISSUER="+issuer, "GORACE=atexit_sleep_ms=0")
		o := gatewaytest.Options{Config: config, Env: env}
		if name == "down" {
			o.NotReady = true
			o.Env = append(o.Env, "SNOWGATE_REDIS_URL="+strings.Replace(gatewaytest.ClosedPort(t), "http://", "redis://", 1))
		} else {
			o.Env = append(o.Env, "SNOWGATE_STORE_TIMEOUT=10s") // no case is about a busy machine
		}
		g := &gateway{Gateway: gatewaytest.Start(t, o), issuer: issuer, clients: byID}
		g.expired = sync.OnceValue(func() string { return g.expire(t) })
		running[name] = g
	}
	return running
}

// expire gets a token and waits for its end.
func (g *gateway) expire(t *testing.T) string {
	t.Helper()
	token := g.Token(g.clients["brief"])
	gatewaytest.Eventually(t, 20*time.Second, "the end of a token of a second", func() bool {
		return g.Get("/any", token).StatusCode == http.StatusUnauthorized
	})
	return token
}

// echo is the service behind the gateway. It answers with what it was sent: the
// target, and of the header what says who is calling.
func echo(w http.ResponseWriter, r *http.Request) {
	seen := map[string]any{"target": r.URL.RequestURI()}
	for name, values := range r.Header {
		if isIdentity(name) || name == "Authorization" || name == "Cookie" {
			seen[name] = strings.Join(values, " | ")
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(seen)
}

// isIdentity reports whether a service might read name as one of the gateway's
// headers: some fold every character that is not a letter.
func isIdentity(name string) bool {
	return strings.HasPrefix(strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name)), "xsnowgate")
}
