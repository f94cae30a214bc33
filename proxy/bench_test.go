package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"

	"github.com/rs/zerolog"

	"snowgate/internal/problem"
	"snowgate/middleware"
	"snowgate/proxy"
	"snowgate/proxy/route"
	"snowgate/tokens"
)

// BenchmarkRequest compares a request through the whole gateway (access line,
// canonical path, route, verdict on a token, identity, forwarding) with one
// through nothing but httputil.ReverseProxy, on kept-alive connections over
// loopback. The difference bounds what the gateway adds.
func BenchmarkRequest(b *testing.B) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	defer service.Close()
	u := mustParse(b, service.URL)

	transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
	defer transport.CloseIdleConnections()
	bare := &httputil.ReverseProxy{Transport: transport, Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(u)
		p.SetXForwarded()
	}}
	table, err := route.NewTable([]route.Route{protected(u)}, nil)
	if err != nil {
		b.Fatal(err)
	}
	router := newRouter()
	router.Swap(table)
	forwarder := proxy.NewForwarder(proxy.Options{
		Watch: func(*tokens.Token, tokens.Requirement, func(error)) func() { return func() {} },
	})
	defer router.Close()
	var handler http.Handler = forwarder
	handler = middleware.Authenticate(judge{}, proxy.Challenge(problem.Challenge{}), proxy.Requirement)(handler)
	handler = proxy.Match(router)(handler)
	handler = middleware.Canonical()(handler)
	handler = middleware.Drain(middleware.NewDrainer())(handler)
	handler = middleware.Recover()(handler)
	handler = middleware.Observe(middleware.Observation{Log: zerolog.New(io.Discard)})(handler)

	b.Run("bare", func(b *testing.B) { benchmarkHandler(b, bare) })
	b.Run("snowgate", func(b *testing.B) { benchmarkHandler(b, handler) })
}

func benchmarkHandler(b *testing.B, handler http.Handler) {
	server := httptest.NewServer(handler)
	defer server.Close()
	request := []byte(get("/svc/items/42", authorized+"Accept: */*\r\nUser-Agent: bench\r\n"))
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(context.Background(), "tcp", server.Listener.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		reader := bufio.NewReader(conn)
		for p.Next() {
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
			response, err := http.ReadResponse(reader, nil)
			if err != nil || response.StatusCode != http.StatusOK {
				b.Error(response, err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
		}
	})
}
