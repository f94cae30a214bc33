// Package middleware holds what a request passes before it reaches an endpoint
// or a service: one concern, one file.
//
// The order matters. From the outside in:
//
//	Observe      makes the exchange, and logs and counts how it ended
//	Recover      turns a panic into a 500
//	Drain        counts what runs; says goodbye while the gateway shuts down
//	Framing      closes connections whose framing could be read in two ways
//	Canonical    refuses targets that could be read in two ways
//	             (here the gateway's own paths part from the routes)
//	Authenticate judges the bearer token
//
// Every one hangs on [Observe]: without it the others work on an exchange that
// nobody reads.
package middleware
