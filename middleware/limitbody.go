package middleware

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"snowgate/internal/problem"
)

// LimitBody limits the request body of small endpoints to size bytes, and the time from the start
// of the request to its last byte to within. A handler that reads more gets an
// [*http.MaxBytesError]; a handler that reads too late gets a [*problem.Error] with status 408.
// Package problem knows both. In both cases the connection is closed after the response.
func LimitBody(size int64, within time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Body == nil || r.Body == http.NoBody {
				next.ServeHTTP(w, r)
				return
			}
			control := http.NewResponseController(w)
			// If w does not support deadlines (a recorder in a test), the size is still limited.
			_ = control.SetReadDeadline(time.Now().Add(within))
			r.Body = &limitedBody{ReadCloser: http.MaxBytesReader(w, r.Body, size), header: w.Header(), control: control}
			next.ServeHTTP(w, r)
		})
	}
}

type limitedBody struct {
	io.ReadCloser
	header  http.Header
	control *http.ResponseController
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		// The server now watches the connection for a caller that leaves. An expired deadline would
		// look like one.
		_ = b.control.SetReadDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.header.Set("Connection", "close")
		err = problem.New(http.StatusRequestTimeout, "The request body did not arrive in time.", err)
	default:
		b.header.Set("Connection", "close")
	}
	return n, err
}
