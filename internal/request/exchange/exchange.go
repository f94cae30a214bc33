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

// Exchange is the state of one request. It belongs to the goroutine that serves the request, and
// must not be used after the handler has returned.
type Exchange struct {
	// RequestID is 32 lower-case hexadecimal digits, or the id that a trusted proxy gave the
	// request. The caller and the upstream get it as X-Request-Id.
	RequestID string
	// Peer is the other end of the connection; nil: not looked up yet.
	Peer *Peer
	// PeerTrusted says that Peer is a proxy whose forwarding headers are trusted.
	PeerTrusted bool
	// Remote is the address of the caller. Without trusted proxies it is the address of Peer;
	// behind trusted proxies it is the address that they report. It is the zero Addr if Peer has no
	// address.
	Remote netip.Addr
	// Path is the canonical request path. All routing, decisions and forwarding use it.
	Path canonical.Path
	// Route is the template by which metrics count the request: the pattern of an endpoint of the
	// gateway, or the name of a route. It is never text from a caller.
	Route string
	// Matched is the matched route. Only package proxy uses it.
	Matched any
	// Counter counts the request if it is set by the route; nil: Route names the counter.
	Counter Counter
	// Token is the accepted bearer token. It is zero if no token was needed or none was accepted.
	// If it is set, the token meets the requirement of the route.
	Token tokens.Token
	// Client is the client that authenticated at an OAuth endpoint, or whose token was accepted.
	Client string
	// TokenID is the public id of the token that was issued, accepted or revoked, or that was
	// refused although its tag is genuine; empty if there is none.
	TokenID string
	// Upstream is the base URL of the service that got the request.
	Upstream string
	// Quiet says that the request is a probe, which is logged at the debug level.
	Quiet bool
	// Upgraded says that another protocol took over the connection after 101 Switching Protocols.
	Upgraded bool
	// Cause is the reason why the request was refused or failed. It is for the log only.
	Cause error
	// Unshared says, after the handler has returned, that the response is complete and nobody kept
	// the exchange or the [http.ResponseWriter]. Their memory may then serve another request.
	// Package proxy sets it only if it is certain.
	Unshared bool
}

// Peer is the other end of a connection. All requests of a connection share one Peer.
type Peer struct {
	// Addr is its address; the zero Addr if it has none (a Unix socket).
	Addr netip.Addr
	// Text is Addr as text; empty if there is none.
	Text string
}

// Counter counts completed requests of one route. It is safe for concurrent use.
type Counter interface {
	// Count counts one request, as [middleware.Observation.Record] does.
	Count(method string, status int, duration time.Duration)
}

// Connection is the context of a connection. It holds what all requests of the connection share.
// The ConnContext of an [http.Server] returns it, or a context derived from it.
type Connection struct {
	//nolint:containedctx // it is a context
	context.Context // the parent

	Peer Peer
	// Input is the input of the connection; nil: unknown.
	Input Input
	// Output is the output of the connection; nil: unknown.
	Output Output

	underWay *Exchange // the current request over HTTP/1; nil: none
}

// Input is a connection that can be read without waiting.
type Input interface {
	// WithoutWaiting calls read, or does nothing. During the call, a Read of the connection that
	// would wait returns 0 and nil instead. So read gets only bytes that were read ahead.
	WithoutWaiting(read func())
}

// Output is a connection that can delay its close.
type Output interface {
	// Linger makes Close wait until the client has read its last response.
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

// ConnectionOf returns the connection of ctx, or nil if it is unknown.
func ConnectionOf(ctx context.Context) *Connection {
	c, _ := ctx.Value(connectionKey{}).(*Connection)
	return c
}

// Linger calls [Output.Linger] on the connection of ctx. It does nothing if the connection is
// unknown or does not support it.
func Linger(ctx context.Context) {
	if c := ConnectionOf(ctx); c != nil && c.Output != nil {
		c.Output.Linger()
	}
}

// carries reports whether c carries the exchange of r. It does over HTTP/1, where a connection has
// one request at a time, and the next one is read after the last handler has returned.
func (c *Connection) carries(r *http.Request) bool { return c != nil && r.ProtoMajor == 1 }

// Begin returns r with x in its context until [Connection.End]. Over HTTP/1 it returns r itself,
// and otherwise a copy. c may be nil.
func (c *Connection) Begin(r *http.Request, x *Exchange) *http.Request {
	if !c.carries(r) {
		return r.WithContext(NewContext(r.Context(), x))
	}
	c.underWay = x
	return r
}

// End must be called at the end of each handler that called [Connection.Begin]. c may be nil.
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

// From returns the exchange of ctx. If there is none, it returns a new Exchange, so that a test can
// call a handler directly.
func From(ctx context.Context) *Exchange {
	if x, ok := ctx.Value(contextKey{}).(*Exchange); ok {
		return x
	}
	return new(Exchange)
}
