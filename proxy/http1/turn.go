package http1

import (
	"errors"
	"os"
	"time"
)

// quiet is how long a connection that was kept is listened to before it is used, where
// there is no way to look without waiting.
const quiet = time.Millisecond

// askPatiently is conn.ask for connections that are no sockets, and for systems whose
// sockets cannot be read without waiting.
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
