package clientconn

import "bytes"

// maxLines is how many lines the server reads of a head before the head counts as too large. It is
// five times what Envoy, HAProxy and Apache httpd take by default.
//
// A field of four bytes costs net/http as much as one of hundreds: it is put into a map, and gets
// memory of its own. A head of 32 KiB with thousands of fields would take ten times as long to read as
// one with few. The server reads all of it before anybody else can refuse it, so the connection does.
const maxLines = 500

// headLines counts the lines of a head while the server reads it. A body follows a head in the same
// read at most, so whatever was read before the server reads on was of the head.
type headLines struct {
	reading bool // the server reads a head, see [ConnState]
	lines   int
}

// begin notes whether the server reads a head from now on.
func (h *headLines) begin(reading bool) { *h = headLines{reading: reading} }

// count notes that the server has read p.
func (h *headLines) count(p []byte) {
	if h.reading {
		h.lines += bytes.Count(p, []byte{'\n'})
	}
}

// tooMany reports whether there were too many lines, and the server wants more.
func (h *headLines) tooMany() bool { return h.lines > maxLines }

// padding is what the server reads of a head with too many lines: one field that goes on until the head
// is too large for the server, which then answers and closes the connection in its own way.
func padding(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}
