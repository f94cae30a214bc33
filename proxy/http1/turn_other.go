//go:build !unix

package http1

// turn needs nothing here.
type turn struct{}

func (c *conn) prepare() error { return nil }

// ask writes request, calls begin, and reads the first bytes of what comes back into
// the buffer. It returns how many bytes were written; errStale, and none, if the
// connection is not as quiet as one must be on which nothing was asked.
func (c *conn) ask(request []byte, begin func()) (wrote int, err error) {
	return c.askPatiently(request, begin)
}
