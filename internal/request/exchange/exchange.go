// Package exchange holds what snowgate knows about one HTTP request and its
// response while it is under way.
//
// One [Exchange] is made at the top of the middleware, filled on the way down
// by whoever learns something, and read once at the end for the access line
// and the metrics. It is the only value snowgate puts into a request's context.
// Over HTTP/1 the context of the [Connection] carries the exchange of the request that is
// under way, so that no request needs a context of its own and a copy that has it.
package exchange

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"snowgate/internal/request/canonical"
	"snowgate/tokens"
)

// Exchange is the state of one request. It belongs to the goroutine that serves
// the request and must not be used after the handler has returned.
type Exchange struct {
	// RequestID is 32 lower-case hexadecimal digits, or the name that a trusted
	// proxy gave the request, sent as X-Request-Id to the caller and to the
	// upstream.
	RequestID string
	// Peer is the other end of the connection; nil: nobody has looked.
	Peer *Peer
	// PeerTrusted tells that Peer is a proxy whose forwarding headers are
	// believed.
	PeerTrusted bool
	// Remote is the address of the caller: that of Peer, or, behind trusted proxies, the
	// address that they say the request came from. It is the zero Addr where
	// Peer has none.
	Remote netip.Addr
	// Path is the canonical request path; everything that decides or forwards
	// uses it and nothing else.
	Path canonical.Path
	// Route is the template by which metrics count the request: the pattern of
	// an endpoint of the gateway, or the name of a route. It is never text
	// that a caller chose.
	Route string
	// Matched is the route that the request was matched with. It belongs to
	// package proxy, which alone reads it.
	Matched any
	// Counter counts the request, if the route brings one; nil: it is counted by Route.
	Counter Counter
	// Token is the verdict on the bearer token, zero if none was needed or
	// accepted. The requirement of the route has been met when it is set.
	Token tokens.Token
	// Client is the client that authenticated at an OAuth endpoint or whose
	// token was accepted.
	Client string
	// TokenID is the public id of the token that was issued, accepted,
	// revoked, or refused although its tag is ours; empty if there is none.
	TokenID string
	// Upstream is the base URL of the service that was asked.
	Upstream string
	// Quiet tells that the request is of interest only when something is looked
	// for: a probe, every few seconds.
	Quiet bool
	// Upgraded tells that the connection was taken over by another protocol
	// after 101 Switching Protocols.
	Upgraded bool
	// Cause is why the request was refused or failed, for the log only.
	Cause error
	// Unshared tells, when the handler has returned, that the request was answered and nobody
	// has kept the exchange or the [http.ResponseWriter]: their memory may serve
	// another request. Package proxy sets it; whoever is not sure leaves it alone.
	Unshared bool
}

// Peer is the other end of a connection. It is made once for all requests that come on it.
type Peer struct {
	// Addr is its address, the zero Addr if it has none (a Unix socket).
	Addr netip.Addr
	// Text is Addr as text, empty if it has none.
	Text string
}

// Counter counts requests of one route when they have ended. It is safe for concurrent use.
type Counter interface {
	// Count counts one request, as [middleware.Observation.Record] does.
	Count(method string, status int, duration time.Duration)
}

// Connection is the context of a connection: what its requests have in common. It goes where
// the ConnContext of an [http.Server] returns it, or below.
type Connection struct {
	//nolint:containedctx // it is a context
	context.Context // the parent

	Peer Peer
	// Input is where its requests are read from; nil: nobody knows.
	Input Input
	// Output is where its responses go; nil: nobody knows.
	Output Output

	underWay *Exchange // over HTTP/1; nil: no request
}

// Input is a connection that can be read without waiting for what has not come yet.
type Input interface {
	// WithoutWaiting calls read, or does nothing. A Read of the connection meanwhile returns 0 and nil instead of
	// waiting, so that only what was read ahead can be read.
	WithoutWaiting(read func())
}

// Output is a connection that can be closed with care.
type Output interface {
	// Linger makes the connection, when it is closed, wait for the client to have its last response.
	Linger()
}

// Value implements [context.Context].
func (c *Connection) Value(key any) any {
	switch key.(type) {
	case contextKey:
		if c.underWay != nil {
			return c.underWay
		}
	case connectionKey:
		return c
	}
	return c.Context.Value(key)
}

// ConnectionOf returns the connection that ctx is of, nil if none is known.
func ConnectionOf(ctx context.Context) *Connection {
	c, _ := ctx.Value(connectionKey{}).(*Connection)
	return c
}

// Linger makes the connection that ctx is of close with care, see [Output]. It does nothing where the
// connection is not known, or cannot.
func Linger(ctx context.Context) {
	if c := ConnectionOf(ctx); c != nil && c.Output != nil {
		c.Output.Linger()
	}
}

// carries reports whether c carries the exchange of r: over HTTP/1, where a connection has one
// request at a time, and the next is read when the handler of the last has returned.
func (c *Connection) carries(r *http.Request) bool { return c != nil && r.ProtoMajor == 1 }

// Begin returns r with x in its context until [Connection.End]: r itself over HTTP/1, and else a
// copy. c may be nil.
func (c *Connection) Begin(r *http.Request, x *Exchange) *http.Request {
	if !c.carries(r) {
		return r.WithContext(NewContext(r.Context(), x))
	}
	c.underWay = x
	return r
}

// End belongs to the end of a handler that called [Connection.Begin]. c may be nil.
func (c *Connection) End(r *http.Request) {
	if c.carries(r) {
		c.underWay = nil
	}
}

type connectionKey struct{}

type contextKey struct{}

// NewContext returns a context that carries x.
func NewContext(ctx context.Context, x *Exchange) context.Context {
	return context.WithValue(ctx, contextKey{}, x)
}

// From returns the exchange that ctx carries. Without one it returns a fresh,
// empty Exchange, so that a handler can be tested on its own.
func From(ctx context.Context) *Exchange {
	if x, ok := ctx.Value(contextKey{}).(*Exchange); ok {
		return x
	}
	return new(Exchange)
}
