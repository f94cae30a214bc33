package http1

import (
	"fmt"
	"io"
	"strconv"

	"golang.org/x/net/http/httpguts"
)

// Request is what is sent. Every part is written as it is, and refused with
// [ErrRequest] if it has a character that would make another request of it.
type Request struct {
	Method string
	// Path is the path in its encoding, and Query what follows after a question mark.
	// HasQuery sends the question mark also if nothing follows.
	Path, Query string
	HasQuery    bool
	Host        string
	// Header is written in this order. It must not have Host, nor what frames a
	// message: Content-Length and Transfer-Encoding are made of Length.
	Header []Field
	// Body is what is sent after the header, nil if nothing is. It is read by another
	// goroutine than that of [Call.Send], until its end or until a Read fails; see
	// [Call.Wait]. It is never closed.
	Body io.Reader
	// Begun is what was read of the body before: it is sent in one write with the header, and
	// Body is what follows it, nil if nothing does. It needs a Length.
	Begun []byte
	// Length is the length of the whole body, -1 if it is not known: then it is sent in chunks.
	Length int64
	// Expect tells that Header has Expect: 100-continue. Body is then kept back until
	// the server asks for it, or says nothing for a while.
	Expect bool
	// Interim, if set, is told of every 1xx response but 101, within [Call.Send]. header
	// is valid until it returns. An error ends the call.
	Interim func(status int, header []Field) error
}

// appendHead appends the head of r to b, and what there is of its body.
func (r *Request) appendHead(b []byte) ([]byte, error) {
	if len(r.Begun) > 0 && (r.Length < int64(len(r.Begun)) || r.Body == nil && r.Length > int64(len(r.Begun))) {
		return b, fmt.Errorf("%w: a body of %d bytes begins with %d", ErrRequest, r.Length, len(r.Begun))
	}
	if !isToken(r.Method) || !isTarget(r.Path) || r.Path == "" || !isTarget(r.Query) || !isTarget(r.Host) {
		return b, fmt.Errorf("%w: %.20q %.100q, host %.100q", ErrRequest, r.Method, r.Path, r.Host)
	}
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, r.Path...)
	if r.Query != "" || r.HasQuery {
		b = append(b, '?')
		b = append(b, r.Query...)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, r.Host...)
	b = append(b, "\r\n"...)
	b = r.appendFraming(b)
	for i := range r.Header {
		f := &r.Header[i]
		if !isToken(f.Name) || !isValue(f.Value) {
			return b, fmt.Errorf("%w: field %.100q", ErrRequest, f.Name)
		}
		b = append(b, f.Name...)
		b = append(b, ": "...)
		b = append(b, f.Value...)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	return append(b, r.Begun...), nil
}

// hasBody reports whether the request has a body, sent with the header or after it.
func (r *Request) hasBody() bool { return r.Body != nil || len(r.Begun) > 0 }

// appendFraming says how long the body is. Without one, only methods that usually
// have one say so (RFC 9110 §8.6).
func (r *Request) appendFraming(b []byte) []byte {
	switch {
	case r.hasBody() && r.Length < 0:
		return append(b, "Transfer-Encoding: chunked\r\n"...)
	case r.hasBody():
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, r.Length, 10)
		return append(b, "\r\n"...)
	case r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH":
		return append(b, "Content-Length: 0\r\n"...)
	}
	return b
}

// Kinds of bytes.
const (
	inToken  = 1 << iota // RFC 9110 §5.6.2
	inValue              // RFC 9110 §5.5, with space and tab
	inTarget             // anything visible
)

var kinds = func() (kinds [256]uint8) {
	for c := range kinds {
		switch {
		case httpguts.IsTokenRune(rune(c)):
			kinds[c] = inToken | inValue | inTarget
		case c == ' ' || c == '\t':
			kinds[c] = inValue
		case c > ' ' && c != 0x7f:
			kinds[c] = inValue | inTarget
		}
	}
	return kinds
}()

func isToken(text string) bool { return text != "" && consists(text, inToken) }

func isValue(text string) bool { return consists(text, inValue) }

func isTarget(text string) bool { return consists(text, inTarget) }

func consists(text string, kind uint8) bool {
	for i := range len(text) {
		if kinds[text[i]]&kind == 0 {
			return false
		}
	}
	return true
}
