package transport

import (
	"context"
	"io"
	"net"
	"time"

	"snowgate/proxy/http1"
)

const (
	idlePerUpstream = 512              // connections kept for the next request
	idleTimeout     = 30 * time.Second // under the 60 s and more of most servers
	dialTimeout     = 5 * time.Second
	// FailoverDialTimeout is how long a connection may take while there are other replicas: a lost
	// SYN is sent again after a second.
	FailoverDialTimeout = 1500 * time.Millisecond
	maxAnswerHeader     = 64 << 10 // bytes
	continueTimeout     = time.Second
	keepAliveInterval   = 15 * time.Second // also of HTTP/2: then a ping asks whether a silent service is there
	pingTimeout         = 15 * time.Second
)

// Transport is the connections to one replica, whatever its name stands for by now.
// They belong to no table, so they survive a reload. What may be forwarded and what is
// believed of an answer is not decided here, so that it is the same for all of them.
type Transport interface {
	// Send makes an attempt: it sends the request of a, waits for the header of the response, and
	// tells in a how it went.
	Send(a *Attempt) (Response, error)
	// Probe sends r on behalf of nobody.
	Probe(ctx context.Context, to *Destination, r *http1.Request) (Response, error)
	// CloseIdleConnections closes what no request is using, and has no more of it kept from now
	// on, also by requests that are about to begin.
	CloseIdleConnections()
}

// Response is what a service has answered, with its body still to come.
type Response struct {
	Status int
	Major  int           // of the version of HTTP
	Header []http1.Field // as it was received
	Length int64         // of the body; under 0: not known
	Body   Body
	Tunnel io.ReadWriteCloser // what was switched to, with status 101
}

// Body is the body of an answer. A Read that returns io.EOF has found the end
// that the service meant.
type Body interface {
	io.ReadCloser
	// Ready reports whether a Read would not have to wait. If it does not know, it
	// would.
	Ready() bool
	// Trailer returns the fields after the body, when it has been read to its end.
	Trailer() []http1.Field
}

// Dialer opens connections, as [net.Dialer.DialContext] does.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// DialService is the dialer for services. How long it may take is said by [inTime].
var DialService = (&net.Dialer{KeepAlive: keepAliveInterval}).DialContext

// InTime has dial end when it has taken too long. An address at which nobody is any
// more often gives no answer at all, so an attempt that can go on to another replica
// waits for a short time only: none of the request is sent yet.
func InTime(dial Dialer) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		timeout := dialTimeout
		if ctx.Value(failoverKey{}) != nil {
			timeout = FailoverDialTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, address)
	}
}

// failoverKey marks the context of an attempt that can go on to another replica.
type failoverKey struct{}
