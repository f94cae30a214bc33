package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"snowgate/internal/request/exchange"
	"snowgate/middleware"
)

// output counts how often it is told to linger.
type output int

func (o *output) Linger() { *o++ }

// TestFramingLingers: a connection that is closed because of a Transfer-Encoding lets the client
// read its response, whatever it has sent behind the request.
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
