package lineartest

import (
	"syscall"
	"time"
	"unsafe"
)

// Clocks of clock_gettime.
const (
	clockProcess = 2 // CLOCK_PROCESS_CPUTIME_ID
	clockThread  = 3 // CLOCK_THREAD_CPUTIME_ID
)

// threadTime returns how long the thread of the caller has run.
func threadTime() time.Duration { return read(clockThread) }

// OtherThreadsTime returns how long the threads of the process have run, but for that of the caller,
// which must be locked to it.
func OtherThreadsTime() time.Duration { return read(clockProcess) - read(clockThread) }

func read(clock uintptr) time.Duration {
	var at syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&at)), 0); errno != 0 {
		panic("lineartest: clock_gettime: " + errno.Error())
	}
	return time.Duration(at.Nano())
}
