package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"snowgate/internal/panics"
)

// serveUntil has server accept connections of listener until ctx ends. Then it calls leave, gives
// running requests the time grace to finish, and closes the connections of those that do not. It returns
// nil after ctx has ended, and the error of the server if that stops earlier.
func serveUntil(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration, leave func()) error {
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
	leave()
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if server.Shutdown(finish) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
