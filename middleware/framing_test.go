package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"snowgate/internal/request/exchange"
	"snowgate/middleware"
)

// output counts the calls of Linger.
type output int

func (o *output) Linger() { *o++ }

// TestFramingLingers: when Framing closes a connection because of Transfer-Encoding, the client can
// still read its response, whatever it sent after the request.
func TestFramingLingers(t *testing.T) {
	for _, test := range []struct {
		minor  int
		coding []string
		want   bool
	}{{1, []string{"chunked"}, true}, {0, nil, true}, {1, nil, false}} {
		var told output
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))
		r.ProtoMinor, r.TransferEncoding = test.minor, test.coding
		r = r.WithContext(&exchange.Connection{Context: r.Context(), Output: &told})
		w := httptest.NewRecorder()
		middleware.Framing()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
		if closes := w.Header().Get("Connection") == "close"; closes != test.want || (told == 1) != test.want {
			t.Errorf("HTTP/1.%d with %q: closes %v, told to linger %d times", test.minor, test.coding, closes, told)
		}
	}
}
