// Package problem turns errors into HTTP responses. No other package does.
//
// Handlers return errors. [HandlerFunc] hands them to [Write], which looks up the response in one
// table. Write sends RFC 9457 problem details; [OAuth] sends the JSON of RFC 6749 §5.2. The
// response holds only what the caller may know; the cause goes into the access line. An error that
// is not in the table becomes a bare 500.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"snowgate/clients"
	"snowgate/internal/request/exchange"
	"snowgate/tokens"
)

// RetryAfter is the wait in seconds that a 503 asks for.
const RetryAfter = 1

// StatusClientClosedRequest is logged for a caller that went away before it got a response. No
// client receives it. The number is that of nginx.
const StatusClientClosedRequest = 499

// Error is an error with its response. Detail is public; Err is for the log.
type Error struct {
	Status int         // HTTP status code
	Detail string      // one public sentence; empty if the status says it all
	Header http.Header // further header fields of the response; may be nil
	Faults []Fault     // what is wrong, one by one, with a document that was sent; may be nil
	Err    error       // private cause; may be nil
}

// Fault is one fault in a JSON document from a caller. It is public.
type Fault struct {
	// Pointer is the location (RFC 6901); empty means the whole document.
	Pointer string `json:"pointer"`
	// Detail is one sentence. It never quotes a possible secret.
	Detail string `json:"detail"`
}

func (e *Error) Error() string {
	text := http.StatusText(e.Status)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an [Error] with a public detail and, optionally, a private cause.
func New(status int, detail string, cause error) *Error {
	return &Error{Status: status, Detail: detail, Err: cause}
}

// MethodNotAllowed responds with 405 and the allowed methods (RFC 9110 §15.5.6).
func MethodNotAllowed(allow string) *Error {
	return &Error{Status: http.StatusMethodNotAllowed, Header: http.Header{"Allow": {allow}}}
}

// Unavailable responds with 503 and Retry-After. detail is public.
func Unavailable(detail string, cause error) *Error {
	return &Error{
		Status: http.StatusServiceUnavailable,
		Detail: detail,
		Header: http.Header{"Retry-After": {strconv.Itoa(RetryAfter)}},
		Err:    cause,
	}
}

// HandlerFunc is an HTTP handler that returns its error instead of writing it, so that no response
// can go on after a refusal.
type HandlerFunc func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP calls f and responds with its error, if any, through [Write].
func (f HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f(w, r); err != nil {
		Write(w, r, err)
	}
}

// body is the JSON of RFC 9457 §3.
type body struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Detail    string  `json:"detail,omitempty"`
	Errors    []Fault `json:"errors,omitempty"` // as in the example of RFC 9457 §3
	RequestID string  `json:"request_id,omitempty"`
}

// Write responds to r with err as application/problem+json, and leaves err as the cause for the
// access line. The caller must not have written anything before.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	x := exchange.From(r.Context())
	x.Cause = err
	response := describe(err)
	header := w.Header()
	for name, values := range response.Header {
		header[name] = values
	}
	header.Del("Content-Length")
	header.Del("Content-Encoding")
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(response.Status)
	if r.Method == http.MethodHead {
		return
	}
	// The status line is sent. A caller that has gone away cannot be told about an error.
	_ = json.NewEncoder(w).Encode(body{
		Type:      "about:blank",
		Title:     title(response.Status),
		Status:    response.Status,
		Detail:    response.Detail,
		Errors:    response.Faults,
		RequestID: x.RequestID,
	})
}

func title(status int) string {
	if status == StatusClientClosedRequest {
		return "Client Closed Request"
	}
	return http.StatusText(status)
}

// describe is the table: which response an error gets.
func describe(err error) *Error {
	var known *Error
	var tooLarge *http.MaxBytesError
	detail, header, limited := tooMany(err)
	switch {
	case errors.As(err, &known):
		return known
	case limited:
		return &Error{Status: http.StatusTooManyRequests, Detail: detail, Header: header, Err: err}
	case errors.Is(err, context.Canceled): // before the error of the store, which wraps it
		return New(StatusClientClosedRequest, "", err)
	case errors.Is(err, tokens.ErrUnavailable), errors.Is(err, clients.ErrUnavailable):
		return Unavailable("The gateway cannot decide at the moment; the credentials were not checked.", err)
	case errors.As(err, &tooLarge):
		return New(http.StatusRequestEntityTooLarge, "The request body is larger than is accepted here.", err)
	default:
		return New(http.StatusInternalServerError, "", err)
	}
}
