// Package transport makes attempts: it sends one request to one replica, and brings the header of the
// response, with the body still to be read.
//
// There are two ways. HTTP/1.1 without TLS goes through package http1. TLS and HTTP/2 go through
// [net/http.Transport], and so does everything on a route that asks for it. Both are a [Transport], and
// what may be forwarded or believed is decided above, so that it is the same for both.
//
// An [Attempt] has inputs, which the caller sets, and results, which the transport sets. A transport
// sends a request once, unless [Repeats] allows net/http to repeat it. An error says how far the attempt
// came: see [IsDial], [IsTimeout] and [IsBroken]. Transports are safe for concurrent use; an attempt
// belongs to one goroutine.
package transport
