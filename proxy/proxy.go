// Package proxy forwards authorized requests to the upstreams of their routes and streams the
// responses back.
//
// A [Router] holds the current routing table and replaces it at once on a reload; requests in
// flight keep the table they started with. A request passes through two handlers. The handler of
// [Match] finds the route, or responds with 404, 405 or 400. Authentication follows; it asks the
// route for the requirement. The [Forwarder] then forwards the request.
//
// # The way of a request
//
// Read the files in this order. forwarder.go applies the limits of the route. roundtrip.go owns
// the request from start to finish. compose.go builds the request for the upstream, from the header
// fields that headers.go lets pass. retry.go picks a replica and decides whether to send the request
// again. Package [snowgate/proxy/transport] makes one attempt. respond.go checks the response and
// clientresponse.go passes it to the client. failure.go turns an error into a problem response and
// reports to the balancer how the attempt ended.
//
// Beside that way, body.go reads the client's body, upgrade.go and websocket.go carry WebSockets,
// exchangetimer.go keeps the deadlines, tokenwatch.go aborts a round trip whose token ends, and
// lifetime.go spreads the abort.
//
// # Decisions
//
// Host is forwarded as the client sent it; X-Forwarded-Host repeats it.
//
// The Forwarder removes the client's Authorization on every route, public ones too, unless the
// route passes the token on.
//
// Upstreams are spoken to in HTTP/1.1; in HTTP/2 if their URL says h2c; and over TLS in the version
// they prefer. A route that lets WebSockets through uses HTTP/1.1 over TLS too, because net/http
// cannot send the handshake on its HTTP/2 connections.
//
// A request that may have been sent is sent once more only if it is idempotent and has no body.
// If no other replica is left, it must also be safe, and the connection must have been reused
// (retry.go). [net/http.Transport] would repeat requests more often, and would take an
// Idempotency-Key as permission to repeat a POST; package transport prevents both. If no connection
// can be made, nothing was sent, and the Forwarder tries the next replica.
//
// Every address of an upstream's name is a replica with its own connections. Package
// [snowgate/proxy/upstream] balances requests over the replicas and ejects those that fail.
package proxy
