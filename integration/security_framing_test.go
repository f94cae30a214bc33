package integration_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"snowgate/integration/gatewaytest"
)

// smuggled is a request that is never sent as one: it hides behind the framing of
// another. Where it shows up, something took a body for a request.
const smuggled = "GET /svc/smuggled HTTP/1.1\r\nHost: beside.test\r\nX-Smuggled: 1\r\nConnection: close\r\n\r\n"

// wantNotSmuggled ends a case: nothing behind the first request was served with
// its identity, and at most the first request reached the service.
func (s *site) wantNotSmuggled(t *testing.T, what string, responses []gatewaytest.Response) {
	t.Helper()
	for i, response := range responses {
		if i > 0 && response.StatusCode == http.StatusOK {
			t.Errorf("%s: answer %d = 200", what, i+1)
		}
	}
	protected, public := s.settle(t, what)
	for _, raw := range slices.Concat(protected, public) {
		if head, _, _ := strings.Cut(raw, "\r\n\r\n"); strings.HasPrefix(raw, "GET /svc/smuggled") || strings.Contains(head, "X-Smuggled") {
			t.Errorf("%s: the service received a smuggled request: %q", what, raw)
		}
	}
	// The request of an earlier case may arrive late, because its body was broken off. It has an id
	// of its own, and must not come twice either.
	var fresh []string
	for _, raw := range protected {
		id := strings.Join(gatewaytest.Header(raw, "X-Request-Id"), ",")
		if s.delivered[id] {
			t.Errorf("%s: the service received the request %s twice: %q", what, id, raw)
		}
		s.delivered[id] = true
		if !s.answered[id] {
			fresh = append(fresh, raw)
		}
	}
	if len(fresh) > 1 {
		t.Errorf("%s: the service received %d requests, want 1 at most: %q", what, len(fresh), fresh)
	}
	for _, response := range responses {
		s.answered[response.Header.Get("X-Request-Id")] = true
	}
}

// TestSecurityLengths frames a request in ways that two servers read differently.
// It is refused, or its one reading is forwarded and the connection closed.
func TestSecurityLengths(t *testing.T) {
	s := newSite(t, "")
	const chunked = "Transfer-Encoding: chunked"
	tests := []struct {
		lines, body string
		want        []int // statuses of the first request; 200 only where there is one reading
		why         string
	}{
		{"Content-Length: 6\r\n" + chunked, "0\r\n\r\nX", []int{200, 400}, "CL.TE: who goes by the length takes X for the body"},
		{chunked + "\r\nContent-Length: 6", "0\r\n\r\nX", []int{200, 400}, "in the other order"},
		{"Content-Length: 4\r\n" + chunked, "5\r\nhello\r\n0\r\n\r\n", []int{200, 400}, "TE.CL: the length ends within the first chunk"},
		{"Content-Length: 5\n" + chunked, "0\r\n\r\n", []int{200, 400}, "with a bare LF between them"},
		{"Content-Length: 5\r\nContent-Length: 6", "helloX", []int{400}, "two lengths"},
		{"Content-Length: 6\r\nContent-Length: 5", "helloX", []int{400}, "two lengths, the longer one first"},
		{"Content-Length: 5\r\ncontent-length: 0", "hello", []int{400}, "in two spellings"},
		{"Content-Length: 5, 6", "helloX", []int{400}, "two lengths in a list"},
		{"Content-Length: 5\r\nContent-Length: 5", "hello", []int{200, 400}, "the same twice (RFC 9112 §6.3 leaves the choice); one arrives"},
		{"Content-Length: 5, 5", "hello", []int{200, 400}, "the same twice in a list"},
		{"Content-Length: +5", "hello", []int{400}, "a sign is no digit"},
		{"Content-Length: -5", "hello", []int{400}, "a negative length"},
		{"Content-Length: -0", "", []int{400}, "a negative zero"},
		{"Content-Length: 0x5", "hello", []int{400}, "hexadecimal"},
		{"Content-Length: 5.0", "hello", []int{400}, "a fraction"},
		{"Content-Length: 5e0", "hello", []int{400}, "an exponent"},
		{"Content-Length: 5 5", "hello", []int{400}, "two words"},
		{"Content-Length: 5;x", "hello", []int{400}, "a parameter"},
		{"Content-Length: \"5\"", "hello", []int{400}, "quotes"},
		{"Content-Length: five", "hello", []int{400}, "a word"},
		{"Content-Length: \xd9\xa5", "hello", []int{400}, "an Arabic five"},
		{"Content-Length: 5_0", "hello", []int{400}, "an underscore"},
		{"Content-Length: 18446744073709551621", "hello", []int{400}, "2^64 + 5"},
		{"Content-Length: 99999999999999999999999", "hello", []int{400}, "more than anybody counts"},
		{"Content-Length : 5", "hello", []int{400}, "a space before the colon"},
		{"Content-Length:", "", []int{200, 400}, "empty: no length or an error, and no body in either case"},
		{"Content_Length: 5", "", []int{200}, "another spelling is another field; no body"},
		{"Transfer-Encoding: identity", "hello", []int{400, 501}, "an encoding that was abolished"},
		{"Transfer-Encoding: gzip", "hello", []int{400, 501}, "one that we do not know"},
		{"Transfer-Encoding: gzip, chunked", "0\r\n\r\n", []int{400, 501}, "with chunked as the last"},
		{"Transfer-Encoding: chunked, gzip", "0\r\n\r\n", []int{400, 501}, "with chunked as the first"},
		{"Transfer-Encoding: chunked, chunked", "0\r\n\r\n", []int{400, 501}, "chunked twice"},
		{"Transfer-Encoding: chunked, identity", "0\r\n\r\n", []int{400, 501}, "with identity"},
		{chunked + "\r\n" + chunked, "0\r\n\r\n", []int{400, 501}, "on two lines"},
		{chunked + "\r\nTransfer-Encoding: x", "0\r\n\r\n", []int{400, 501}, "with something else on the second"},
		{"Transfer-Encoding: x\r\n" + chunked, "0\r\n\r\n", []int{400, 501}, "on the first"},
		{"Transfer-Encoding: xchunked", "0\r\n\r\n", []int{400, 501}, "one letter more"},
		{"Transfer-Encoding: chunked;x", "0\r\n\r\n", []int{400, 501}, "a parameter"},
		{"Transfer-Encoding: \"chunked\"", "0\r\n\r\n", []int{400, 501}, "quotes"},
		{"Transfer-Encoding: \x0bchunked", "0\r\n\r\n", []int{400, 501}, "a vertical tab"},
		{"Transfer-Encoding: chunked\x00", "0\r\n\r\n", []int{400, 501}, "NUL"},
		{"Transfer-Encoding:", "0\r\n\r\n", []int{400, 501}, "empty"},
		{"Transfer-Encoding : chunked", "0\r\n\r\n", []int{400}, "a space before the colon"},
		{"Transfer-Encoding\r\n : chunked", "0\r\n\r\n", []int{400}, "folded before the colon"},
		{"X: y\r\n Transfer-Encoding: chunked", "", []int{200, 400}, "folded into another field: no coding"},
		{"Transfer_Encoding: chunked", "", []int{200}, "another spelling is another field; no body"},
		{"Transfer.Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n", []int{200}, "another spelling beside a length"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("POST with %q (%s)", test.lines, test.why)
		text := "POST /svc/first HTTP/1.1\r\nHost: beside.test\r\n" + bearer(s.token) + "\r\n" + test.lines + "\r\n\r\n" + test.body
		responses, closed := s.Conversation(text+smuggled, 3)
		if len(responses) == 0 || !slices.Contains(test.want, responses[0].StatusCode) {
			t.Errorf("%s = %v, want %v", what, statuses(responses), test.want)
		}
		if !closed || len(responses) > 2 {
			t.Errorf("%s: %d answers, closed = %v; want the connection closed", what, len(responses), closed)
		}
		if strings.Contains(test.lines, chunked) && strings.Contains(test.lines, "Content-Length") && len(responses) > 1 {
			t.Errorf("%s: the next request is answered, want the connection closed (RFC 9112 §6.1)", what)
		}
		s.wantNotSmuggled(t, what, responses)
	}
}

func statuses(responses []gatewaytest.Response) []int {
	var list []int
	for _, response := range responses {
		list = append(list, response.StatusCode)
	}
	return list
}

// TestSecurityChunks breaks the chunked coding. The service may have received the
// beginning of the request; what it has received never ends like a whole one.
func TestSecurityChunks(t *testing.T) {
	s := newSite(t, "")
	tests := []struct{ body, why string }{
		{"5\nhello\r\n0\r\n\r\n", "a bare LF behind a size"},
		{"5\r\nhello\n0\r\n\r\n", "a bare LF behind the data"},
		{"5;x\nhello\r\n0\r\n\r\n", "a bare LF behind an extension"},
		{"5;x=\"\n\"\r\nhello\r\n0\r\n\r\n", "a bare LF in a quoted extension"},
		{"5\r\nhello\r\n0\n\r\n", "a bare LF behind the last size"},
		{"5\nhello\n0\n\n", "bare LFs everywhere"},
		{"5\rhello\r\n0\r\n\r\n", "a bare CR"},
		{"5\r\r\nhello\r\n0\r\n\r\n", "a CR too many"},
		{"+5\r\nhello\r\n0\r\n\r\n", "a sign"},
		{"-5\r\nhello\r\n0\r\n\r\n", "a negative size"},
		{"0x5\r\nhello\r\n0\r\n\r\n", "a prefix"},
		{"5h\r\nhello\r\n0\r\n\r\n", "a suffix"},
		{"5_0\r\nhello\r\n0\r\n\r\n", "an underscore"},
		{"5, 5\r\nhello\r\n0\r\n\r\n", "a list"},
		{"\r\nhello\r\n0\r\n\r\n", "no size"},
		{";x\r\nhello\r\n0\r\n\r\n", "an extension alone"},
		{"g\r\nhello\r\n0\r\n\r\n", "no digit"},
		{"10000000000000005\r\nhello\r\n0\r\n\r\n", "2^64 + 5"},
		{"00000000000000000000005\r\nhello\r\n0\r\n\r\n", "more digits than 64 bits have"},
		{"5\r\nhelloX\r\n0\r\n\r\n", "data longer than the size says"},
		{"5\r\nhell\r\n0\r\n\r\n", "data shorter than the size says"},
		{"5\r\nhello0\r\n\r\n", "no line end behind the data"},
		{"5;" + strings.Repeat("x", 20<<10) + "\r\nhello\r\n0\r\n\r\n", "an extension of 20 KiB"},
		{strings.Repeat("1;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\na\r\n", 2000) + "0\r\n\r\n", "more extensions than data"},
		{"5\r\nhello\r\n0\r\nX : y\r\n\r\n", "a malformed trailer"},
		{"5\r\nhello\r\n0\r\n" + strings.Repeat("X-A: b\r\n", 20_000) + "\r\n", "a trailer of 160 KB"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("the chunks %.60q (%s)", test.body, test.why)
		text := "POST /svc/first HTTP/1.1\r\nHost: beside.test\r\n" + bearer(s.token) + "\r\nTransfer-Encoding: chunked\r\n\r\n" + test.body
		responses, closed := s.Conversation(text+smuggled, 3)
		if len(responses) > 1 || !closed {
			t.Errorf("%s = %v, closed = %v; want one answer and the connection closed", what, statuses(responses), closed)
		}
		s.wantNotSmuggled(t, what, responses)
	}
}

// TestSecurityPipelining sends whole requests one after the other on one
// connection: each is judged by what it shows itself.
func TestSecurityPipelining(t *testing.T) {
	other := gatewaytest.NewClient("other", "svc.use")
	s := newSite(t, "", other)
	first, second := bearer(s.token), bearer(s.grant(other))
	ask := func(method string, fields ...string) string {
		body := ""
		switch {
		case slices.Contains(fields, "Content-Length: 5"):
			body = "hello"
		case slices.Contains(fields, "Transfer-Encoding: chunked"):
			body = "5\r\nhello\r\n0\r\n\r\n"
		}
		return rawRequest(method, "beside.test", "/svc/x", fields, body)
	}
	tests := []struct {
		text string
		want []int // the connection may be closed before the last
		why  string
	}{
		{ask("GET", first) + ask("GET", "Connection: close"), []int{200, 401}, "the first with a token"},
		{ask("GET") + ask("GET", first) + ask("GET", "Connection: close"), []int{401, 200, 401}, "the second with a token"},
		{ask("GET", first) + ask("GET", second) + ask("GET", first, "Connection: close"), []int{200, 200, 200}, "two clients"},
		{ask("GET", first) + ask("GET", "Authorization: Bearer x") + ask("GET", second, "Connection: close"), []int{200, 401, 200}, "a bad one between them"},
		{ask("POST", first, "Content-Length: 5") + ask("GET", "Connection: close"), []int{200, 401}, "behind a body"},
		{ask("POST", first, "Transfer-Encoding: chunked") + ask("GET", "Connection: close"), []int{200, 401}, "behind chunks"},
		{ask("POST", "Content-Length: 5") + ask("GET", first, "Connection: close"), []int{401, 200}, "behind a body that nobody reads"},
		{"\r\n\r\n" + ask("GET", first, "Connection: close"), []int{200}, "behind empty lines (RFC 9112 §2.2), or an error"},
		{ask("HEAD", first) + ask("GET", "Connection: close"), []int{200, 401}, "behind an answer without a body"},
	}
	for _, test := range tests {
		responses, _ := s.Conversation(test.text, len(test.want)+1)
		got := statuses(responses)
		whole := slices.Equal(got, test.want)
		cut := len(got) < len(test.want) && slices.Equal(got, test.want[:len(got)]) && strings.Contains(test.text, "POST")
		if !whole && !cut && !strings.HasPrefix(test.text, "\r\n") {
			t.Errorf("%s = %v, want %v", test.why, got, test.want)
		}
		judged := 0
		for _, status := range got {
			if status == http.StatusOK {
				judged++
			}
		}
		if protected, _ := s.settle(t, test.why); len(protected) != judged {
			t.Errorf("%s: the service received %d requests, want %d", test.why, len(protected), judged)
		}
	}
}

// TestSecurityUnreadBodies hides a request with a good token in the body of one
// that is answered before its body is read. The body is never a request.
func TestSecurityUnreadBodies(t *testing.T) {
	s := newSite(t, `
  - {name: small, host: other.test, path: /small, upstreams: [$PUBLIC], public: true, max_body: 1KiB}
  - {name: reading, host: other.test, path: /reading, upstreams: [$PUBLIC], public: true, methods: [GET]}
  - {name: dead, host: other.test, path: /dead, upstreams: [`+gatewaytest.ClosedPort(t)+`], public: true}
`)
	hidden := rawGet("beside.test", "/svc/smuggled", bearer(s.token), "X-Smuggled: 1")
	tests := []struct {
		host, target string
		fields       []string
		want         []int
		why          string
	}{
		{"beside.test", "/svc/x", nil, []int{401}, "no token"},
		{"beside.test", "/svc/x", []string{bearer("x")}, []int{401}, "a bad token"},
		{"beside.test", "/svc/x", []string{bearer("x"), bearer("y")}, []int{400}, "two tokens"},
		{"beside.test", "/none", nil, []int{404}, "no route"},
		{"none.test", "/svc", nil, []int{404}, "no host"},
		{"beside.test", "/svc//x", nil, []int{400}, "no canonical target"},
		{"beside.test", "/livez", nil, []int{405}, "an endpoint that takes no POST"},
		{"beside.test", "/oauth2/nothing", nil, []int{404}, "no endpoint"},
		{"beside.test", "/oauth2/token", nil, []int{400, 401, 413}, "an endpoint that refuses the form"},
		{"other.test", "/reading", nil, []int{405}, "a method that the route does not allow"},
		{"other.test", "/small", nil, []int{200, 413}, "a body that is too large, or just fits"},
		{"other.test", "/dead", nil, []int{502}, "no service"},
		{"beside.test", "/svc/x", []string{"Expect: 100-continue"}, []int{401}, "a body that nobody asked for"},
		{"beside.test", "/svc/x", []string{"Expect: something"}, []int{401, 417}, "an unknown expectation"},
	}
	for _, test := range tests {
		for _, padding := range []int{0, 2 << 10, 300 << 10} { // read and thrown away; or too much for that
			body := hidden + strings.Repeat("x", padding)
			for name, framed := range map[string]string{
				"a length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
				"chunks":   fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
			} {
				what := fmt.Sprintf("%s, with %s and %d bytes", test.why, name, len(body))
				head := strings.TrimSuffix(rawRequest(http.MethodPost, test.host, test.target, test.fields, ""), "\r\n")
				responses, closed := s.Conversation(head+framed+rawGet("beside.test", "/svc/second"), 4)
				// A reset may overtake the response to a body that nobody reads.
				if len(responses) == 0 && padding < 300<<10 || len(responses) > 0 && !slices.Contains(test.want, responses[0].StatusCode) {
					t.Errorf("%s = %v, want %v", what, statuses(responses), test.want)
				}
				if !closed {
					t.Errorf("%s: the connection stays open", what)
				}
				if len(responses) > 2 || len(responses) == 2 && responses[1].StatusCode != http.StatusUnauthorized {
					t.Errorf("%s = %v, want the second request judged by itself", what, statuses(responses))
				}
				s.wantNotSmuggled(t, what, responses)
			}
		}
	}
}

// TestSecurityMethodsAndVersions sends request lines that are refused.
func TestSecurityMethodsAndVersions(t *testing.T) {
	s := newSite(t, "")
	refused := []int{400, 405, 501, 505}
	tests := []struct{ line, why string }{
		{"TRACE /svc/x HTTP/1.1", "TRACE repeats credentials to whoever asks"},
		{"TRACE /public/x HTTP/1.1", "on a public route, too"},
		{"CONNECT beside.test:80 HTTP/1.1", "CONNECT is for forward proxies"},
		{"CONNECT /svc/x HTTP/1.1", "with a path"},
		{"CONNECT /public/x HTTP/1.1", "with a public path"},
		{"CONNECT http://beside.test/public HTTP/1.1", "with a URL"},
		{"OPTIONS * HTTP/1.1", "the asterisk-form names no service"},
		{"G(T /public HTTP/1.1", "a method that is no token"},
		{"GE\tT /public HTTP/1.1", "a tab"},
		{" /public HTTP/1.1", "no method"},
		{"GET /public", "HTTP/0.9"},
		{"GET /public HTTP", "no version"},
		{"GET /public HTTP/1", "half a version"},
		{"GET /public HTTP/1.1x", "something behind it"},
		{"GET /public HTTP/1.10", "two digits"},
		{"GET /public HTTP/2.0", "HTTP/2 is not spoken so"},
		{"GET /public HTTP/3.0", "nor HTTP/3"},
		{"GET /public HTTP/0.9", "nor HTTP/0.9"},
		{"GET /public http/1.1", "the name is in capitals"},
		{"GET  /public HTTP/1.1", "two spaces"},
		{"GET /public  HTTP/1.1", "two spaces"},
		{"GET\t/public\tHTTP/1.1", "tabs"},
		{"PRI * HTTP/2.0", "the preface of HTTP/2 (RFC 9113 §3.4), where it is not turned on"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("%q (%s)", test.line, test.why)
		text := test.line + "\r\nHost: beside.test\r\n" + bearer(s.token) + "\r\nConnection: close\r\n\r\n"
		got := s.Exchange(text)
		if got.StatusCode != 0 && !slices.Contains(refused, got.StatusCode) { // 0: closed without a response
			t.Errorf("%s = %d, want one of %v", what, got.StatusCode, refused)
		}
		if strings.Contains(got.Body, s.token) {
			t.Errorf("%s: the answer repeats the token", what)
		}
		s.untouched(t, what)
	}
	s.checkFreeMethods(t)
}

// checkFreeMethods sends methods that nobody knows. They are case-sensitive and
// free (RFC 9110 §9.1); a route without methods lets through all but CONNECT and
// TRACE.
func (s *site) checkFreeMethods(t *testing.T) {
	t.Helper()
	for _, method := range []string{"PROPFIND", "X-Y", "GETT", "QUERY", "get"} {
		got := s.Exchange(rawRequest(method, "beside.test", "/svc/x", []string{bearer(s.token), "Connection: close"}, ""))
		if protected, _ := s.settle(t, method); got.StatusCode != http.StatusOK || len(protected) != 1 || !strings.HasPrefix(protected[0], method+" ") {
			t.Errorf("%s = %d, want 200; the service received %q", method, got.StatusCode, protected)
		}
		got = s.Exchange(rawRequest(method, "beside.test", "/svc/x", []string{"Connection: close"}, ""))
		if got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a token = %d, want 401", method, got.StatusCode)
		}
		s.untouched(t, method+" without a token")
	}
	for _, method := range []string{"trace", "connect", "TRACK"} { // near those that are refused: either way, but never unjudged
		s.Exchange(rawRequest(method, "beside.test", "/svc/x", []string{"Connection: close"}, ""))
		s.untouched(t, method+" without a token")
	}
}

// TestSecurityLimits goes to the limits of header and form, and one step beyond.
func TestSecurityLimits(t *testing.T) {
	s := newSite(t, "")
	fill := func(size int) string { return "X-Fill: " + strings.Repeat("x", size) }
	tests := []struct {
		name   string
		fields []string
		want   int
		why    string
	}{
		{"30 KiB in one field", []string{fill(30 << 10)}, 200, "within 32 KiB"},
		{"30 KiB in many", slices.Repeat([]string{fill(90)}, 300), 200, "within 32 KiB"},
		{"34 KiB in one field", []string{fill(34 << 10)}, 431, "beyond"},
		{"34 KiB in many", slices.Repeat([]string{fill(90)}, 350), 431, "beyond"},
		{"1 MiB in one field", []string{fill(1 << 20)}, 431, "far beyond"},
		{"400 short fields", slices.Repeat([]string{"A:"}, 400), 200, "within 500 lines"},
		{"2000 short fields", slices.Repeat([]string{"A:"}, 2000), 431, "beyond, in 10 KiB"},
		{"many short fields", slices.Repeat([]string{"A:"}, 20_000), 431, "far beyond, with the largest overhead"},
	}
	for _, test := range tests {
		for _, path := range []string{"/svc/x", "/public/x"} {
			got := s.Exchange(rawGet("beside.test", path, slices.Concat([]string{bearer(s.token)}, test.fields)...))
			// A client that sends much more than is read may be reset before the response.
			if got.StatusCode != test.want && (test.want == http.StatusOK || got.StatusCode != 0) {
				t.Errorf("GET %s with %s = %d, want %d (%s)", path, test.name, got.StatusCode, test.want, test.why)
			}
			if test.want == http.StatusOK {
				s.settle(t, test.name)
				continue
			}
			s.untouched(t, test.name)
		}
	}
	long := "/public/" + strings.Repeat("x", 40<<10)
	if got := s.Exchange(rawGet("beside.test", long)); got.StatusCode != http.StatusRequestHeaderFieldsTooLarge && got.StatusCode != 414 {
		t.Errorf("a target of 40 KiB = %d, want 431 or 414", got.StatusCode)
	}
	s.untouched(t, "a long target")
}

// TestSecurityUpgrade asks for other protocols. Only a WebSocket, on a route that
// allows it, with a token, ever becomes one.
func TestSecurityUpgrade(t *testing.T) {
	s := newSite(t, `
  - {name: ws, host: ws.test, path: /svc, upstreams: [$PROTECTED], scopes: [svc.use], websocket: true}
  - {name: ws-public, host: ws.test, path: /public, upstreams: [$PUBLIC], public: true, websocket: true}
`)
	tests := []struct {
		host    string
		method  string
		fields  []string
		arrives bool // Upgrade: websocket
		why     string
	}{
		{"ws.test", "GET", []string{"Upgrade: websocket", "Connection: Upgrade"}, true, "a WebSocket where it is allowed"},
		{"ws.test", "GET", []string{"Upgrade: WebSocket", "Connection: keep-alive, upgrade"}, true, "in other letters"},
		{"beside.test", "GET", []string{"Upgrade: websocket", "Connection: Upgrade"}, false, "where it is not"},
		{"ws.test", "POST", []string{"Upgrade: websocket", "Connection: Upgrade"}, false, "with another method (RFC 6455 §4.1)"},
		{"ws.test", "GET", []string{"Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"}, false, "HTTP/2, behind which nobody would judge"},
		{"ws.test", "GET", []string{"Upgrade: websocket, h2c", "Connection: Upgrade"}, false, "a choice"},
		{"ws.test", "GET", []string{"Upgrade: h2c, websocket", "Connection: Upgrade"}, false, "in the other order"},
		{"ws.test", "GET", []string{"Upgrade: websocket", "Upgrade: h2c", "Connection: Upgrade"}, false, "on two lines"},
		{"ws.test", "GET", []string{"Upgrade: h2c", "Upgrade: websocket", "Connection: Upgrade"}, false, "in the other order"},
		{"ws.test", "GET", []string{"Upgrade: websocket/13", "Connection: Upgrade"}, false, "with a version"},
		{"ws.test", "GET", []string{"Upgrade: TLS/1.0", "Connection: Upgrade"}, false, "TLS"},
		{"ws.test", "GET", []string{"Upgrade: HTTP/2.0", "Connection: Upgrade"}, false, "HTTP/2 by its name"},
		{"ws.test", "GET", []string{"Upgrade: websocket"}, false, "without Connection"},
		{"ws.test", "GET", []string{"Connection: Upgrade"}, false, "without Upgrade"},
		{"ws.test", "GET", []string{"Upgrade_: websocket", "Connection: Upgrade"}, false, "in another spelling"},
		{"beside.test", "GET", []string{"Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: x"}, false, "HTTP/2 on an ordinary route"},
	}
	for _, test := range tests {
		what := fmt.Sprintf("%s %q (%s)", test.method, test.fields, test.why)
		for _, target := range []string{"/svc/x", "/public/x"} {
			ask := rawRequest(test.method, test.host, target, slices.Concat([]string{bearer(s.token)}, test.fields), "")
			// The service declines; what follows is another request, not a tunnel.
			responses, closed := s.Conversation(ask+smuggled, 3)
			if len(responses) == 0 || responses[0].StatusCode != http.StatusOK && responses[0].StatusCode != http.StatusBadRequest || !closed {
				t.Errorf("%s = %v", what, statuses(responses))
			}
			for _, raw := range slices.Concat(s.protected.Requests(), s.public.Requests()) {
				upgrade := gatewaytest.Header(raw, "Upgrade")
				if test.arrives != (len(upgrade) == 1) || len(upgrade) > 1 || len(upgrade) == 1 && !strings.EqualFold(upgrade[0], "websocket") ||
					len(gatewaytest.Header(raw, "HTTP2-Settings")) > 0 || test.arrives != (len(gatewaytest.Header(raw, "Connection")) == 1) {
					t.Errorf("%s arrives as %q", what, raw)
				}
			}
			s.wantNotSmuggled(t, what, responses)
		}
		if test.host == "ws.test" {
			got := s.Exchange(rawRequest(test.method, test.host, "/svc/x", append(slices.Clone(test.fields), "Connection: close"), ""))
			if got.StatusCode != http.StatusUnauthorized && got.StatusCode != http.StatusBadRequest {
				t.Errorf("%s without a token = %d, want 401", what, got.StatusCode)
			}
			s.untouched(t, what+" without a token")
		}
	}
}

// TestSecurityTunnel opens WebSockets at services that keep to the protocol and at
// some that do not.
func TestSecurityTunnel(t *testing.T) {
	services := map[string]string{ // by name: what they answer
		"good":    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Snowgate-Client: leaked\r\nKeep-Alive: x\r\n\r\n",
		"other":   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
		"silent":  "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"several": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket, h2c\r\nConnection: Upgrade\r\n\r\n",
	}
	var routes string
	for name, response := range services {
		service := gatewaytest.NewService(t, func(conn net.Conn, in io.Reader, _ *http.Request) bool {
			_, _ = io.WriteString(conn, response)
			_, _ = io.Copy(conn, in) // an echo
			return false
		})
		routes += fmt.Sprintf(`
  - {name: %[1]s, host: %[1]s.test, path: /, upstreams: [%[2]s], scopes: [svc.use], websocket: true}
  - {name: %[1]s-plain, host: plain-%[1]s.test, path: /, upstreams: [%[2]s], scopes: [svc.use]}`, name, service.URL)
	}
	s := newSite(t, routes+"\n")
	upgrade := []string{bearer(s.token), "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	for name := range services {
		for _, host := range []string{name + ".test", "plain-" + name + ".test"} {
			if host == "good.test" {
				continue
			}
			if got := s.Exchange(rawRequest(http.MethodGet, host, "/x", upgrade, "")); got.StatusCode != http.StatusBadGateway {
				t.Errorf("an upgrade at %s = %d, want 502", host, got.StatusCode)
			}
			if got := s.Exchange(rawGet(host, "/x", bearer(s.token))); got.StatusCode != http.StatusBadGateway {
				t.Errorf("an upgrade at %s that nobody asked for = %d, want 502", host, got.StatusCode)
			}
			s.settle(t, host)
		}
	}
	conn := s.Dial()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, rawRequest(http.MethodGet, "good.test", "/x", upgrade, "")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("a WebSocket = %v %v, want 101", response, err)
	}
	defer response.Body.Close()
	if response.Header.Get("X-Snowgate-Client") != "" || response.Header.Get("Keep-Alive") != "" {
		t.Errorf("the answer to a WebSocket has %v", response.Header)
	}
	if _, err := io.WriteString(conn, smuggled); err != nil { // now it is nothing but bytes
		t.Fatal(err)
	}
	echo := make([]byte, len(smuggled))
	if _, err := io.ReadFull(in, echo); err != nil || string(echo) != smuggled {
		t.Errorf("the tunnel echoes %q %v", echo, err)
	}
	s.settle(t, "a WebSocket")
}

// TestSecuritySlowClients keeps connections open with as little as possible. They
// are closed in time, and others are served meanwhile.
func TestSecuritySlowClients(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t, "")
	// limit is over the 10 s that a header or a form may take.
	const limit, pace = 14 * time.Second, 250 * time.Millisecond
	form := "POST /oauth2/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
	tests := map[string]struct{ begin, drip string }{
		"nothing at all":                {"", ""},
		"half a request line":           {"GET /sv", ""},
		"a header without end":          {"GET /public HTTP/1.1\r\nHost: beside.test\r\n", "X: y\r\n"},
		"a header, letter by letter":    {"GET /public HTTP/1.1\r\nHost: beside.test\r\nX: ", "y"},
		"empty lines":                   {"", "\r\n"},
		"half a form":                   {form + "Content-Length: 1000\r\n\r\ngrant_type=", ""},
		"a form, letter by letter":      {form + "Content-Length: 1000\r\n\r\ngrant_type=", "x"},
		"a form in chunks without end":  {form + "Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"},
		"a form that was never begun":   {form + "Content-Length: 5\r\n\r\n", ""},
		"a form that was never asked":   {form + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", ""},
		"a body to a place that is not": {"POST /none HTTP/1.1\r\nHost: beside.test\r\nContent-Length: 1000\r\n\r\n", ""},
		"a body without a token":        {"POST /svc HTTP/1.1\r\nHost: beside.test\r\nContent-Length: 1000\r\n\r\n", ""},
		"chunks without a token":        {"POST /svc HTTP/1.1\r\nHost: beside.test\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n"},
		"a body with a bad target":      {"POST /svc//x HTTP/1.1\r\nHost: beside.test\r\nContent-Length: 1000\r\n\r\n", "x"},
		"a body to a probe":             {"POST /readyz HTTP/1.1\r\nHost: beside.test\r\nContent-Length: 1000\r\n\r\n", ""},
		"a body to no endpoint":         {"POST /oauth2/nothing HTTP/1.1\r\nHost: beside.test\r\nContent-Length: 1000\r\n\r\n", ""},
	}
	ended := make(chan string)
	for name, test := range tests {
		go func() { ended <- s.drip(name, test.begin, test.drip, limit, pace) }()
	}
	for running := len(tests); running > 0; {
		select {
		case fault := <-ended:
			running--
			if fault != "" {
				t.Error(fault)
			}
		case <-time.After(pace):
			s.untouched(t, "slow clients")
		}
	}
	s.untouched(t, "slow clients")
}

// drip writes begin and then drip at that pace until the gateway closes the
// connection. It returns what is wrong.
func (s *site) drip(name, begin, drip string, limit, pace time.Duration) string {
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	started := time.Now()
	if _, err := io.WriteString(conn, begin); err != nil {
		return name + ": " + err.Error()
	}
	var got strings.Builder
	buffer := make([]byte, 4<<10)
	for time.Since(started) < limit {
		_ = conn.SetReadDeadline(time.Now().Add(pace))
		n, err := conn.Read(buffer)
		got.Write(buffer[:n])
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			if status := gatewaytest.Status(got.String()); status == http.StatusOK {
				return name + " = " + strconv.Itoa(status)
			}
			return ""
		}
		if _, err := io.WriteString(conn, drip); err != nil {
			return "" // it was closed
		}
	}
	return fmt.Sprintf("%s: the connection is open after %v", name, limit)
}
