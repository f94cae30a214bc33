package transport

import (
	"context"
	"net/http"

	"snowgate/internal/cohort"
	"snowgate/proxy/http1"
)

// Attempt is one try to get a response from one replica. The first group of fields are its inputs;
// Send sets those of the second group.
type Attempt struct {
	To       *Destination
	Request  *http1.Request
	Trailer  trailerSource   // of the body of request
	Client   context.Context //nolint:containedctx // of the request of the client
	Lifetime lifetimeOf      // ends the attempt early
	Gather   *cohort.Cohort
	Call     *http1.Call // memory for the call; nil: none is there yet
	Others   bool        // there are other replicas: do not wait long for a connection
	Fresh    bool        // send it on a new connection
	Repeats  Repeats

	Reused   bool // the connection had carried other requests
	Heard    bool // a byte of a response came back
	Stale    bool // the service may have closed the idle connection just before the request
	Repeated bool // the transport has sent the request twice
}

// lifetimeOf is the lifetime of the round trip that an attempt belongs to.
type lifetimeOf interface {
	// Context returns a context that ends with the exchange. Most attempts need none.
	Context() context.Context
	// Attach has call aborted when the exchange is given up.
	Attach(call *http1.Call)
}

// trailerSource knows the trailer of a request. It may be nil inside, if there is no body.
type trailerSource interface {
	// ForwardTrailer announces the trailer in r, and has it sent behind the body.
	ForwardTrailer(r *http.Request)
}

// Repeats says what a transport that repeats requests by itself may do.
type Repeats struct {
	Would bool // net/http would repeat the request although the service may have seen it
	May   bool // the transport may repeat the request once
}

// dialing returns the context in which a connection for the attempt is made: ctx, with a mark
// for [InTime] if another replica is left.
func (a *Attempt) dialing(ctx context.Context) context.Context {
	if !a.Others {
		return ctx
	}
	return context.WithValue(ctx, failoverKey{}, true)
}
