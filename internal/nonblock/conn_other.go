//go:build !unix

package nonblock

import (
	"errors"
	"net"
)

// Wrap returns c unchanged, because this package does not support sockets on this system.
func Wrap(c net.Conn) net.Conn { return c }

// CanAwait returns false.
func CanAwait(net.Conn) bool { return false }

// Await returns an error. It is only for connections for which CanAwait returns true.
func Await(net.Conn) error { return errors.ErrUnsupported }
