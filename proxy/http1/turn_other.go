//go:build !unix

package http1

// turn is empty on this system.
type turn struct{}

func (c *conn) prepare() error { return nil }

// ask writes request, calls begin, and reads the first bytes of the response into the buffer. It
// returns the number of bytes written. If the connection has unexpected bytes or has ended, ask
// writes nothing and returns errStale.
func (c *conn) ask(request []byte, begin func()) (wrote int, err error) {
	return c.askPatiently(request, begin)
}
