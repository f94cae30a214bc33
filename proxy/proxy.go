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
// [net/http/httputil.ReverseProxy] does the plumbing: hop-by-hop fields,
// streaming, trailers, protocol upgrades. What it leaves open is decided here:
// which header fields a client may send (headers.go), what the service is told
// (rewrite.go), what of its answer is believed (answer.go), how long anyone may
// take (body.go, patience.go), and what a failure looks like (failure.go).
//
// # Decisions
//
// Host is forwarded as the client sent it; X-Forwarded-Host repeats it.
//
// The client's Authorization is removed on every route, public ones too, unless
// the route passes the token on.
//
// Services are spoken to in HTTP/1.1, also over TLS, because a WebSocket
// handshake cannot be sent over the HTTP/2 connections of net/http.
//
// Nothing is retried beyond what [net/http.Transport] does by itself: a request
// that is idempotent or of which no byte was sent, when a kept-alive connection
// turns out to be closed.
package proxy
