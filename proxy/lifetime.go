package proxy

import (
	"context"
	"sync"
	"sync/atomic"

	"snowgate/internal/panics"
	"snowgate/proxy/http1"
)

// lifetime records whether a round trip goes on, and aborts everything it waits for when it does
// not. It is safe for concurrent use.
type lifetime struct {
	client context.Context //nolint:containedctx // of the request of the client

	mu       sync.Mutex  // guards what follows
	reason   error       // why the round trip was given up; nil: it goes on
	quit     atomic.Bool // there is a reason; read without the lock
	call     *http1.Call
	ctx      context.Context //nolint:containedctx // see Context
	cancel   context.CancelCauseFunc
	unfollow func() bool // the client; nil: nobody follows it
	tunnel   bool        // it is a WebSocket, see leaveToTunnel
}

// giveUp ends the round trip for the reason given, whatever it waits for.
func (l *lifetime) giveUp(reason error) {
	l.mu.Lock()
	if l.reason == nil {
		l.reason = reason
		l.quit.Store(true)
	}
	call, cancel := l.call, l.cancel
	l.mu.Unlock()
	if call != nil {
		call.Abort()
	}
	if cancel != nil {
		cancel(reason)
	}
}

// givenUp returns why the round trip was given up, nil if it goes on.
func (l *lifetime) givenUp() error {
	if !l.quit.Load() && l.client.Err() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == nil {
		l.reason = context.Cause(l.client)
		l.quit.Store(true)
	}
	return l.reason
}

// Attach has call aborted when the round trip is given up.
func (l *lifetime) Attach(call *http1.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.call = call
	if l.reason != nil {
		call.Abort()
	}
}

// follow aborts the round trip, from now on, when the client is gone. It is called when the round
// trip has lasted for a while. Most are over by then, and save the cost of following a context.
func (l *lifetime) follow() {
	unfollow := context.AfterFunc(l.client, func() {
		defer panics.Catch(panics.Exchange, nil)
		if !l.isTunnel() {
			l.giveUp(context.Cause(l.client))
		}
	})
	l.mu.Lock()
	l.unfollow = unfollow
	l.mu.Unlock()
}

// leaveToTunnel says that the round trip has become a WebSocket. Its end is announced to the client
// first, by a close frame, so nothing is aborted at once when the context of the client ends.
// TestWebSocketIsNotAborted fails without it.
func (l *lifetime) leaveToTunnel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tunnel = true
}

func (l *lifetime) isTunnel() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tunnel
}

// Context returns a context that ends when the round trip is given up, with the reason as its cause,
// or when it is over. Most round trips need none.
func (l *lifetime) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.client)
		if l.reason != nil {
			l.cancel(l.reason)
		}
	}
	return l.ctx
}

// end ends what was made for the round trip, and waits for the upload of its last call.
func (l *lifetime) end() {
	l.mu.Lock()
	call, cancel, unfollow := l.call, l.cancel, l.unfollow
	l.mu.Unlock()
	if unfollow != nil {
		unfollow()
	}
	if cancel != nil {
		cancel(nil)
	}
	if call != nil {
		call.Wait()
	}
}

// isShared reports whether a context or somebody who follows the client may still know of l.
func (l *lifetime) isShared() bool { return l.unfollow != nil || l.cancel != nil }
