package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/docker/readonly"
)

// Limits of the proxy for the Docker API.
const (
	dockerProxyHeaderTimeout = 5 * time.Second
	dockerProxyHeaderBytes   = 16 << 10
	dockerProxyWriteTimeout  = 30 * time.Second // of an answer; each event has a time of its own
	dockerProxyIdle          = 2 * time.Minute
	dockerProxyGrace         = time.Second // for what runs when it is stopped; streams are cut
)

// runDockerProxy lets others list containers, networks and events of Docker, and
// nothing else.
func runDockerProxy(ctx context.Context, p *Process, args []string) error {
	flags := newFlags("docker-proxy")
	listen := flags.String("listen", ":2375", "`address` to listen on; only the gateway must reach it")
	socket := flags.String("socket", "/var/run/docker.sock", "`path` of Docker's socket")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Stderr, "snowgate docker-proxy: lists containers, networks and events of %s on %s\n", *socket, listener.Addr())
	return serveDockerProxy(ctx, listener, *socket)
}

// serveDockerProxy serves until ctx ends.
func serveDockerProxy(ctx context.Context, listener net.Listener, socket string) error {
	streams, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           readonly.New(socket),
		ReadHeaderTimeout: dockerProxyHeaderTimeout,
		ReadTimeout:       dockerProxyHeaderTimeout,
		WriteTimeout:      dockerProxyWriteTimeout,
		IdleTimeout:       dockerProxyIdle,
		MaxHeaderBytes:    dockerProxyHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return streams },
		// "OPTIONS *" is refused like everything else.
		DisableGeneralOptionsHandler: true,
	}
	served := make(chan error, 1)
	go func() {
		defer panics.Catch(panics.Gateway, func(err error) { served <- err })
		served <- server.Serve(listener)
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	cut()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), dockerProxyGrace)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
