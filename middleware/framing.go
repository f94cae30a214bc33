package middleware

import (
	"net/http"

	"snowgate/internal/request/exchange"
)

// Framing closes the connection after every HTTP/1.1 request with Transfer-Encoding. RFC 9112 §6.1
// demands that for a request that also has a Content-Length, the classic form of request smuggling.
// net/http frames such a request by its Transfer-Encoding alone and hides the Content-Length, so
// Framing cannot tell the harmless requests apart.
//
// The client may have sent more requests by then. The server reads them without a response, so that
// the response before them arrives.
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
