package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"

	"snowgate/proxy/docker/readonly"
)

// Limits of the proxy for the Docker API.
const (
	dockerProxyHeaderTimeout = 5 * time.Second
	dockerProxyHeaderBytes   = 16 << 10
	dockerProxyWriteTimeout  = 30 * time.Second // of a response; each event has a time of its own
	dockerProxyIdle          = 2 * time.Minute
	dockerProxyGrace         = time.Second // for requests that are running at a stop; streams are cut
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
	proxy := readonly.New(*socket)
	proxy.Asked = (&dockerReport{out: p.Stderr, socket: *socket}).asked
	proxy.Ping(ctx)
	return serveDockerProxy(ctx, listener, proxy)
}

// dockerReport says when Docker cannot be reached, and when it can again. It is safe for concurrent use.
type dockerReport struct {
	out    io.Writer
	socket string

	mu   sync.Mutex
	told string // what was said last; empty: nothing is wrong
}

// asked takes the result of a request to Docker.
func (r *dockerReport) asked(err error) {
	text := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		text = fmt.Sprintf("Docker cannot be reached: no right to use %s; run docker-proxy as root without capabilities, or as user \"65532:GID\" with the "+
			"number of the group that owns the socket: stat -c %%g %[1]s", r.socket)
	case errors.Is(err, fs.ErrNotExist):
		text = fmt.Sprintf("Docker cannot be reached: there is no %s; mount Docker's socket there, or name it with -socket", r.socket)
	case err != nil:
		text = fmt.Sprintf("Docker cannot be reached at %s: %v; does it run?", r.socket, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == r.told {
		return
	}
	r.told = text
	fmt.Fprintf(r.out, "snowgate docker-proxy: %s\n", cmp.Or(text, "Docker can be reached again"))
}

// serveDockerProxy serves until ctx ends.
func serveDockerProxy(ctx context.Context, listener net.Listener, proxy http.Handler) error {
	streams, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           proxy,
		ReadHeaderTimeout: dockerProxyHeaderTimeout,
		ReadTimeout:       dockerProxyHeaderTimeout,
		WriteTimeout:      dockerProxyWriteTimeout,
		IdleTimeout:       dockerProxyIdle,
		MaxHeaderBytes:    dockerProxyHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return streams },
		// "OPTIONS *" is refused like everything else.
		DisableGeneralOptionsHandler: true,
	}
	return serveUntil(ctx, server, listener, dockerProxyGrace, cut)
}
