// Package nonblock reads and writes sockets that do not block, without telling the
// scheduler.
//
// Before a system call Go's runtime notes that it may last, and whoever watches over the
// goroutines gives the processor to another thread if it lasts for 20 µs. A write to a socket
// takes about as long: the kernel delivers what is sent over loopback or a bridge to
// its receiver on the way. Where Go has one processor, as in a container that may use
// one, requests then change threads all the time, which costs more than it gives,
// and those who come back find their place taken. A call that never waits needs
// no such care, as long as little is written at once.
//
// It makes no difference to what is read or written. Where it cannot be done, or a race
// detector wants to know of each call, the calls are those of package syscall.
package nonblock

// Most is how many bytes are read or written without telling the scheduler; more take
// a time that it should know of.
const Most = 16 << 10
