package transport

// Destination is the scheme, host and protocol of a request to a service.
type Destination struct {
	Scheme, Host string // as its URL says them
	Protocol     Protocol
}

// Protocol is the protocol that an upstream speaks.
type Protocol string

// The protocols.
const (
	HTTP11     Protocol = "HTTP/1.1"
	Standard11 Protocol = "HTTP/1.1 by net/http" // the same, where the route asks for that transport
	H2C        Protocol = "HTTP/2 without TLS"   // RFC 9113 §3.3, with prior knowledge
	Negotiated Protocol = "HTTP/2 or HTTP/1.1"   // by ALPN (RFC 7301)
)

// MayBeHTTP2 reports whether responses may come over HTTP/2.
func (p Protocol) MayBeHTTP2() bool { return p == H2C || p == Negotiated }
