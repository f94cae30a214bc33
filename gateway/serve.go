package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"snowgate/internal/clientconn"
	"snowgate/internal/deadline"
	"snowgate/internal/panics"
	"snowgate/middleware"
	"snowgate/proxy"
)

// Limits of both listeners.
const (
	readHeaderTimeout = 10 * time.Second
	// readTimeout limits how long net/http reads the rest of a body that no handler has read.
	// Endpoints with a body and the proxy set deadlines of their own.
	readTimeout = 10 * time.Second
	// writeTimeout limits how long a client may take to read a response of the gateway itself. The
	// proxy sets deadlines of its own.
	writeTimeout = 60 * time.Second
	idleTimeout  = 2 * time.Minute
	// restAfter is how long a connection is idle before it is parked.
	restAfter = 5 * time.Second
	// headerBytes is the size from which a header block is answered with 431. net/http adds 4 KiB
	// to its own setting.
	headerBytes = 32<<10 - 4<<10
)

// Serve serves requests until ctx ends, and then shuts down. The gateway is not ready at once. It still
// accepts requests for the drain time, and each response closes its connection. Then it closes the
// listeners, lets running requests finish, and cuts those that take longer than the shutdown timeout.
// admin may be nil.
func (g *Gateway) Serve(ctx context.Context, public, admin *net.TCPListener) error {
	defer g.close()
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(nil)

	// Streams end when the context of their request does.
	streams, cutStreams := context.WithCancelCause(work)
	defer cutStreams(nil)
	draining := newDrainingListener(public)
	publicServer := g.newServer(streams, "public", g.publicHandler(g.endpoints.forwarder))
	g.speak(publicServer)
	adminServer := g.newServer(work, "admin", g.adminHandler())
	g.announce(public, admin)
	g.cfg.File = g.cfg.File.Spent() // what is in force of it is elsewhere, and what lives in memory costs time with every collection
	failed := make(chan error, 4)
	fall := func(err error) { failed <- err } // there is no gateway without a listener
	go func() { defer panics.Catch(panics.Gateway, fall); failed <- g.servePublic(publicServer, draining) }()
	if g.certificate == nil { // with TLS, none goes to rest
		go func() { defer panics.Catch(panics.Gateway, fall); failed <- publicServer.Serve(draining.rest) }()
	}
	if admin != nil {
		go func() { defer panics.Catch(panics.Gateway, fall); failed <- adminServer.Serve(admin) }()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer panics.Catch(panics.Gateway, fall)
		if err := g.background(work, portOf(public), draining.rest.Count); err != nil {
			failed <- err
		}
	}()

	var err error
	select {
	case <-ctx.Done():
		g.leave(draining, publicServer, cutStreams)
	case err = <-failed: // whatever it is, there is no gateway without it
		g.log.Error().Err(err).Msg("the gateway cannot go on")
	}
	_ = publicServer.Close()
	_ = adminServer.Close()
	stopWork(errors.New("the gateway has stopped"))
	<-done // no generator is started any more
	g.release()
	return err
}

// connContext adds to the context of a connection what its requests share.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return middleware.ConnContext(clientconn.ConnContext(ctx, c), c)
}

func (g *Gateway) newServer(base context.Context, name string, handler http.Handler) *http.Server {
	server := &http.Server{
		Handler:                      handler,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               headerBytes,
		DisableGeneralOptionsHandler: true, // "OPTIONS *" is no path: it is refused like other targets
		ErrorLog:                     serverLog(g.log, name),
		BaseContext:                  func(net.Listener) context.Context { return base },
		ConnContext:                  connContext,
		ConnState:                    clientconn.ConnState,
		Protocols:                    new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	return server
}

func (g *Gateway) servePublic(server *http.Server, listener net.Listener) error {
	if g.certificate != nil {
		return server.ServeTLS(listener, "", "") // the certificate is in its TLSConfig
	}
	return server.Serve(listener)
}

// announce logs where the gateway listens, and warnings about its configuration.
func (g *Gateway) announce(public, admin *net.TCPListener) {
	line := g.log.Info().Str("version", g.version).Str("commit", g.commit).Str("listen", public.Addr().String()).Bool("tls", g.certificate != nil).
		Str("issuer", g.cfg.Issuer).Int("clients", len(g.cfg.File.Clients)).Int("routes", len(g.cfg.File.Routes))
	if admin != nil {
		line.Str("admin_listen", admin.Addr().String())
	}
	line.Msg("snowgate starts")
	if g.storage.embedded != nil {
		g.log.Warn().Msg("SNOWGATE_REDIS_URL is not set: tokens are kept in this process only and are gone when it ends; this is for trying out")
	}
	if g.cfg.ConfigFile == "" && len(g.cfg.File.Clients) == 0 {
		g.log.Warn().Msg("SNOWGATE_CONFIG is not set: there are no clients and no routes")
	}
	g.logNotes(g.cfg.File)
}

// leave shuts down and returns after the last response. Its timeouts count from the call.
func (g *Gateway) leave(public *drainingListener, server *http.Server, cutStreams context.CancelCauseFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.ShutdownTimeout)
	defer cancel()
	g.log.Info().Dur("drain", g.cfg.Drain).Dur("timeout", g.cfg.ShutdownTimeout).Msg("snowgate stops: it still accepts requests")
	g.drainer.Start()
	_ = deadline.Sleep(ctx, g.cfg.Drain)

	public.Retire(ctx)
	if err := g.settle(ctx); err != nil {
		g.log.Warn().Int64("requests", g.drainer.Running()).Msg("requests that still run are cut")
		cutStreams(proxy.ErrStopping)
		g.awaitCut()
	}
	// All that is left are connections on which nothing has been asked.
	_ = server.Close()
}

// settleTime is how long no request may arrive before the gateway takes all for answered.
const settleTime = 300 * time.Millisecond

// settle waits until no request runs and none arrives on the connections that
// were accepted last. http.Server.Shutdown would not do: it drops a request that
// has been sent but not parsed yet, and does not wait for WebSockets.
func (g *Gateway) settle(ctx context.Context) error {
	for {
		if err := g.drainer.Wait(ctx); err != nil {
			return err
		}
		if deadline.Sleep(ctx, settleTime) != nil {
			return context.Cause(ctx)
		}
		if g.drainer.Running() == 0 {
			return nil
		}
	}
}

// cutTime is how long requests that were cut may take to notice.
const cutTime = time.Second

func (g *Gateway) awaitCut() {
	ctx, cancel := context.WithTimeout(context.Background(), cutTime)
	defer cancel()
	if err := g.drainer.Wait(ctx); err != nil {
		g.log.Warn().Int64("requests", g.drainer.Running()).Msg("requests did not end when they were cut")
	}
}

// release gives the worker number back, so that the next gateway need not wait
// for the lease to end.
func (g *Gateway) release() {
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.StoreTimeout)
	defer cancel()
	if err := g.shared.registry.Flush(ctx); err != nil {
		g.log.Debug().Err(err).Msg("the last uses of client secrets are not written down")
	}
	if err := g.ids.close(ctx); err != nil {
		g.log.Warn().Err(err).Msg("the worker number could not be given back; it is free again when its lease ends")
	}
}

func portOf(listener *net.TCPListener) string {
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		return strconv.Itoa(address.Port)
	}
	return ""
}
