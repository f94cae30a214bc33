package proxy

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestWebSocketIsNotAborted: when the gateway stops, the client of a WebSocket is sent a close frame
// before the connection to the service is closed. Whoever follows the client must not be faster.
func TestWebSocketIsNotAborted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"exchange": ErrStopping, "WebSocket": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, stop := context.WithCancelCause(t.Context())
				l := &lifetime{client: client}
				l.follow()
				if name == "WebSocket" {
					l.leaveToTunnel()
				}
				stop(ErrStopping)
				synctest.Wait()
				l.mu.Lock()
				defer l.mu.Unlock()
				if l.reason != want {
					t.Errorf("given up because of %v, want %v", l.reason, want)
				}
			})
		})
	}
}
