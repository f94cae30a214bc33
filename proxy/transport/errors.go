package transport

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// IsTimeout reports whether err says that a deadline of the network passed.
func IsTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// IsBroken reports whether err means that the connection ended, not that invalid bytes came.
func IsBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// IsDial reports whether err means that no connection was made. Nothing was sent then.
func IsDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
