//go:build snowgate_plainconn

package clientconn

// knowsServer is false in a build with the tag snowgate_plainconn: a Conn passes on deadlines and
// reads at once, and no connection is parked.
const knowsServer = false
