package proxy

import (
	"net/http"
	"sync"
	"time"

	"snowgate/internal/panics"
	"snowgate/internal/request/exchange"
	"snowgate/proxy/route"
	"snowgate/tokens"
)

// Watch watches over the token of a long exchange. It calls cut soon after t has
// expired, was revoked, or no longer meets what req asks, with the reason: an
// error that matches [tokens.ErrInvalid] or [tokens.ErrUnavailable], or an
// [*tokens.InsufficientScopeError]. It may call it at once, before it returns.
// cut does not block and may be called by any goroutine, more than once. stop
// ends the watch; it is called exactly once, when the exchange has ended.
type Watch func(t *tokens.Token, req tokens.Requirement, cut func(reason error)) (stop func())

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// tokenWatch aborts a round trip when its token expires or is revoked. It is safe for concurrent use.
type tokenWatch struct {
	watch    Watch
	exchange *exchange.Exchange
	policy   *route.Policy
	lifetime *lifetime
	control  *http.ResponseController
	body     *clientBody // nil: there is none

	closing sync.WaitGroup

	mu         sync.Mutex // guards what follows
	registered bool
	stop       func()  // ends the watch; nil: the round trip is not watched
	reason     error   // why the round trip was cut; nil: it was not
	begun      bool    // the response has begun
	tunnel     *tunnel // nil: the connection was not upgraded
	ended      bool    // the round trip has ended
}

// connect sets the exchange that w watches over, and the parts that it aborts.
func (w *tokenWatch) connect(watch Watch, x *exchange.Exchange, policy *route.Policy, l *lifetime, control *http.ResponseController) {
	w.watch, w.exchange, w.policy, w.lifetime, w.control = watch, x, policy, l, control
}

// register has the token watched from now on, unless there is none.
func (w *tokenWatch) register() {
	if w.watch == nil || w.exchange.Token.IsZero() {
		return
	}
	w.mu.Lock()
	again := w.registered
	w.registered = true
	w.mu.Unlock()
	if again {
		return
	}
	stop := w.watch(&w.exchange.Token, w.policy.Requirement, w.cut)
	w.mu.Lock()
	ended := w.ended
	if !ended {
		w.stop = stop
	}
	w.mu.Unlock()
	if ended {
		stop()
	}
}

// cut breaks the round trip off. The service is hung up on, and a client that does not send what it
// has begun, or take what it is sent, is not waited for.
func (w *tokenWatch) cut(reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.reason != nil {
		return
	}
	w.reason = reason
	if tunnel := w.tunnel; tunnel != nil {
		w.closing.Go(func() {
			defer panics.Catch(panics.Exchange, w.lifetime.giveUp)
			tunnel.cut(reason)
			w.lifetime.giveUp(reason)
		})
		return
	}
	w.lifetime.giveUp(reason) // before the deadline: see allowWrite
	w.body.interrupt(reason)
	if w.begun {
		_ = w.control.SetWriteDeadline(past)
	}
}

// cutBy returns why the round trip was cut, nil if it was not.
func (w *tokenWatch) cutBy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reason
}

// begin notes that the response has begun: from now on the only way to end it early is to break it
// off.
func (w *tokenWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
}

// broken reports whether the response was broken off.
func (w *tokenWatch) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun && w.reason != nil
}

// open calls take, which takes the connection over for a WebSocket, unless the round trip was cut.
// From then on cut ends the tunnel that take has returned.
func (w *tokenWatch) open(take func() (*tunnel, error)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason != nil {
		return w.reason
	}
	var err error
	w.tunnel, err = take()
	return err
}

// end ends the watch, and returns why the round trip was cut. w touches nothing after end has
// returned.
func (w *tokenWatch) end() (reason error) {
	w.mu.Lock()
	w.ended = true
	stop, reason := w.stop, w.reason
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	w.closing.Wait()
	return reason
}

// isWatched reports whether the token is watched.
func (w *tokenWatch) isWatched() bool { return w.stop != nil }
