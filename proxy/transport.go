package proxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"snowgate/proxy/http1"
)

const (
	idlePerUpstream = 512              // connections kept for the next request
	idleTimeout     = 30 * time.Second // under the 60 s and more of most servers
	dialTimeout     = 5 * time.Second
	// hastyDialTimeout is that while there are other replicas: a lost SYN is sent
	// again after a second.
	hastyDialTimeout  = 1500 * time.Millisecond
	maxAnswerHeader   = 64 << 10 // bytes
	copyBuffer        = 32 << 10 // bytes
	continueTimeout   = time.Second
	keepAliveInterval = 15 * time.Second // also of HTTP/2: then a ping asks whether a silent service is there
	pingTimeout       = 15 * time.Second

	// headerDelay is how long the header of an answer of known length waits for
	// the first byte of its body, so that both fit into one packet. Bodies and
	// answers of unknown length wait for nothing.
	headerDelay = 2 * time.Millisecond
)

// transport is the connections to one replica, whatever its name stands for by now.
// They belong to no table, so they survive a reload. What may be forwarded and what is
// believed of an answer is not decided here, so that it is the same for all of them.
type transport interface {
	// send makes an attempt: it sends the request of a, waits for the header of the response, and
	// tells in a how it went.
	send(a *attempt) (answer, error)
	// probe sends r on behalf of nobody.
	probe(ctx context.Context, target *target, r *http1.Request) (answer, error)
	// CloseIdleConnections closes what no request is using, and has no more of it kept from now
	// on, also by requests that are about to begin.
	CloseIdleConnections()
}

// answer is what a service has answered, with its body still to come.
type answer struct {
	status int
	major  int           // of the version of HTTP
	header []http1.Field // as it was received
	length int64         // of the body; under 0: not known
	body   answerBody
	tunnel io.ReadWriteCloser // what was switched to, with status 101
}

// answerBody is the body of an answer. A Read that returns io.EOF has found the end
// that the service meant.
type answerBody interface {
	io.ReadCloser
	// Ready reports whether a Read would not have to wait. If it does not know, it
	// would.
	Ready() bool
	// Trailer returns the fields after the body, when it has been read to its end.
	Trailer() []http1.Field
}

// dialer opens connections, as [net.Dialer.DialContext] does.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// dialService is the dialer for services. How long it may take is said by [inTime].
var dialService = (&net.Dialer{KeepAlive: keepAliveInterval}).DialContext

// inTime has dial end when it has taken too long. An address at which nobody is any
// more often gives no answer at all, so an attempt that can go on to another replica
// waits for a short time only: none of the request is sent yet.
func inTime(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		timeout := dialTimeout
		if ctx.Value(hasteKey{}) != nil {
			timeout = hastyDialTimeout
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return dial(ctx, network, address)
	}
}

// haste is the context of an attempt that can go on to another replica. It is a part
// of the attempt, so that it takes no allocation.
type haste struct{ context.Context } //nolint:containedctx // it is one

// hasteKey is the key by which haste is told from other contexts.
type hasteKey struct{}

// Value tells what kind of context h is.
func (h *haste) Value(key any) any {
	if key == (hasteKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// newTransport returns the way to address.
func newTransport(address, scheme string, p protocol, dial dialer) transport {
	if scheme == "http" && p == http11 {
		return transportOfPlain(address, dial)
	}
	return newStandard(address, p, dial)
}

// transportOfPlain is what is used without TLS and HTTP/2. Tests replace it.
var transportOfPlain = newPlain

// buffers lends the memory that bodies are copied through.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([copyBuffer]byte) }}}
}

// Get returns a buffer.
func (b *buffers) Get() *[copyBuffer]byte {
	buffer, _ := b.pool.Get().(*[copyBuffer]byte)
	return buffer
}

// Put takes a buffer back.
func (b *buffers) Put(buffer *[copyBuffer]byte) { b.pool.Put(buffer) }
