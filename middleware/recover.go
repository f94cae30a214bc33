package middleware

import (
	"errors"
	"net/http"
	"strings"

	"snowgate/internal/panics"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
)

// maxStack limits a logged stack, in bytes.
const maxStack = 16 << 10

// Recover responds with 500 if a handler panics, and closes the connection over HTTP/1. It counts
// the panic and leaves it as the cause for the access line. The cause has the stack, unless the
// same stack was logged a moment ago. If a response has begun, Recover aborts it, so that no caller
// takes half a response for a whole one. [http.ErrAbortHandler] passes through.
func Recover() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			response := recorded(w)
			defer func() {
				if value := recover(); value != nil {
					respondToPanic(response, r, value)
				}
			}()
			next.ServeHTTP(response, r)
		})
	}
}

func respondToPanic(w *recorder, r *http.Request, value any) {
	if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	x := exchange.From(r.Context())
	caught := panics.Caught(panics.Handler, value)
	err := problem.New(http.StatusInternalServerError, "", caught)
	if w.status != 0 || x.Upgraded {
		x.Cause = err
		panic(http.ErrAbortHandler)
	}
	header := w.Header()
	for name := range header {
		if !holdsForAny(name) {
			delete(header, name) // it described a response that is not coming
		}
	}
	if r.ProtoMajor == 1 {
		// The handler may have left the body half read, in full duplex. net/http would then read
		// the rest of the body and the next request at the same time, and panic.
		header.Set("Connection", "close")
	}
	problem.Write(w, r, err)
}

// holdsForAny reports whether the gateway sets the field about the request or the connection,
// independently of the response.
func holdsForAny(name string) bool {
	switch name {
	case "X-Request-Id", "Connection", "Strict-Transport-Security", "Vary":
		return true
	}
	return strings.HasPrefix(name, "Access-Control-")
}
