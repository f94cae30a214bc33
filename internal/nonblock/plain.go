//go:build unix && (!linux || 386 || race || msan || asan)

package nonblock

import "syscall"

func read(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

func write(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }

func peek(fd uintptr, p []byte) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}
