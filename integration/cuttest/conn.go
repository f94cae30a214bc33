package cuttest

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Conn is a TCP or Unix connection whose Read or Write goes in pieces. It has the methods of
// *[net.TCPConn] that tests use.
type Conn struct {
	net.Conn

	mode    Mode // of writes
	in      *pieces
	reading sync.Mutex // guards in
	writing sync.Mutex // held by Write: the pieces of one may not mix with another's
}

// socket is a Conn whose file descriptor can be had.
type socket struct{ *Conn }

// SyscallConn implements [syscall.Conn]. Reads through it are not cut.
func (s socket) SyscallConn() (syscall.RawConn, error) {
	return s.Conn.Conn.(syscall.Conn).SyscallConn()
}

// Reads returns conn with a Read that returns one piece at a time, in the mode of the process.
func Reads(conn net.Conn) net.Conn {
	mode := Current()
	if mode == Whole {
		return conn
	}
	c := &Conn{Conn: conn, in: mode.pieces()}
	if _, ok := conn.(syscall.Conn); ok {
		return socket{c}
	}
	return c
}

// ReadsPatiently is Reads, but hides the socket: code that would read it by system calls of its
// own uses Read.
func ReadsPatiently(conn net.Conn) net.Conn {
	mode := Current()
	if mode == Whole {
		return conn
	}
	return &Conn{Conn: conn, in: mode.pieces()}
}

// Writes returns conn with a Write that sends one piece at a time, in the mode of the process.
func Writes(conn net.Conn) net.Conn { return Current().Writes(conn) }

// Writes is [Writes] in the mode m.
func (m Mode) Writes(conn net.Conn) net.Conn {
	if m == Whole {
		return conn
	}
	return &Conn{Conn: conn, mode: m}
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if c.in == nil || len(p) == 0 {
		return c.Conn.Read(p)
	}
	// The lock is not held while it waits: that may be interrupted by another Read's end.
	c.reading.Lock()
	before := *c.in
	n := c.in.next(len(p))
	if c.in.mode == Edges && c.in.turns%3 > 0 && len(p) > 2 {
		n = min(n, len(p)-c.in.turns%3) // the end of the reader's buffer is an edge as well
	}
	c.reading.Unlock()
	n, err := c.Conn.Read(p[:n])
	c.reading.Lock()
	c.in.offset = before.offset + max(n, 0)
	c.reading.Unlock()
	return n, err
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	if c.mode == Whole || len(p) == 0 {
		return c.Conn.Write(p)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	wrote, waits, cut := 0, true, c.mode.pieces()
	cut.writes = true
	for wrote < len(p) {
		size := cut.next(len(p) - wrote)
		n, err := c.Conn.Write(p[wrote : wrote+size])
		wrote += n
		if err != nil {
			return wrote, err
		}
		// A peer that does not read now will not read each of the pieces either.
		waits = waits && wrote < len(p) && awaitReader(c.Conn)
	}
	return wrote, nil
}

// CloseWrite ends what is sent, if the connection can do that.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return syscall.ENOTSUP
}

// SetLinger is that of *[net.TCPConn].
func (c *Conn) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return syscall.ENOTSUP
}

// Dialer returns dial with connections whose Read goes in pieces. Every second connection hides
// its socket, so that both ways to read are tried.
func Dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	var mu sync.Mutex
	patient := true // so that the first one does not hide it
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if patient = !patient; patient {
			return ReadsPatiently(conn), nil
		}
		return Reads(conn), nil
	}
}
