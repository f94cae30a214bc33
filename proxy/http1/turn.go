package http1

import (
	"errors"
	"os"
	"time"
)

// quiet is how long askPatiently waits for unexpected bytes on a kept connection before it writes.
const quiet = time.Millisecond

// askPatiently is conn.ask for connections that are not sockets, and for systems without
// non-blocking reads of sockets.
func (c *conn) askPatiently(request []byte, begin func()) (wrote int, err error) {
	if c.kept {
		_ = c.net.SetReadDeadline(time.Now().Add(quiet))
		if n, err := c.net.Read(c.buf); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, errStale
		}
		_ = c.net.SetReadDeadline(time.Time{})
	}
	if wrote, err = c.net.Write(request); err != nil {
		return wrote, err
	}
	if begin != nil {
		begin()
	}
	return wrote, c.fill(len(c.buf))
}
