//go:build linux && !386 && !race && !msan && !asan

package nonblock

import (
	"syscall"
	"unsafe"
)

func read(fd uintptr, p []byte) (int, error) {
	if len(p) == 0 || len(p) > Most {
		return syscall.Read(int(fd), p)
	}
	return call(syscall.SYS_READ, fd, p)
}

func write(fd uintptr, p []byte) (int, error) {
	if len(p) == 0 || len(p) > Most {
		return syscall.Write(int(fd), p)
	}
	return call(syscall.SYS_WRITE, fd, p)
}

// peek is recvfrom, which 386 has only as part of another system call.
func peek(fd uintptr, p []byte) (int, error) {
	n, _, fault := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if fault != 0 {
		return 0, fault
	}
	return int(n), nil
}

// call makes a system call with a buffer, without telling the scheduler. The system call must not
// wait. The conversion has the form that package unsafe allows for system calls.
func call(number, fd uintptr, p []byte) (int, error) {
	n, _, fault := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if fault != 0 {
		return 0, fault
	}
	return int(n), nil
}
