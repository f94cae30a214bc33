// Package middleware wraps the handlers of the gateway. Each file holds one middleware with one concern.
//
// The order matters. From the outside in:
//
//	Observe      makes the exchange, and logs and counts its response
//	Recover      turns a panic into a 500
//	Drain        counts running requests, and closes connections during the shutdown
//	Framing      closes connections whose framing is ambiguous
//	Canonical    refuses ambiguous targets
//	             (the gateway's own endpoints branch off here)
//	Authenticate validates the bearer token
//
// All of them need [Observe] outside of them: it makes the exchange that they fill in.
package middleware
