package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	chi "github.com/go-chi/chi/v5/middleware"

	"snowgate/exchange"
	"snowgate/problem"
)

// maxStack bounds a logged stack, in bytes.
const maxStack = 16 << 10

// panicked is the cause of a request whose handler panicked.
type panicked struct {
	value any
	stack string
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// Recover answers 500 for a handler that panics, and leaves the panic and its
// stack as the cause for the access line. If an answer is already under way it
// breaks the connection off instead, so that half an answer is never taken for
// a whole one. [http.ErrAbortHandler] passes through.
func Recover() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recorder, ok := w.(chi.WrapResponseWriter)
			if !ok {
				recorder = chi.NewWrapResponseWriter(w, r.ProtoMajor)
			}
			defer func() {
				if value := recover(); value != nil {
					answerPanic(recorder, r, value)
				}
			}()
			next.ServeHTTP(recorder, r)
		})
	}
}

func answerPanic(w chi.WrapResponseWriter, r *http.Request, value any) {
	if err, ok := value.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	x := exchange.From(r.Context())
	err := problem.New(http.StatusInternalServerError, "", &panicked{value, string(debug.Stack())})
	if w.Status() != 0 || x.Upgraded {
		x.Cause = err
		panic(http.ErrAbortHandler)
	}
	header := w.Header()
	for name := range header {
		if name != "X-Request-Id" && name != "Connection" {
			delete(header, name) // it described an answer that is not coming
		}
	}
	problem.Write(w, r, err)
}
