package proxy

import (
	"cmp"
	"errors"
	"net/http"
	"time"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// DefaultClientIdle is how long a client may be silent within its body, or not take what it is
// sent.
const DefaultClientIdle = 60 * time.Second

// Options is the configuration of a [Forwarder]. The zero value is usable.
type Options struct {
	// ClientIdle limits each wait for the client. 0: [DefaultClientIdle]. It does not cut streams
	// in which nothing is sent.
	ClientIdle time.Duration
	// Watch, if set, watches the token of every WebSocket from its start, and of every other
	// exchange once it has lasted half a second. Exchanges on public routes have no token.
	Watch Watch
	// Rates, if set, applies the rates of routes.
	Rates RateLimiter
	// Challenge words the response to a request whose token ended before the response began.
	Challenge problem.Challenge
}

// Forwarder sends requests to the service of their route and streams the responses back. It is an
// [http.Handler] that belongs after [Match] and after authentication: it forwards a request on a route
// that is not public only if the exchange has a token. It is safe for concurrent use.
//
// If the service cannot be reached or its response is invalid, the client gets 502; if the service
// does not respond in time, 504. If a response breaks off, the Forwarder aborts the connection to the
// client by panicking with [http.ErrAbortHandler]; the cause in the exchange says why.
//
// The Forwarder aborts a watched exchange when its token ends. If no response has begun, the client
// gets the same refusal as any request with that token. A response in progress breaks off. A
// WebSocket is closed with a close frame of status 1008.
type Forwarder struct {
	common forwarding
	rates  RateLimiter // nil: none are applied
}

// NewForwarder returns a Forwarder. The connections to services belong to the
// [Router].
func NewForwarder(o Options) *Forwarder {
	return &Forwarder{
		rates: o.Rates,
		common: forwarding{
			clientIdle: cmp.Or(o.ClientIdle, DefaultClientIdle),
			watch:      o.Watch,
			challenge:  o.Challenge,
			buffers:    newBuffers(),
			timers:     new(exchangeTimers),
		},
	}
}

// errTooMany means that max_in_flight of the route is reached.
var errTooMany = errors.New("proxy: max_in_flight of the route is reached")

// errNotJudged means that the handlers are in the wrong order.
var errNotJudged = errors.New("proxy: the request was not matched or not judged")

// ServeHTTP forwards r and passes the response to w.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchange.From(r.Context())
	route := matched(x)
	switch {
	case route == nil || !route.Forwards || x.Path.Raw == "" || (!route.Public && x.Token.IsZero()):
		problem.Write(w, r, problem.New(http.StatusInternalServerError, "", errNotJudged))
	case route.MaxBody > 0 && r.ContentLength > route.MaxBody:
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // the body will not be read
		}
		problem.Write(w, r, &http.MaxBytesError{Limit: route.MaxBody})
	default:
		f.enter(w, r, x, route)
	}
}

// enter forwards r unless a rate or max_in_flight of the route is exceeded.
func (f *Forwarder) enter(w http.ResponseWriter, r *http.Request, x *exchange.Exchange, route *entry) {
	if err := allow(f.rates, r, x, route); err != nil {
		problem.Write(w, r, err)
		return
	}
	if !route.balancer.Admit() {
		problem.Write(w, r, problem.Unavailable("Too many requests of this route are in flight.", errTooMany))
		return
	}
	defer route.balancer.Release()
	f.common.start(w, r, x, route).serve()
}
