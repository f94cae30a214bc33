package docker

import (
	"errors"
	"io"
)

// Bounds of what is read of a response of Docker. A decoder holds a response as a whole, and what
// it makes of a value may take many times the bytes of the value, so both are bounded.
const (
	maxList     = 4_000_000 // bytes of a list: that of a thousand containers
	maxValues   = 1 << 17   // in a list, at any depth
	maxElements = 1 << 12   // of a list
	maxDepth    = 64        // of values in each other
	maxEvent    = 256 << 10 // bytes up to the end of an event
	maxRefusal  = 8 << 10   // bytes of a response that is none of success
	// MaxHeader is the most bytes of a header that are read.
	MaxHeader = 64 << 10
)

// errTooLarge says that a response is too large to be true.
var errTooLarge = errors.New("docker: the response is larger than the gateway reads")

// BoundList returns body, of which Read fails once it is too large for a list.
func BoundList(body io.ReadCloser) io.ReadCloser { return &boundedList{ReadCloser: body} }

// BoundEvents returns body, of which Read fails once there are too many bytes without the end of
// an event. A line is no measure, as an event may have any number of them.
func BoundEvents(body io.ReadCloser) io.ReadCloser { return &boundedEvents{ReadCloser: body} }

// BoundRefusal returns body, of which Read fails once it is too large for a response that is none
// of success.
func BoundRefusal(body io.ReadCloser) io.ReadCloser {
	return &boundedText{ReadCloser: body, left: maxRefusal}
}

// boundedText fails when more than left bytes were read.
type boundedText struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *boundedText) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// nesting follows the brackets of a JSON text.
type nesting struct {
	depth         int
	text, escaped bool // inside of a string, behind a backslash in it
}

// next takes the next byte, and reports whether it is one of structure, outside of a string.
func (n *nesting) next(c byte) bool {
	switch {
	case n.escaped:
		n.escaped = false
	case n.text:
		n.escaped, n.text = c == '\\', c != '"'
	case c == '"':
		n.text = true
	case c == '{' || c == '[':
		n.depth++
		return true
	case c == '}' || c == ']':
		n.depth--
		return true
	case c == ',':
		return true
	}
	return false
}

// boundedList fails when a list has too many bytes or values.
type boundedList struct {
	io.ReadCloser
	nesting
	read, values, elements int
}

// Read implements [io.Reader].
func (b *boundedList) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += n
	for _, c := range p[:n] {
		if !b.next(c) {
			continue
		}
		b.values++
		if b.depth == 1 && c == ',' {
			b.elements++
		}
		if b.depth > maxDepth || b.values > maxValues || b.elements >= maxElements {
			return 0, errTooLarge
		}
	}
	if b.read > maxList {
		return 0, errTooLarge
	}
	return n, err
}

// boundedEvents fails when an event has too many bytes.
type boundedEvents struct {
	io.ReadCloser
	nesting
	read int // since the last event ended
}

// Read implements [io.Reader].
func (b *boundedEvents) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		b.read++
		if b.next(c) && b.depth <= 0 && c != ',' {
			b.depth, b.read = 0, 0
		}
		if b.read > maxEvent || b.depth > maxDepth {
			return 0, errTooLarge
		}
	}
	return n, err
}
