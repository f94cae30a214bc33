package http1

import (
	"fmt"
	"io"
	"strconv"

	"golang.org/x/net/http/httpguts"
)

// Request is the request that [Call.Send] writes. Each part is written unchanged. Send refuses a
// part with [ErrRequest] if it has a character that would turn the request into another one.
type Request struct {
	Method string
	// Path is the encoded path, and Query the text after the question mark. HasQuery sends the
	// question mark even if Query is empty.
	Path, Query string
	HasQuery    bool
	Host        string
	// Header is written in this order. It must not have Host, Content-Length or Transfer-Encoding;
	// the last two follow from Length.
	Header []Field
	// Body follows the header; nil: no body. A goroutine other than that of [Call.Send] reads Body,
	// until its end or an error; see [Call.Wait]. Nobody closes Body.
	Body io.Reader
	// Begun is the first part of the body, which the caller has already read. Begun is sent in one
	// write with the header; Body is the rest, or nil. Begun needs a Length.
	Begun []byte
	// Length is the length of the whole body, or -1 if it is unknown. A body of unknown length is
	// sent in chunks.
	Length int64
	// Expect says that Header has Expect: 100-continue. Body is then sent when the server asks for
	// it, or after [Transport.ContinueTimeout].
	Expect bool
	// Interim, if set, is told of every 1xx response but 101, within [Call.Send]. header
	// is valid until it returns. An error ends the call.
	Interim func(status int, header []Field) error
}

// appendHead appends the head of r, and Begun, to b.
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

// hasBody reports whether the request has a body.
func (r *Request) hasBody() bool { return r.Body != nil || len(r.Begun) > 0 }

// appendFraming appends the field for the length of the body. For an empty body, only methods that
// usually have a body get the field (RFC 9110 §8.6).
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

// Character classes.
const (
	inToken  = 1 << iota // RFC 9110 §5.6.2
	inValue              // RFC 9110 §5.5, including space and tab
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
