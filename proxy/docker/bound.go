package docker

import (
	"errors"
	"io"
)

// Limits on the responses of Docker. A decoder holds a whole response in memory, and decoded values
// may take many times their encoded size. So both bytes and values are limited.
const (
	maxList     = 4_000_000 // bytes of a list: enough for a thousand containers
	maxValues   = 1 << 17   // values in a list, at any depth
	maxElements = 1 << 12   // elements of a list
	maxDepth    = 64        // nested values
	maxEvent    = 256 << 10 // bytes of one event
	maxRefusal  = 8 << 10   // bytes of an error response
	// MaxHeader is the maximum number of bytes of a response header.
	MaxHeader = 64 << 10
)

// errTooLarge is returned for a response that exceeds a limit of this file.
var errTooLarge = errors.New("docker: the response is larger than the gateway reads")

// BoundList returns body with a Read that fails once the list is too large.
func BoundList(body io.ReadCloser) io.ReadCloser { return &boundedList{ReadCloser: body} }

// BoundEvents returns body with a Read that fails once one event is too large. Lines are not
// counted, because an event may have any number of them.
func BoundEvents(body io.ReadCloser) io.ReadCloser { return &boundedEvents{ReadCloser: body} }

// BoundRefusal returns body with a Read that fails once an error response is too large.
func BoundRefusal(body io.ReadCloser) io.ReadCloser {
	return &boundedText{ReadCloser: body, left: maxRefusal}
}

// boundedText fails after more than left bytes.
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

// nesting tracks the brackets of a JSON text.
type nesting struct {
	depth         int
	text, escaped bool // within a string; after a backslash in it
}

// next consumes the byte c. It reports whether c is a bracket or comma outside of strings.
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

// boundedList fails if a list has too many bytes, values or elements, or nests too deeply.
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

// boundedEvents fails if an event has too many bytes or nests too deeply.
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
