package middleware

import (
	"net/http"

	"snowgate/internal/request/exchange"
)

// Framing closes the connection after every HTTP/1.1 request with
// Transfer-Encoding. RFC 9112 §6.1 demands that for a request that also has a
// Content-Length, the classic of request smuggling; net/http takes such a
// request by its Transfer-Encoding alone and hides that there was another
// length, so the harmless ones cannot be told apart.
//
// The client may have sent more requests by then. They are not answered, but read, so that the
// response before them arrives.
//
// It closes the connection after every HTTP/1.0 request as well: §6.1 demands that for one with
// Transfer-Encoding, a field that net/http ignores and deletes in that version.
func Framing() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0) {
				w.Header().Set("Connection", "close")
				exchange.Linger(r.Context())
			}
			next.ServeHTTP(w, r)
		})
	}
}
