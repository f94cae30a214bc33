package integration_test

import (
	"bytes"
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"snowgate/integration/gatewaytest"
)

// askFields sends one request over HTTP/2, its fields as they are, and returns the
// status of the response; 0 says that the stream or the connection was reset.
func askFields(t *testing.T, g *gatewaytest.Gateway, fields [][2]string) int {
	t.Helper()
	conn := g.Dial()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	_ = framer.WriteSettings()
	(&stream{fields: fields}).write(framer, hpack.NewEncoder(&block), &block, 1)
	if _, err := conn.Write(out.Bytes()); err != nil {
		return 0
	}
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return 0
		}
		switch f := frame.(type) {
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return 0
		case *http2.MetaHeadersFrame:
			status, _ := strconv.Atoi(f.PseudoValue("status"))
			return status
		}
	}
}

// TestSecurityPseudoHeaders is about what HTTP/2 can say and HTTP/1.1 cannot
// (RFC 9113 §8.3.1). It is malformed: nobody is contacted, and no service gets the
// blame.
func TestSecurityPseudoHeaders(t *testing.T) {
	s := newSiteWith(t, gatewaytest.Options{Env: []string{"SNOWGATE_H2C=true"}}, `
  - {name: any, path: /any, upstreams: [$PUBLIC], public: true}
`)
	base := func(method, authority, path string, more ...[2]string) [][2]string {
		return append([][2]string{{":method", method}, {":scheme", "http"}, {":authority", authority}, {":path", path}}, more...)
	}
	good := [2]string{"authorization", "Bearer " + s.token}
	if got := askFields(t, s.Gateway, base("GET", "beside.test", "/svc/x", good)); got != http.StatusOK {
		t.Fatalf("an ordinary request = %d", got)
	}
	if protected, _ := s.settle(t, "an ordinary request"); len(protected) != 1 {
		t.Fatalf("the service received %q", protected)
	}
	tests := []struct {
		why    string
		fields [][2]string
	}{
		{"a space in the method", base("G T", "beside.test", "/public/x")},
		{"a whole request line in the method", base("GET /svc/x HTTP/1.1\r\nHost: beside.test\r\n\r\nGET", "beside.test", "/public/x")},
		{"NUL in the method", base("GET\x00", "any.test", "/any/x")},
		{"a space in the query", base("GET", "beside.test", "/public/x? HTTP/1.1")},
		{"line ends in the path", base("GET", "beside.test", "/public/x HTTP/1.1\r\nHost: below.test\r\nX: y")},
		{"line ends in the query", base("GET", "beside.test", "/public/x?\r\nHost: below.test")},
		{"a URL as the path", base("GET", "beside.test", "http://below.test/public/x")},
		{"a Host that differs", base("GET", "beside.test", "/public/x", [2]string{"host", "below.test"})},
		{"a Host that differs, with a token", base("GET", "beside.test", "/svc/x", good, [2]string{"host", "below.test"})},
		{"two Hosts", base("GET", "beside.test", "/public/x", [2]string{"host", "beside.test"}, [2]string{"host", "below.test"})},
		{"two Hosts and no authority", [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/any/x"}, {"host", "a.test"}, {"host", "b.test"}}},
		{"no host at all", [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/any/x"}}},
		{"two paths", append([][2]string{{":path", "/public/x"}}, base("GET", "beside.test", "/svc/x")...)},
		{"a path behind the fields", base("GET", "beside.test", "/public/x", [2]string{"a", "b"}, [2]string{":path", "/svc/x"})},
		{"userinfo in the authority", base("GET", "evil@beside.test", "/public/x")},
		{"a field name with a line end", base("GET", "beside.test", "/public/x", [2]string{"a\r\nx-snowgate-client", "forged"})},
		{"a field value with a line end", base("GET", "beside.test", "/public/x", [2]string{"a", "b\r\nx-snowgate-client: forged"})},
		{"a connection field", base("GET", "beside.test", "/public/x", [2]string{"connection", "x-request-id"})},
		{"a coding", base("POST", "beside.test", "/public/x", [2]string{"transfer-encoding", "chunked"})},
		{"an extended CONNECT", append([][2]string{{":protocol", "websocket"}}, base("CONNECT", "beside.test", "/public/x")...)},
	}
	for _, test := range tests {
		if got := askFields(t, s.Gateway, test.fields); got != 0 && got != http.StatusBadRequest && got != http.StatusMethodNotAllowed {
			t.Errorf("%s = %d, want 400, 405 or a reset", test.why, got)
		}
		s.untouched(t, test.why)
	}
	if failures := s.Metrics().Sum("snowgate_replica_failures_total"); failures != 0 {
		t.Errorf("services were blamed %v times", failures)
	}
}
