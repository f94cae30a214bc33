package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	idlePerUpstream   = 512              // connections kept for the next request
	idleTimeout       = 30 * time.Second // under the 60 s and more of most servers
	dialTimeout       = 5 * time.Second
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

// newTransport returns the connections to one replica, whatever its name stands
// for by now. They belong to no table, so they survive a reload.
func newTransport(address string, p protocol) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(p != h2c)
	protocols.SetHTTP2(p == negotiated)
	protocols.SetUnencryptedHTTP2(p == h2c)
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAliveInterval}
	return &http.Transport{
		Proxy: nil, // the environment has no say in where requests go
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
		TLSHandshakeTimeout:    dialTimeout,
		DisableCompression:     true, // bodies are passed on, not understood
		MaxIdleConns:           0,    // no total
		MaxIdleConnsPerHost:    idlePerUpstream,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: keepAliveInterval, PingTimeout: pingTimeout},
	}
}

// buffers lends the memory that bodies are copied through.
type buffers struct{ pool sync.Pool }

func newBuffers() *buffers {
	return &buffers{sync.Pool{New: func() any { return new([copyBuffer]byte) }}}
}

// Get returns a buffer.
func (b *buffers) Get() []byte {
	buffer, _ := b.pool.Get().(*[copyBuffer]byte)
	return buffer[:]
}

// Put takes a buffer back.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[copyBuffer]byte)(buffer)) }
