//go:build unix

package http1

import (
	"errors"
	"io"
	"os"
	"syscall"

	"snowgate/internal/nonblock"
)

// turn is what a connection needs to be asked something.
type turn struct {
	raw  syscall.RawConn       // nil: the connection is no socket
	step func(fd uintptr) bool // conn.step, made once

	request []byte // to be written
	wrote   int    // of it
	begin   func() // called when the request is written; nil: nobody asks
	asked   bool   // step has written
	err     error
}

func (c *conn) prepare() error {
	socket, ok := c.net.(syscall.Conn)
	if !ok {
		return nil // a pipe of a test, for one
	}
	raw, err := socket.SyscallConn()
	c.turn.raw, c.turn.step = raw, c.step
	return err
}

// ask writes request, calls begin, and reads the first bytes of what comes back into
// the buffer. It returns how many bytes were written; errStale, and none, if the
// connection is not as quiet as one must be on which nothing was asked.
//
// All of it is one RawConn.Read, which forgets what the poller knew of the connection
// when it begins, and calls step again only when the poller has news since. So the
// look for bytes that nobody asked for has to come first within it, and the wait for
// the response needs no read that finds nothing.
func (c *conn) ask(request []byte, begin func()) (wrote int, err error) {
	t := &c.turn
	if t.raw == nil {
		return c.askPatiently(request, begin)
	}
	t.request, t.begin, t.wrote, t.asked, t.err = request, begin, 0, false, nil
	err = t.raw.Read(t.step)
	t.request, t.begin = nil, nil
	if t.err != nil {
		err = t.err
	}
	return t.wrote, err
}

// step does what can be done without waiting, and reports whether the turn is over.
func (c *conn) step(fd uintptr) bool {
	t := &c.turn
	n, err := nonblock.Read(fd, c.buf)
	if t.asked {
		switch {
		case nonblock.MustWait(err):
			return false
		case errors.Is(err, io.EOF):
			t.err = err
		case err != nil:
			t.err = os.NewSyscallError("read", err)
		default:
			c.r, c.w = 0, n
		}
		return true
	}
	if !nonblock.MustWait(err) {
		t.err = errStale
		return true
	}
	t.asked = true
	if t.wrote, err = nonblock.Write(fd, t.request); err != nil || t.wrote < len(t.request) {
		// By the ordinary way, which waits.
		var more int
		more, t.err = c.net.Write(t.request[t.wrote:])
		t.wrote += more
	}
	if t.err != nil {
		return true
	}
	if t.begin != nil {
		t.begin()
	}
	return false
}
