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
	// FailoverDialTimeout is the dial timeout while other replicas are left. It leaves room for
	// one retransmission of a lost SYN, after a second.
	FailoverDialTimeout = 1500 * time.Millisecond
	maxResponseHeader   = 64 << 10 // bytes
	continueTimeout     = time.Second
	keepAliveInterval   = 15 * time.Second // also of HTTP/2: then a ping asks whether a silent service is there
	pingTimeout         = 15 * time.Second
)

// Transport owns the connections to one replica, which survive a reload. It does not decide which
// header fields to forward or to accept; package proxy does, in the same way for all transports.
type Transport interface {
	// Send sends the request of a, waits for the response header and sets the results in a.
	Send(a *Attempt) (Response, error)
	// Probe sends r for a health check, not for a client.
	Probe(ctx context.Context, to *Destination, r *http1.Request) (Response, error)
	// CloseIdleConnections closes idle connections. From then on no connection is kept for reuse.
	CloseIdleConnections()
}

// Response is the header of a response and its body, which is not read yet.
type Response struct {
	Status int
	Major  int           // of the version of HTTP
	Header []http1.Field // as it was received
	Length int64         // of the body; under 0: not known
	Body   Body
	Tunnel io.ReadWriteCloser // what was switched to, with status 101
}

// Body is the body of a response. Read returns io.EOF only if the body is complete.
type Body interface {
	io.ReadCloser
	// Ready reports whether Read is known not to block.
	Ready() bool
	// Trailer returns the fields after the body, when it has been read to its end.
	Trailer() []http1.Field
}

// Dialer opens connections, as [net.Dialer.DialContext] does.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// DialService is the dialer for services. [InTime] bounds its time.
var DialService = (&net.Dialer{KeepAlive: keepAliveInterval}).DialContext

// InTime bounds dial by 5 s, or by [FailoverDialTimeout] if the attempt can go on to another replica.
// An abandoned address often does not respond at all, and nothing of the request is sent yet.
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
