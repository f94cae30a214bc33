//go:build unix

package nonblock

import (
	"errors"
	"net"
	"syscall"
)

// CanAwait reports whether [Await] works with c.
func CanAwait(c net.Conn) bool {
	_, ok := c.(syscall.Conn)
	return ok
}

// Await waits until there is something to be read from c, and reads nothing. It returns io.EOF at
// the end of what the peer sends, and what a Read would if the connection has failed, was closed,
// or is past its read deadline. No other goroutine may read meanwhile.
func Await(c net.Conn) error {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var found error
	if err := raw.Read(func(fd uintptr) bool {
		found = Peek(fd)
		return !MustWait(found)
	}); err != nil {
		return err
	}
	return found
}
