// Package proxy brings a request whose credentials were judged to the service
// that answers it.
//
// A [Table] holds the routes and never changes; a [Router] holds the table of
// the moment, so that a reload swaps all routes at once and requests under way
// keep theirs. A request passes through two handlers, with the judgement
// between them:
//
//	Match        finds the route, once; 404, 405 or 400
//	             (authentication asks Requirement what the route needs)
//	Forwarder    rewrites the request, sends it, streams the answer
//
// One request on its way is a flight (flight.go). Everything that is decided about it is
// decided in one place, whatever is spoken with the service: which header fields a client
// may send (headers.go), what the service is told (rewrite.go), which replica of it is asked
// and how often (pool.go, send.go), what of its answer is believed and how it is passed on
// (answer.go, upgrade.go), how long anyone may take (body.go, patience.go), and what a
// failure looks like (failure.go). Bytes are moved by a transport (transport.go): package
// [snowgate/proxy/http1] for services that speak HTTP/1.1 without TLS, on the goroutine that
// serves the request (plain.go), and [net/http.Transport] for all others (standard.go).
//
// # Decisions
//
// Host is forwarded as the client sent it; X-Forwarded-Host repeats it.
//
// The client's Authorization is removed on every route, public ones too, unless
// the route passes the token on.
//
// Services are spoken to in HTTP/1.1, in HTTP/2 if their URL says h2c, and over TLS
// in what they prefer; there in HTTP/1.1 too on a route that lets WebSockets
// through, because their handshake cannot be sent over the HTTP/2 connections of
// net/http.
//
// A request that may have been sent is sent again only if it is idempotent and has
// no body, and then once (send.go); on a connection that the same replica has closed, only
// if it changes nothing. [net/http.Transport] by itself would go on for
// as long as it has connections that were kept, and take an Idempotency-Key for
// leave to repeat a POST; it is stopped. A replica that cannot be connected to is
// no reason to fail a request: nothing of it was sent, and the next one is tried.
//
// Every address of an upstream's name is a replica with connections of its own
// (upstream.go), so that requests are balanced over the addresses and none follows
// one that is gone. A replica that fails is left alone for a while (health.go,
// outlier.go), as long as half of its route, and one, are left.
package proxy
