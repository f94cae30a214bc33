package gateway

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/rs/zerolog"

	"snowgate/clients"
	"snowgate/config"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest/redistest"
)

// BenchmarkProxy compares, in one run, what a request costs through the gateway
// and through a bare httputil.ReverseProxy that checks nothing. Client, proxy
// and upstream share this process, so the ratios bound the gateway's own from
// below: a third of every figure is the client's and the upstream's work.
//
//	go test -run '^$' -bench Proxy -count 10 ./gateway | benchstat -col /through -
func BenchmarkProxy(b *testing.B) {
	upstream := serveOnLoopback(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	target, err := url.Parse("http://" + upstream)
	if err != nil {
		b.Fatal(err)
	}
	bare := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	gateway, token := benchGateway(b, *target)

	b.Run("through=bare", func(b *testing.B) { benchRequests(b, serveOnLoopback(b, bare), "/orders", "") })
	b.Run("through=snowgate-public", func(b *testing.B) { benchRequests(b, gateway, "/public", "") })
	b.Run("through=snowgate-validated", func(b *testing.B) { benchRequests(b, gateway, "/orders", token) })
}

// benchGateway starts a gateway on a real Redis and returns its address and a
// token.
func benchGateway(b *testing.B, upstream url.URL) (address, token string) {
	b.Helper()
	_, address, token = startGateway(b, redistest.Start(b).URL(), upstream)
	return address, token
}

// startGateway starts a gateway in this process, which logs nothing and is
// stopped at the end, and returns it with its address and a token. Without a URL
// of Redis it uses the embedded one.
func startGateway(t testing.TB, redisURL string, upstream url.URL) (g *Gateway, address, token string) {
	t.Helper()
	cfg, err := config.Load([]string{"SNOWGATE_REDIS_URL=" + redisURL, "SNOWGATE_WORKER_ID=1", "SNOWGATE_DRAIN=0s", "SNOWGATE_CACHE_TTL=1m"})
	if err != nil {
		t.Fatal(err)
	}
	route := config.Route{Upstreams: []url.URL{upstream}, Timeout: config.DefaultTimeout}
	public, protected := route, route
	public.Name, public.Path, public.Public = "public", "/public", true
	protected.Name, protected.Path, protected.Scopes = "orders", "/orders", scope.Of("orders.read")
	cfg.File.Routes = []config.Route{public, protected}
	cfg.File.Clients = []clients.Client{{ID: "bench", Scopes: scope.Of("orders.read")}}

	if g, err = newGateway(cfg, zerolog.New(io.Discard), "test", "none"); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	g.whenReady = func() { close(ready) }
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- g.Serve(ctx, listener, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	<-ready
	bearer, _, err := g.shared.tokens.Issue(t.Context(), tokens.Claims{Client: "bench", Scope: scope.Of("orders.read"), TTL: cfg.TokenTTL})
	if err != nil {
		t.Fatal(err)
	}
	return g, listener.Addr().String(), bearer.Reveal()
}

// serveOnLoopback serves handler until the benchmark ends and returns host:port.
func serveOnLoopback(b *testing.B, handler http.Handler) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return listener.Addr().String()
}

func benchRequests(b *testing.B, address, path, token string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	b.Cleanup(client.CloseIdleConnections)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	b.ReportAllocs()
	for b.Loop() {
		response, err := client.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			b.Fatalf("%s = %s", path, response.Status)
		}
	}
}
