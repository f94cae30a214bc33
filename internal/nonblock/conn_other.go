//go:build !unix

package nonblock

import (
	"errors"
	"net"
)

// Wrap returns c as it is: here sockets are not read and written by number.
func Wrap(c net.Conn) net.Conn { return c }

// WrapPooled returns c as it is, too.
func WrapPooled(c net.Conn) net.Conn { return c }

// CanAwait returns false.
func CanAwait(net.Conn) bool { return false }

// Await is for those of which CanAwait returns true.
func Await(net.Conn) error { return errors.ErrUnsupported }
