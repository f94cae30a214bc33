package middleware_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"snowgate/middleware"
)

// TestFramingFieldsAreHidden shows why Framing closes connections whose requests may be harmless:
// net/http hides the fields that would reveal the harmful ones. If this test fails, net/http shows
// more. Framing can then keep the connection after a chunked request without a length, and refuse
// Transfer-Encoding in HTTP/1.0.
func TestFramingFieldsAreHidden(t *testing.T) {
	type seen struct {
		length, coding string
		body           string
	}
	got := make(chan seen, 1)
	server := httptest.NewServer(middleware.Framing()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Header.Get("Content-Length"), r.Header.Get("Transfer-Encoding"), string(body)}
	})))
	defer server.Close()
	const chunks = "5\r\nhello\r\n0\r\n\r\n"
	for _, test := range []struct {
		why, head, body string
		want            seen
	}{
		{"the length beside chunks", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", chunks, seen{body: "hello"}},
		{"chunks alone look the same", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", chunks, seen{body: "hello"}},
		{"the coding in HTTP/1.0", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", chunks, seen{}},
		{"none in HTTP/1.0 looks the same", "POST / HTTP/1.0\r\nHost: h\r\n\r\n", "", seen{}},
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, test.head+test.body); err != nil {
			t.Fatal(err)
		}
		if saw := <-got; saw != test.want {
			t.Errorf("%s: the handler sees %+v, want %+v", test.why, saw, test.want)
		}
		_, _ = io.ReadAll(conn) // until the gateway closes the connection
		conn.Close()
	}
}
