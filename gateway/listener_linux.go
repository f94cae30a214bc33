package gateway

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// mostWaiting bounds what is taken from a queue that fills as fast as it is
// emptied. It is Linux's usual length of the queue (net.core.somaxconn).
const mostWaiting = 4096

// takeWaiting accepts every waiting connection and stops listening right after the last one. During
// a pause between the two, the kernel would complete handshakes of connections that nobody accepts.
func takeWaiting(l *net.TCPListener) ([]net.Conn, error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil, err
	}
	var descriptors []int
	var shutErr error
	err = raw.Control(func(fd uintptr) {
		for len(descriptors) < mostWaiting {
			n, _, err := syscall.Accept4(int(fd), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
			if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ECONNABORTED) {
				continue
			}
			if err != nil {
				break // EAGAIN: nobody waits
			}
			descriptors = append(descriptors, n)
		}
		shutErr = syscall.Shutdown(int(fd), syscall.SHUT_RDWR)
	})
	faults := []error{err, shutErr}
	var conns []net.Conn
	for _, fd := range descriptors {
		file := os.NewFile(uintptr(fd), "")
		conn, err := net.FileConn(file) // duplicates the descriptor
		faults = append(faults, err, file.Close())
		if err == nil {
			conns = append(conns, conn)
		}
	}
	return conns, errors.Join(faults...)
}
