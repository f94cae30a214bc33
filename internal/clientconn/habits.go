//go:build !snowgate_plainconn

package clientconn

// knowsServer says that a Conn relies on how net/http reads from a connection. Tests with Habit in
// their names describe each habit and its place in net/http.
const knowsServer = true
