//go:build unix

package nonblock

import (
	"io"
	"syscall"
)

// Read reads what is there into p, which must not be empty. If nothing is, the error is
// [syscall.EAGAIN]; at the end of what the peer sends it is [io.EOF].
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

// Write writes as much of p as is taken without waiting. If nothing is, the error is
// [syscall.EAGAIN].
func Write(fd uintptr, p []byte) (int, error) {
	for {
		n, err := write(fd, p)
		if isErrno(err, syscall.EINTR) {
			continue
		}
		return max(n, 0), err
	}
}

// Peek looks whether there is something to be read, and reads nothing. The error is nil if there
// is, [syscall.EAGAIN] if nothing is, and [io.EOF] at the end of what the peer sends.
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

// MustWait reports whether err, of [Read], [Write] or [Peek], says that nothing can be done without
// waiting.
func MustWait(err error) bool { return isErrno(err, syscall.EAGAIN) }

// isErrno is [errors.Is] for what a system call returns, which is never wrapped.
func isErrno(err error, number syscall.Errno) bool { return err == number } //nolint:errorlint // see above
