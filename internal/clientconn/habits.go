//go:build !snowgate_plainconn

package clientconn

// knowsServer reports whether a Conn relies on how net/http reads from a connection. Tests with Habit
// in their names name each of these habits and its place in net/http.
const knowsServer = true
