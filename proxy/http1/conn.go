package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// readBuffer is the size of a connection's buffer. The buffer grows while a larger header is read.
const readBuffer = 4 << 10

// maxKeptOut limits the buffer for request heads that a connection keeps.
const maxKeptOut = 8 << 10

// conn is one connection with its unused input. It belongs to one call at a time; only close is
// safe for concurrent use.
type conn struct {
	net   net.Conn
	turn  turn
	kept  bool      // has carried other requests
	since time.Time // idle since then

	buf  []byte // buf[r:w] was read, but not used
	r, w int
	out  []byte // buffer for the head of a request
}

func newConn(network net.Conn) (*conn, error) {
	c := &conn{net: network, buf: make([]byte, readBuffer)}
	if err := c.prepare(); err != nil {
		_ = network.Close()
		return nil, err
	}
	return c, nil
}

// close closes the connection. Pending reads and writes fail.
func (c *conn) close() { _ = c.net.Close() }

// buffered returns the bytes that were read, but not used.
func (c *conn) buffered() []byte { return c.buf[c.r:c.w] }

// take marks the first n bytes of buffered as used.
func (c *conn) take(n int) {
	c.r += n
	if c.r < c.w {
		return
	}
	c.r, c.w = 0, 0
	if len(c.buf) > readBuffer {
		c.buf = make([]byte, readBuffer)
	}
}

// fill waits for more bytes, up to most in the buffer. It returns io.EOF at the end of the
// connection, and [ErrHeaderSize] if most bytes are buffered already.
func (c *conn) fill(most int) error {
	if c.r > 0 {
		copy(c.buf, c.buf[c.r:c.w])
		c.r, c.w = 0, c.w-c.r
	}
	if c.w >= most {
		return ErrHeaderSize
	}
	if c.w == len(c.buf) {
		c.buf = append(c.buf, make([]byte, len(c.buf))...)
	}
	n, err := c.net.Read(c.buf[c.w:min(len(c.buf), most)])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

// read reads from the buffer, or from the network if the buffer is empty.
func (c *conn) read(p []byte) (int, error) {
	if c.r == c.w {
		if len(p) >= len(c.buf) {
			return c.net.Read(p)
		}
		if err := c.fill(len(c.buf)); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.buf[c.r:c.w])
	c.take(n)
	return n, nil
}

// line returns the next line of up to most bytes without its end, which must be CRLF. The line is
// valid until the next read.
func (c *conn) line(most int) ([]byte, error) {
	for {
		if i := bytes.IndexByte(c.buffered(), '\n'); i >= 0 {
			text, ok := bytes.CutSuffix(c.buf[c.r:c.r+i], []byte("\r"))
			if !ok || len(text) > most {
				return nil, malformed("line", string(text))
			}
			c.r += i + 1 // take could free the memory of text
			return text, nil
		}
		// A CR at the end of the buffer may be the first half of the line's end.
		if len(bytes.TrimSuffix(c.buffered(), []byte("\r"))) > most {
			return nil, malformed("long line", string(c.buffered()))
		}
		if err := c.fill(readBuffer + most); err != nil {
			return nil, broken(err)
		}
	}
}

// head returns the lines up to and including the next empty line, but no more than most bytes.
func (c *conn) head(most int) (string, error) {
	seen := 0
	for {
		if end := headEnd(c.buffered(), seen); end >= 0 {
			text := string(c.buf[c.r : c.r+end])
			c.take(end)
			return text, nil
		}
		seen = max(len(c.buffered())-len("\n\r"), 0)
		if err := c.fill(most); err != nil {
			return "", c.cutShort(err)
		}
	}
}

// cutShort returns the error for the end of a connection within a head.
func (c *conn) cutShort(err error) error {
	if errors.Is(err, io.EOF) && c.r < c.w {
		return fmt.Errorf("%w: it ends within its header: %q", ErrResponse, c.buf[c.r:min(c.w, c.r+64)])
	}
	return broken(err)
}

// headEnd returns the end of the first empty line in b, or -1. The first line of b does not count.
// The search starts at from.
func headEnd(b []byte, from int) int {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return -1
		}
		from += i + 1
		switch rest := b[from:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return from + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return from + 2
		}
	}
}

// broken turns io.EOF into io.ErrUnexpectedEOF.
func broken(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
