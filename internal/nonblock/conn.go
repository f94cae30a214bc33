//go:build unix

package nonblock

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
)

// Conn is a TCP connection that behaves like the one it wraps. For small buffers, its Read and
// Write use the calls of this package. It is safe for concurrent use.
type Conn struct {
	*net.TCPConn

	in, out side
}

// side is one direction of a connection.
type side struct {
	busy sync.Mutex                                    // held by the call that uses the fields below
	do   func(step func(fd uintptr) bool) error        // RawConn.Read or RawConn.Write
	call func(fd uintptr, p []byte) (n int, err error) // Read or Write
	all  bool                                          // finish only when all of p is done
	step func(fd uintptr) bool                         // side.goOn, allocated once
	p    []byte
	n    int   // bytes of p that are done
	err  error // the error that ended the call
}

// Wrap returns c as a Conn. It returns c unchanged if c is not a TCP connection, or is closed. A
// closed connection reports that itself.
func Wrap(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	conn := &Conn{TCPConn: tcp}
	conn.in.do, conn.in.call = raw.Read, Read
	conn.out.do, conn.out.call, conn.out.all = raw.Write, Write, true
	conn.in.step, conn.out.step = conn.in.goOn, conn.out.goOn
	return conn
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 || len(p) > Most || !c.in.busy.TryLock() {
		return c.TCPConn.Read(p)
	}
	n, err := c.in.run(p)
	c.in.busy.Unlock()
	return n, c.explain("read", err)
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) == 0 || len(p) > Most || !c.out.busy.TryLock() {
		return c.TCPConn.Write(p)
	}
	n, err := c.out.run(p)
	c.out.busy.Unlock()
	return n, c.explain("write", err)
}

func (s *side) run(p []byte) (int, error) {
	s.p, s.n, s.err = p, 0, nil
	err := s.do(s.step)
	if s.p = nil; s.err != nil {
		err = s.err
	}
	return s.n, err
}

// goOn does what is possible without waiting. It reports whether the call is done.
func (s *side) goOn(fd uintptr) bool {
	for {
		n, err := s.call(fd, s.p[s.n:])
		s.n += n
		switch {
		case MustWait(err):
			return false
		case err != nil:
			s.err = err
			return true
		case !s.all || s.n == len(s.p):
			return true
		}
	}
}

// explain returns err in the form that net.TCPConn uses.
func (c *Conn) explain(operation string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if told, ok := errors.AsType[*net.OpError](err); ok { // "raw-read" or "raw-write"
		told.Op = operation
		return told
	}
	return &net.OpError{Op: operation, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(operation, err)}
}
