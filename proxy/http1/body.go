package http1

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// body is the state of the body of a response.
type body struct {
	kind    bodyKind
	left    int64 // bytes of the body, or of the chunk
	within  bool  // a chunk has begun, so its end must follow
	ended   bool
	err     error // why the body was cut off
	trailer []Field
}

// bodyKind says how the end of a body is recognized.
type bodyKind uint8

const (
	sized   bodyKind = iota // by its length, which may be 0
	chunked                 // RFC 9112 §7.1
	closing                 // by the end of the connection
)

// expectBody prepares for the body of a response to method (RFC 9112 §6.3).
func (c *Call) expectBody(method string) {
	c.body = body{kind: sized, left: c.Length}
	switch {
	case c.Status == 101:
		c.body.left, c.lasting = 0, false
	case method == "HEAD" || c.Status == 204 || c.Status == 304:
		c.body.left = 0
	case c.coded:
		c.body.kind, c.body.left = chunked, 0
	case c.Length < 0:
		c.body.kind, c.lasting = closing, false
	}
	c.body.ended = c.body.kind == sized && c.body.left == 0
}

// Read reads from the body of the response. It returns io.EOF only at the end of a whole body, and
// with the last bytes if it knows that they are the last. A body that is cut off ends with another
// error. At the end, the connection is kept for the next call if it can be used again.
func (c *Call) Read(p []byte) (n int, err error) {
	b := &c.body
	switch {
	case b.ended:
		c.finish(0)
		return 0, io.EOF
	case b.err != nil:
		return 0, b.err
	case c.conn == nil:
		return 0, ErrAborted
	case b.kind == chunked:
		n, err = c.readChunked(p)
	case b.kind == sized:
		n, err = c.conn.read(p[:min(int64(len(p)), b.left)])
		if b.left -= int64(n); b.left == 0 {
			err = io.EOF
		} else {
			err = broken(err)
		}
	default:
		n, err = c.conn.read(p)
	}
	if b.ended = errors.Is(err, io.EOF); !b.ended {
		b.err = err
	} else {
		c.finish(0)
	}
	return n, err
}

// Ready reports whether a Read would return without waiting.
func (c *Call) Ready() bool {
	b := &c.body
	switch {
	case b.ended || b.err != nil || c.conn == nil:
		return true
	case b.kind == chunked && b.left == 0:
		return c.chunkReady()
	}
	return len(c.conn.buffered()) > 0
}

// Trailer returns the fields after a chunked body (RFC 9112 §7.1.2), with canonical names. It is
// valid after Read has returned io.EOF.
func (c *Call) Trailer() []Field { return c.body.trailer }

// readChunked reads as many chunks as it can without waiting for another one.
func (c *Call) readChunked(p []byte) (n int, err error) {
	for {
		if c.body.left == 0 {
			if err := c.nextChunk(); err != nil {
				return n, err
			}
			if n > 0 && len(c.conn.buffered()) == 0 {
				return n, nil
			}
		}
		m, err := c.conn.read(p[n:min(int64(len(p)), int64(n)+c.body.left)])
		n += m
		c.body.left -= int64(m)
		if err != nil {
			return n, broken(err)
		}
		if n == len(p) || !c.Ready() {
			return n, nil
		}
	}
}

// nextChunk reads up to the first byte of the next chunk. After the last chunk, it reads the
// trailer and returns io.EOF.
func (c *Call) nextChunk() error {
	if c.body.within {
		if _, err := c.conn.line(0); err != nil {
			return err
		}
		c.body.within = false
	}
	line, err := c.conn.line(maxChunkLine)
	if err != nil {
		return err
	}
	size, err := parseChunkSize(line)
	if err != nil {
		return err
	}
	if size > 0 {
		c.body.left, c.body.within = size, true
		return nil
	}
	return c.readTrailer()
}

func (c *Call) readTrailer() error {
	var lines []byte
	for {
		line, err := c.conn.line(c.transport.MaxHeader)
		switch {
		case err != nil:
			return err
		case len(line) == 0:
			if c.body.trailer, err = appendFields(nil, string(lines)); err != nil {
				return err
			}
			return io.EOF
		case len(lines)+len(line) > c.transport.MaxHeader:
			return ErrHeaderSize
		}
		lines = append(append(lines, line...), '\n')
	}
}

// parseChunkSize reads the first line of a chunk. It ignores extensions (RFC 9112 §7.1.1).
func parseChunkSize(line []byte) (int64, error) {
	digits, _, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > 15 { // 60 bits
		return 0, malformed("chunk", string(line))
	}
	for _, c := range digits {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return 0, malformed("chunk", string(line))
		}
	}
	return strconv.ParseInt(string(digits), 16, 64)
}

// chunkReady reports whether nextChunk would return without waiting.
func (c *Call) chunkReady() bool {
	rest := c.conn.buffered()
	if c.body.within {
		if len(rest) < len("\r\n") {
			return false
		}
		rest = rest[len("\r\n"):]
	}
	end := bytes.IndexByte(rest, '\n')
	switch {
	case end < 0:
		return false
	case rest[0] == '0': // perhaps the last chunk, with a trailer
		return headEnd(rest, end) >= 0
	}
	return true
}
