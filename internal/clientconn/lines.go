package clientconn

import "bytes"

// maxLines is the number of lines of a head after which the head counts as too large. It is five
// times the default limit of Envoy, HAProxy and Apache httpd.
//
// A field of four bytes costs net/http as much as a field of hundreds, because it is put into a map
// and gets memory of its own. A head of 32 KiB with thousands of fields would take ten times as
// long to read as a head with few. The server reads all of it before any handler can refuse it.
// Therefore the connection refuses it.
const maxLines = 500

// headLines counts the lines of a head while the server reads it. Only the last read of a head may
// include a part of the body. So if the server reads on, everything before was part of the head.
type headLines struct {
	reading bool // the server reads a head, see [ConnState]
	lines   int
}

// begin starts a new count, if the server reads a head from now on.
func (h *headLines) begin(reading bool) { *h = headLines{reading: reading} }

// count counts the lines in p, which the server has read.
func (h *headLines) count(p []byte) {
	if h.reading {
		h.lines += bytes.Count(p, []byte{'\n'})
	}
}

// tooMany reports whether the head has too many lines. The server then still wants more of it.
func (h *headLines) tooMany() bool { return h.lines > maxLines }

// padding is the rest of a head with too many lines, as the server reads it: one endless field.
// When the head is too large for the server, it responds and closes the connection in its usual
// way.
func padding(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}
