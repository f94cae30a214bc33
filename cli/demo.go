package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"snowgate/clients"
	"snowgate/config"
	"snowgate/gateway"
	"snowgate/internal/panics"
	"snowgate/internal/scope"
)

// demoClient is the id of the client that the demo makes.
const demoClient = "demo"

func runDemo(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("demo")
	listen := flags.String("listen", "127.0.0.1:8080", "`address` of the gateway; a free port is taken if this one is not")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	public, err := listenDemo(ctx, *listen)
	if err != nil {
		return err
	}
	admin, err := listenDemo(ctx, "127.0.0.1:9090")
	if err != nil {
		return err
	}
	upstream, err := listenDemo(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	secret, digest := clients.NewSecret()
	cfg, err := demoConfig(public.Addr(), upstream.Addr(), digest, onTerminal(p))
	if err != nil {
		return err
	}
	logs := p.openLogs(cfg)
	defer logs.Close()
	options := p.gatewayOptions(logs)
	options.WhenReady = func() { printDemo(p, public.Addr(), admin.Addr(), secret) }
	g, err := gateway.New(cfg, options)
	if err != nil {
		return err
	}
	upstreamCtx, stopUpstream := context.WithCancel(context.WithoutCancel(ctx))
	defer stopUpstream()
	go func() {
		defer panics.Catch(panics.Gateway, nil)
		_ = (&echoServer{name: "demo upstream"}).serve(upstreamCtx, upstream)
	}()
	return g.Serve(ctx, public, admin)
}

// listenDemo listens on address, or on a free port if that one is taken.
func listenDemo(ctx context.Context, address string) (*net.TCPListener, error) {
	listener, err := gateway.Listen(ctx, address)
	if err == nil {
		return listener, nil
	}
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return nil, usageError{splitErr}
	}
	return gateway.Listen(ctx, net.JoinHostPort(host, "0"))
}

// onTerminal reports whether a person watches: then Ctrl-C ends the demo at
// once instead of draining for a load balancer that is not there.
func onTerminal(p *Process) bool {
	file, ok := p.Stdout.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// demoConfig is the configuration of the demo. The environment has no part in
// it, so that the demo does the same everywhere.
func demoConfig(public, upstream net.Addr, digest [32]byte, terminal bool) (config.Config, error) {
	cfg, err := config.Load([]string{
		"SNOWGATE_ISSUER=http://" + public.String(),
		"SNOWGATE_WORKER_ID=1",
		"SNOWGATE_LOG_FORMAT=console",
		"SNOWGATE_LOG_LEVEL=warn",
	})
	if err != nil {
		return config.Config{}, err
	}
	if terminal {
		cfg.Drain = 0
	}
	target := url.URL{Scheme: "http", Host: upstream.String()}
	cfg.File = config.File{
		Clients: []clients.Client{{
			ID:         demoClient,
			Secrets:    []clients.Secret{{ID: "s1", SHA256: digest}},
			Scopes:     scope.Of("orders.read", "orders.write"),
			TokenTTL:   10 * time.Minute,
			Introspect: clients.IntrospectAny,
		}},
		Routes: []config.Route{
			{Name: "orders", Path: "/orders", Upstreams: []url.URL{target}, Scopes: scope.Of("orders.read"),
				WebSocket: true, Timeout: config.DefaultTimeout, MaxBody: config.DefaultMaxBody},
			{Name: "public", Path: "/public", Upstreams: []url.URL{target}, Public: true,
				WebSocket: true, Timeout: config.DefaultTimeout, MaxBody: config.DefaultMaxBody},
		},
	}
	return cfg, nil
}

// demoText is what the demo prints. The lines are for a POSIX shell with curl. No
// text/template: it makes the linker keep every method of the program.
const demoText = `
snowgate demo: gateway at $GATEWAY, metrics at $ADMIN/metrics.
Everything is in this process and in memory. Paste into another terminal:

# get a token
TOKEN=$(curl -s -u $CLIENT:$SECRET -d grant_type=client_credentials $GATEWAY/oauth2/token | sed 's/.*"access_token":"\([^"]*\)".*/\1/'); echo "$TOKEN"

# call the protected service with it: 200
curl -i -H "Authorization: Bearer $TOKEN" $GATEWAY/orders/42

# call it without: 401
curl -i $GATEWAY/orders/42

# a public route needs none: 200
curl -i $GATEWAY/public/hello

# look at the token: active
curl -s -u $CLIENT:$SECRET -d token=$TOKEN $GATEWAY/oauth2/introspect

# revoke it, and try again: 401
curl -i -u $CLIENT:$SECRET -d token=$TOKEN $GATEWAY/oauth2/revoke
curl -i -H "Authorization: Bearer $TOKEN" $GATEWAY/orders/42

Ctrl-C ends it.
`

func printDemo(p *Process, public, admin net.Addr, secret clients.Plaintext) {
	text := strings.NewReplacer(
		"$GATEWAY", "http://"+public.String(),
		"$ADMIN", "http://"+admin.String(),
		"$CLIENT", demoClient,
		"$SECRET", secret.Reveal(),
	).Replace(demoText)
	fmt.Fprint(p.Stdout, text)
}
