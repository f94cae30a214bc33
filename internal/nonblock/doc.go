// Package nonblock reads and writes non-blocking sockets without telling Go's scheduler.
//
// Around a system call, the runtime marks the goroutine as possibly blocked. If the call lasts 20
// µs, the runtime gives the processor to another thread. A write to a socket takes about that long,
// because over loopback or a bridge the kernel delivers the bytes within the call. With one
// processor, as in a small container, requests then change threads all the time. Calls that never
// block and move at most [Most] bytes need no such care.
//
// The bytes read and written, and the errors, are the same as with package syscall. On systems
// other than Linux, on 386, and under a sanitizer, this package uses the calls of package syscall.
package nonblock

// Most is the maximum number of bytes to read or write without telling the scheduler. The scheduler
// should know of larger calls, because they take longer.
const Most = 16 << 10
