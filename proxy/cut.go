package proxy

import (
	"errors"
	"sync"
	"time"

	"snowgate/internal/panics"
	"snowgate/problem"
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

// leash is what an exchange is cut by when its token ends.
type leash struct {
	once    sync.Once // the exchange is registered
	closing sync.WaitGroup

	mu     sync.Mutex
	stop   func()  // ends the watch; nil: the exchange is not watched
	reason error   // why the exchange was cut; nil: it was not
	begun  bool    // the answer has begun
	tunnel *tunnel // nil: the connection was not upgraded
	landed bool    // the exchange has ended
}

// watched reports whether the exchange ends when its token does.
func (f *flight) watched() bool { return f.forwarder.watch != nil && !f.exchange.Token.IsZero() }

// register has the token of the exchange watched from now on.
func (f *flight) register() {
	if !f.watched() {
		return
	}
	f.leash.once.Do(func() {
		stop := f.forwarder.watch(&f.exchange.Token, f.route.Requirement, f.cut)
		f.leash.mu.Lock()
		landed := f.leash.landed
		if !landed {
			f.leash.stop = stop
		}
		f.leash.mu.Unlock()
		if landed {
			stop()
		}
	})
}

// cut breaks the exchange off. The service is hung up on, and a client that does
// not send what it has begun, or take what it is sent, is not waited for.
func (f *flight) cut(reason error) {
	f.leash.mu.Lock()
	defer f.leash.mu.Unlock()
	if f.leash.landed || f.leash.reason != nil {
		return
	}
	f.leash.reason = reason
	if tunnel := f.leash.tunnel; tunnel != nil {
		f.leash.closing.Go(func() {
			defer panics.Catch(panics.Exchange, f.giveUp)
			tunnel.cut(reason)
			f.giveUp(reason)
		})
		return
	}
	f.giveUp(reason) // before the deadline: see allowWrite
	f.body.interrupt(reason)
	if f.leash.begun {
		_ = f.control.SetWriteDeadline(past)
	}
}

// cutBy returns why the exchange was cut, nil if it was not.
func (f *flight) cutBy() error {
	f.leash.mu.Lock()
	defer f.leash.mu.Unlock()
	return f.leash.reason
}

// begin notes that the answer has begun: from now on the only way to end it
// early is to break it off.
func (f *flight) begin() {
	f.leash.mu.Lock()
	defer f.leash.mu.Unlock()
	f.leash.begun = true
}

// land ends the watch. Nothing touches the exchange after it has returned.
func (f *flight) land() {
	f.patience.end()
	f.leash.mu.Lock()
	f.leash.landed = true
	stop, reason := f.leash.stop, f.leash.reason
	f.leash.mu.Unlock()
	if stop != nil {
		stop()
	}
	f.leash.closing.Wait()
	if reason != nil && f.exchange.Upgraded {
		f.exchange.Cause = f.refusal(reason)
	}
}

// refusal is what an exchange that was cut is answered, if it has not been yet,
// and what is logged.
func (f *flight) refusal(reason error) error {
	answer := f.forwarder.challenge.Refused(reason)
	if _, known := errors.AsType[*problem.Error](answer); known {
		return answer
	}
	return problem.Unavailable("The access token cannot be checked at the moment.", answer)
}
