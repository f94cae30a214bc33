//go:build unix

package nonblock

import (
	"io"
	"syscall"
)

// Read reads available bytes into p, which must not be empty. It returns [syscall.EAGAIN] if none
// are available, and [io.EOF] at the end of the peer's data.
func Read(fd uintptr, p []byte) (int, error) {
	for {
		n, err := read(fd, p)
		switch {
		case isErrno(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Write writes as much of p as the socket takes without waiting. It returns [syscall.EAGAIN] if the
// socket takes nothing.
func Write(fd uintptr, p []byte) (int, error) {
	for {
		n, err := write(fd, p)
		if isErrno(err, syscall.EINTR) {
			continue
		}
		return max(n, 0), err
	}
}

// Peek checks for input without reading it. It returns nil if bytes are available, [syscall.EAGAIN]
// if none are, and [io.EOF] at the end of the peer's data.
func Peek(fd uintptr) error {
	var p [1]byte
	for {
		n, err := peek(fd, p[:])
		switch {
		case isErrno(err, syscall.EINTR):
			continue
		case err == nil && n == 0:
			return io.EOF
		}
		return err
	}
}

// MustWait reports whether err, returned by [Read], [Write] or [Peek], means that the call would
// have to wait.
func MustWait(err error) bool { return isErrno(err, syscall.EAGAIN) }

// isErrno is [errors.Is] for errors of system calls, which are never wrapped.
func isErrno(err error, number syscall.Errno) bool { return err == number } //nolint:errorlint // see above
