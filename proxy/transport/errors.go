package transport

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// IsTimeout reports whether an attempt ended because the network was waited for in vain.
func IsTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// IsBroken reports whether a connection ended, and nothing is wrong with what came on it.
func IsBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// IsDial reports whether no connection was made, so that nothing of the request was sent.
func IsDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
