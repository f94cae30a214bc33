//go:build unix

package http1

import (
	"errors"
	"io"
	"os"
	"syscall"

	"snowgate/internal/nonblock"
)

// turn is the state of conn.ask.
type turn struct {
	raw  syscall.RawConn       // nil: the connection is not a socket
	step func(fd uintptr) bool // conn.step, allocated once

	request []byte // to be written
	wrote   int    // bytes of request written
	begin   func() // called when request is written; may be nil
	asked   bool   // step has written request
	err     error
}

func (c *conn) prepare() error {
	socket, ok := c.net.(syscall.Conn)
	if !ok {
		return nil // for example, a pipe in a test
	}
	raw, err := socket.SyscallConn()
	c.turn.raw, c.turn.step = raw, c.step
	return err
}

// ask writes request, calls begin, and reads the first bytes of the response into the buffer. It
// returns the number of bytes written. If the connection has unexpected bytes or has ended, ask
// writes nothing and returns errStale.
//
// All steps share one RawConn.Read. RawConn.Read first discards what the poller knew of the
// connection, and calls step again only when the poller reports something new. Therefore the check
// for unexpected bytes comes first within it, and the wait for the response needs no read that
// finds nothing.
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

// step does what is possible without waiting, and reports whether ask is done.
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
		// net.Conn writes the rest, because its Write waits.
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
