package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"snowgate/internal/echo"
)

// echoGrace is how long the demo upstream lets running requests finish.
const echoGrace = 5 * time.Second

func runEcho(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("echo")
	listen := flags.String("listen", ":8080", "`address` to listen on")
	name := flags.String("name", "echo", "`name` to answer with")
	health := flags.String("health", "", "`path` that says 200; or 503: after the signal USR1 until USR2 comes, and while it drains")
	drain := flags.Duration("drain", 0, "how `long` to answer on after SIGTERM, so that callers can leave before the listener is closed")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	upstream := echoServer{name: *name, drain: *drain}
	if *health != "" {
		upstream.healthPath = *health
		stop := onHealthSignal(upstream.health.Set)
		defer stop()
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Stderr, "snowgate echo: %s listens on %s\n", *name, listener.Addr())
	return upstream.serve(ctx, listener)
}

// echoServer is the demo upstream.
type echoServer struct {
	name       string
	healthPath string        // path of its health check; empty: none
	drain      time.Duration // how long it goes on after it was asked to end

	health   echo.Health
	draining echo.Drain
}

// serve serves the demo upstream until ctx ends and it was left for as long as
// it drains, then lets running requests finish for a moment and cuts what is left.
func (e *echoServer) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: e.draining.Wrap(e.handler()), ReadHeaderTimeout: 10 * time.Second}
	return serveUntil(ctx, server, listener, echoGrace, func() {
		e.health.Set(false)
		e.draining.Begin()
		<-time.After(e.drain)
	})
}

func (e *echoServer) handler() http.Handler {
	echoes := echo.Handler(e.name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.healthPath != "" && r.URL.Path == e.healthPath {
			e.health.ServeHTTP(w, r)
			return
		}
		echoes.ServeHTTP(w, r)
	})
}
