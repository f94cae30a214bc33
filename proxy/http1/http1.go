// Package http1 sends requests to one server in HTTP/1.1 (RFC 9112) without TLS.
//
// It is for a proxy, which makes every decision itself. The package adds no field, follows no redirect,
// decodes nothing, and never repeats a request of which a byte was written. It keeps connections, and
// checks responses strictly.
//
// The calling goroutine does the work: it writes the request and reads the response on a connection that
// it owns meanwhile. No goroutine waits behind a connection, so none has to be woken, which is most of
// the cost of [net/http.Transport]. Only the body of a request gets a goroutine, because the response may
// come before its end.
//
//	call := transport.Call()
//	err := call.Send(ctx, &request)  // until the header of the response is there
//	...call.Status, call.Header...
//	n, err := call.Read(buffer)      // the body
//	call.Close()                     // the connection is kept if it is fit for that
//
// # Kept connections
//
// A server may send nothing on a connection before it is asked. A byte or an end there means that
// the connection must not be used: the server has closed it, or has sent more than one response,
// which must not reach the next caller. No goroutine reads an idle connection, so a call checks it
// on taking it, with the first of two non-blocking reads that it makes anyway (turn_unix.go). The
// first must find nothing; the second comes when the poller of the runtime has something.
//
// # What is refused
//
// A response is refused as a whole if its header can be read in two ways: a status that is not three
// digits, a version other than 1.0 or 1.1, a field name that is not a token, space before a colon, a
// folded line, control characters, lengths that differ, a coding other than chunked. A header may have
// lines that end in a bare LF, as RFC 9112 §2.2 allows; nothing else may.
package http1

import (
	"errors"
	"fmt"
)

// Field is one line of a header.
type Field struct{ Name, Value string }

// Limits on responses.
const (
	// MaxInterim limits the number of heads of a response: all but the last are interim responses
	// (1xx).
	MaxInterim = 128
	// maxChunkLine limits the first line of a chunk, including extensions.
	maxChunkLine = 1 << 10
)

// Errors of [Call.Send] and [Call.Read]. All others are errors of the network.
var (
	// ErrRequest is returned for a request that cannot be written, because a part of it has a
	// character that would turn it into another request. Nothing was sent.
	ErrRequest = errors.New("http1: malformed request")
	// ErrResponse says that a response was refused. The text after it may quote the
	// server.
	ErrResponse = errors.New("http1: malformed response")
	// ErrHeaderSize says that the header or trailer of a response is too large.
	ErrHeaderSize = errors.New("http1: the header of the response is too large")
	// ErrAborted says that the call was broken off by [Call.Abort].
	ErrAborted = errors.New("http1: the call was aborted")
)

// errStale says that a kept connection cannot be used. Nothing was sent.
var errStale = errors.New("http1: the server has closed the connection, or has said something on it unasked")

// malformed returns an [ErrResponse] with a detail. It cuts the quoted text short.
func malformed(what, quoted string) error {
	const most = 64
	return fmt.Errorf("%w: %s %q", ErrResponse, what, quoted[:min(len(quoted), most)])
}
