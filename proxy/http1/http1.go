// Package http1 sends requests to one server in HTTP/1.1 (RFC 9112) without TLS.
//
// It is for a proxy that knows what it wants, and leaves every decision to it: it
// adds no field to what it is given, follows nothing, decodes nothing, and repeats
// no request of which a byte was written. What it does do is keep connections, and
// be careful about answers.
//
// The goroutine that calls does the work: it writes the request and reads the
// answer on a connection that is its own for as long. There is no goroutine behind
// a connection, so nobody has to be woken on the way, which is what most of the cost
// of [net/http.Transport] goes to. One is started only for the body of a request,
// because the answer may come before its end.
//
//	call := transport.Call()
//	err := call.Send(ctx, &request)  // until the header of the answer is there
//	...call.Status, call.Header...
//	n, err := call.Read(buffer)      // the body
//	call.Close()                     // the connection is kept if it is fit for that
//
// # Connections that were kept
//
// Nothing may come on a connection on which nothing was asked. A byte or an end there
// means that it must not be used: the server has closed it, or has said more than one
// answer, which the next request must not be given. Because nobody reads while a
// connection is idle, that is looked for when it is taken, with the first of two
// non-blocking reads that belong to every call anyway (turn_unix.go): the first must
// find nothing, the second comes when the poller of the runtime has something.
//
// # What is refused
//
// An answer is refused as a whole if its head could be read in two ways: a status
// that is not three digits, another version than 1.0 or 1.1, a field name that is
// not a token, space before a colon, a folded line, control characters, lengths that
// differ, a coding other than chunked. Lines that end in a bare LF are understood in
// a head, as RFC 9112 §2.2 allows, and nowhere else.
package http1

import (
	"errors"
	"fmt"
)

// Field is one line of a header.
type Field struct{ Name, Value string }

// Bounds of what is accepted from a server.
const (
	// MaxInterim is how many heads are read for the one of the answer proper; the others are 1xx.
	MaxInterim = 128
	// maxChunkLine is the length of a line that begins a chunk, extensions included.
	maxChunkLine = 1 << 10
)

// Errors of [Call.Send] and [Call.Read]. Others are those of the network.
var (
	// ErrRequest says that a request cannot be written: one of its parts has a
	// character that would make it another request. Nothing was sent.
	ErrRequest = errors.New("http1: malformed request")
	// ErrResponse says that an answer was refused. The text after it may quote the
	// server.
	ErrResponse = errors.New("http1: malformed answer")
	// ErrHeaderSize says that the header or trailer of an answer is too large.
	ErrHeaderSize = errors.New("http1: the header of the answer is too large")
	// ErrAborted says that the call was broken off by [Call.Abort].
	ErrAborted = errors.New("http1: the call was aborted")
)

// errStale says that a connection that was kept is not fit for use. Nothing was sent.
var errStale = errors.New("http1: the server has closed the connection, or has said something on it unasked")

// malformed returns an [ErrResponse] that says more. What is quoted is cut short.
func malformed(what, quoted string) error {
	const most = 64
	return fmt.Errorf("%w: %s %q", ErrResponse, what, quoted[:min(len(quoted), most)])
}
