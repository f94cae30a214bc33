package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"snowgate/echo"
)

// echoGrace is how long the demo upstream lets running requests finish.
const echoGrace = 5 * time.Second

func runEcho(ctx context.Context, p *process, args []string) error {
	flags := newFlags("echo")
	listen := flags.String("listen", ":8080", "`address` to listen on")
	name := flags.String("name", "echo", "`name` to answer with")
	if err := parseFlags(p, flags, args, 0); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "snowgate echo: %s listens on %s\n", *name, listener.Addr())
	return serveEcho(ctx, listener, *name)
}

// serveEcho serves the demo upstream until ctx ends, then lets running requests
// finish for a moment and cuts what is left.
func serveEcho(ctx context.Context, listener net.Listener, name string) error {
	server := &http.Server{Handler: echo.Handler(name), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), echoGrace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
