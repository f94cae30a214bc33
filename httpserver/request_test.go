package httpserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// What a test of a request wants.
const (
	here = "here" // it is served here
	left = "left" // to net/http, whatever that makes of it
	more = "more" // it is not whole
)

const (
	browser = "Host: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n" +
		"Accept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\nCookie: session=38afes7a8; theme=\"dark\"\r\n" +
		"Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: none\r\n" +
		"Sec-Fetch-User: ?1\r\nPriority: u=0, i\r\n\r\n"
	chrome = "Host: shop.example:8443\r\nConnection: keep-alive\r\nsec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n" +
		"sec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\nUser-Agent: Mozilla/5.0 AppleWebKit/537.36\r\n" +
		"Content-Type: application/json;charset=UTF-8\r\nContent-Length: 15\r\nReferer: https://shop.example/?q=a&b=%20c#top\r\n" +
		"Origin: https://shop.example\r\n\r\n{\"hello\":\"you\"}"
)

var requests = []struct{ raw, want, why string }{
	// What clients send every day.
	{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", here, "the least"},
	{"GET /api/items?limit=5 HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n", here, "curl"},
	{"POST /t HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\nContent-Length: 5\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\na=b&c", here, "curl with data"},
	{"GET /a HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n", here, "Go"},
	{"PUT /a HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 2\r\nAuthorization: Bearer sg_v1.e30.x-_~+/=\r\nAccept-Encoding: gzip\r\n\r\nok", here, "Go with a body"},
	{"GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: Go-http-client/1.1\r\nConnection: close\r\n\r\n", here, "Go without keep-alive"},
	{"GET / HTTP/1.1\r\n" + browser, here, "Firefox"},
	{"POST /api HTTP/1.1\r\n" + chrome, here, "Chrome"},
	{"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", here, "two at once"},
	{"GET / HTTP/1.1\r\nhost: x\r\nconnection: keep-alive\r\n\r\n", here, "lower case: wrk, node"},
	{"GET /get HTTP/1.1\r\nHost: x\r\nUser-Agent: python-requests/2.32.4\r\nAccept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n", here, "python-requests"},
	{"DELETE /x HTTP/1.1\r\nHost: x\r\nUser-Agent: python-requests/2.32.4\r\nContent-Length: 0\r\n\r\n", here, "a body of nothing"},
	{"GET /x HTTP/1.1\r\nX-Real-IP: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2\r\nX-Forwarded-Proto: https\r\nHost: x\r\nConnection: close\r\n\r\n", here, "nginx as it is set up by default"},
	{"GET /x HTTP/1.1\r\nHost: up_stream\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n", here, "nginx with keepalive, to a named upstream"},
	{"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", here, "HEAD"},
	{"OPTIONS /x HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\nAccess-Control-Request-Method: PATCH\r\n\r\n", here, "a preflight"},
	{"PATCH /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1", here, "PATCH"},
	{"POST /x HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 9\r\n\r\n--b--\r\n\r\n", here, "a body like the end of a head"},
	{"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", here, "GET with a body"},

	// Targets.
	{"GET //x HTTP/1.1\r\nHost: x\r\n\r\n", here, "no authority, but a path"},
	{"GET ///x/../. HTTP/1.1\r\nHost: x\r\n\r\n", here, "a path is not cleaned"},
	{"GET /? HTTP/1.1\r\nHost: x\r\n\r\n", here, "an empty query"},
	{"GET /?? HTTP/1.1\r\nHost: x\r\n\r\n", here, "a query that is a question mark"},
	{"GET /a?b?c? HTTP/1.1\r\nHost: x\r\n\r\n", here, "question marks"},
	{"GET /?a=b&a=%20+%zz;/?:@[]{}|\\^`\"<># HTTP/1.1\r\nHost: x\r\n\r\n", here, "a query is not looked at"},
	{"GET /a%20b/%C3%A4 HTTP/1.1\r\nHost: x\r\n\r\n", here, "percent-encoding"},
	{"GET /a%2Fb%2e HTTP/1.1\r\nHost: x\r\n\r\n", here, "percent-encoding that matters"},
	{"GET /a%2fb?c%zz HTTP/1.1\r\nHost: x\r\n\r\n", here, "the same in the query, and broken"},
	{"GET /a:b@c!$&'()*+,;=d HTTP/1.1\r\nHost: x\r\n\r\n", here, "other characters of paths"},
	{"GET /{a}|\"<b>\\^`[c]#d HTTP/1.1\r\nHost: x\r\n\r\n", here, "characters that should be encoded"},
	{"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", left, "broken percent-encoding"},
	{"GET /% HTTP/1.1\r\nHost: x\r\n\r\n", left, "half of one"},
	{"GET /ä HTTP/1.1\r\nHost: x\r\n\r\n", left, "UTF-8"},
	{"GET /a\x7f HTTP/1.1\r\nHost: x\r\n\r\n", left, "DEL"},
	{"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", left, "NUL"},
	{"GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n", left, "a tab"},
	{"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", left, "a space"},
	{"GET * HTTP/1.1\r\nHost: x\r\n\r\n", left, "an asterisk"},
	{"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", left, "an asterisk"},
	{"GET http://y/a HTTP/1.1\r\nHost: x\r\n\r\n", left, "absolute form"},
	{"GET a HTTP/1.1\r\nHost: x\r\n\r\n", left, "no path"},
	{"GET ?a HTTP/1.1\r\nHost: x\r\n\r\n", left, "a query only"},
	{"GET  HTTP/1.1\r\nHost: x\r\n\r\n", left, "no target"},

	// First lines.
	{"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", left, "a tunnel"},
	{"CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n", left, "a tunnel to a path"},
	{"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", here, "a method"},
	{"VERSION-CONTROL / HTTP/1.1\r\nHost: x\r\n\r\n", here, "a method of WebDAV"},
	{"M1 / HTTP/1.1\r\nHost: x\r\n\r\n", left, "nobody has such a method"},
	{"PRI / HTTP/1.1\r\nHost: x\r\n\r\n", left, "a method that must not be used"},
	{" / HTTP/1.1\r\nHost: x\r\n\r\n", left, "no method"},
	{"get / HTTP/1.1\r\nHost: x\r\n\r\n", left, "methods have a case"},
	{"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", left, "a tab"},
	{"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", left, "two spaces"},
	{"GET /  HTTP/1.1\r\nHost: x\r\n\r\n", left, "two spaces"},
	{"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", left, "a space at the end"},
	{" GET / HTTP/1.1\r\nHost: x\r\n\r\n", left, "a space at the beginning"},
	{"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", left, "an empty line first"},
	{"GET / HTTP/1.0\r\nHost: x\r\n\r\n", left, "HTTP/1.0"},
	{"GET / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", left, "HTTP/1.0, as of ab"},
	{"GET / HTTP/1.2\r\nHost: x\r\n\r\n", left, "a version nobody knows"},
	{"GET / HTTP/2.0\r\nHost: x\r\n\r\n", left, "HTTP/2 is another thing"},
	{"GET / http/1.1\r\nHost: x\r\n\r\n", left, "lower case"},
	{"GET / HTTP/1.1\nHost: x\r\n\r\n", left, "bare LF"},
	{"GET /\r\nHost: x\r\n\r\n", left, "HTTP/0.9"},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", left, "the preface of HTTP/2"},
	{"garbage\r\n\r\n", left, "not HTTP"},
	{"\r\n\r\n", left, "nothing"},

	// Fields.
	{"GET / HTTP/1.1\r\nHost: x\r\nX:\r\nY: \t \r\nZ:z\r\n\r\n", here, "empty values"},
	{"GET / HTTP/1.1\r\nHost: \t x \t\r\nX: \t a\t b \t\r\n\r\n", here, "space around values, and a tab within"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX-Name: Jürgen \xff\x80\r\n\r\n", here, "UTF-8, and what is not"},
	{"GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\na: 2\r\nB: 3\r\nA: 4\r\n\r\n", here, "repeated fields"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX-fOO-bAR: 1\r\nETAG: 2\r\n3d-X: 3\r\n!#$%&'*+-.^_`|~: 4\r\n-a--b: 5\r\n\r\n", here, "names of all kinds"},
	{"GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 200) + "\r\n", here, "a field often"},
	{"GET / HTTP/1.1\r\nHost: x\r\n" + manyFields(100) + "\r\n", here, "many fields"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a: b:c\r\n\r\n", here, "colons in a value"},
	{"GET / HTTP/1.1\r\nHost: x\r\nCache-Control: no-cache\r\n\r\n", here, "what a browser sends to reload"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n", left, "space before the colon"},
	{"GET / HTTP/1.1\r\nHost : x\r\n\r\n", left, "space before the colon"},
	{"GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", left, "no name"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX\r\n\r\n", left, "no colon"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX(y): z\r\n\r\n", left, "not a token"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX\xc3\xa4: z\r\n\r\n", left, "UTF-8 in a name"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", left, "a folded line"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n\tb: c\r\n\r\n", left, "a folded line like a field"},
	{"GET / HTTP/1.1\r\n Host: x\r\n\r\n", left, "a first line that goes on"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\nY: b\r\n\r\n", left, "bare LF"},
	{"GET / HTTP/1.1\r\nHost: x\n\r\n\r\n", left, "bare LF, then an empty line"},
	{"GET / HTTP/1.1\nHost: x\n\n\r\n\r\n", left, "bare LF only, and the end later"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n", left, "bare CR"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\r\n\r\n", left, "two CR"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", left, "NUL"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\x7fb\r\n\r\n", left, "DEL"},
	{"GET / HTTP/1.1\r\nHost: x\r\nX: a\x1bb\r\n\r\n", left, "ESC"},

	// The host.
	{"GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", here, "IPv6"},
	{"GET / HTTP/1.1\r\nHOST: A.Example\r\n\r\n", here, "case stays"},
	{"GET / HTTP/1.1\r\n\r\n", left, "no host"},
	{"GET / HTTP/1.1\r\nX: y\r\n\r\n", left, "no host"},
	{"GET / HTTP/1.1\r\nHost:\r\n\r\n", left, "an empty one"},
	{"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", left, "twice"},
	{"GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n", left, "two"},
	{"GET / HTTP/1.1\r\nHost:\r\nHost: y\r\n\r\n", left, "two, one of them empty"},
	{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", left, "a space"},
	{"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", left, "a path"},
	{"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", left, "a user"},
	{"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", left, "a list"},
	{"GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", left, "UTF-8"},

	// The connection.
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", here, "close"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection:  close \r\n\r\n", here, "space around it"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n", here, "case is of no matter"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n", here, "the same: Apache's clients"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: clo\u017fe\r\n\r\n", left, "an s for Unicode only"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: \u212aeep-alive\r\n\r\n", left, "a k for Unicode only"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection:\r\n\r\n", left, "nothing"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close, te\r\n\r\n", left, "a list"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: TE\r\nTE: trailers\r\n\r\n", left, "a field of the connection"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", left, "twice"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", left, "twice"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", left, "an upgrade"},
	{"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n", left, "half an upgrade"},
	{"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n", left, "HTTP/2, as curl asks for it"},
	{"GET / HTTP/1.1\r\nHost: x\r\nPragma: no-cache\r\n\r\n", here, "net/http makes another field of it"},
	{"GET / HTTP/1.1\r\nHost: x\r\nPragma: no-cache\r\nCache-Control: max-age=0\r\n\r\n", here, "unless there is one"},
	{"GET / HTTP/1.1\r\nHost: x\r\nPragma: x\r\nPragma: no-cache\r\n\r\n", here, "or it begins with something else"},
	{"GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n", here, "only Connection makes it one of the connection"},

	// Bodies.
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \t5 \r\n\r\nhello", here, "space around the length"},
	{"POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 005\r\n\r\nhello", here, "zeros first"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhello", here, "more than that has come"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n" + strings.Repeat("x", 3000), here, "a large one"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello", left, "a sign"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\nhello", left, "a sign"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\nhello", left, "a prefix"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5_0\r\n\r\nhello", left, "an underscore"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello", left, "a list"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5 5\r\n\r\nhello", left, "a space"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nhello", left, "nothing"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: five\r\n\r\nhello", left, "a word"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483648\r\n\r\nhello", left, "too long to be here"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775807\r\n\r\nhello", left, "more"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nhello", left, "more than 63 bits"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", left, "twice"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\ncontent-length: 6\r\n\r\nhello", left, "two"},
	{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", left, "chunks"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", left, "both"},
	{"POST / HTTP/1.1\r\nHost: x\r\ntransfer-encoding: identity\r\nContent-Length: 5\r\n\r\nhello", left, "another coding"},
	{"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\nhello", left, "an empty one"},
	{"POST / HTTP/1.1\r\nHost: x\r\nTrailer: X\r\n\r\n", left, "a trailer"},
	{"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", left, "it waits for an answer"},
	{"POST / HTTP/1.1\r\nHost: x\r\nexpect: something\r\n\r\n", left, "net/http refuses it"},

	// Beginnings.
	{"", more, "nothing"},
	{"\r\n", more, "an empty line"},
	{"GET", more, "half a word"},
	{"PRI * HTTP/2.0\r\n", more, "what it is, the empty line tells"},
	{"GET / HTTP/1.1\r\nHost: x\r\n", more, "no end of the head"},
	{"GET / HTTP/1.1\r\nHost: x\r\n\r", more, "one byte less"},
	{"GET / HTTP/1.1\nHost: x\n\n", more, "bare LF only: it goes to net/http after a while"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", more, "no body"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhell", more, "not all of it"},
	{"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483647\r\n\r\nhello", more, "far from all of it"},
}

func manyFields(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString("X-" + strings.Repeat("a", i%7+1) + strings.Repeat("b", i/7) + ": v\r\n")
	}
	return text.String()
}

// usually returns what the requests of a connection have in common.
func usually() *http.Request {
	return &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "192.0.2.1:1234"}
}

// If this fails with "left" for "here", usual requests have become slow, which nobody notices otherwise.
func TestWhichRequestsAreServedHere(t *testing.T) {
	for _, test := range requests {
		r, length := parse([]byte(test.raw), usually())
		got := here
		if r == nil {
			if got = left; length > 0 {
				got = more
			}
		}
		if got != test.want {
			t.Errorf("%.200q: %s, want %s (%s)", test.raw, got, test.want, test.why)
		}
	}
}

// What is not whole is told how long it is as soon as that is known.
func TestLengthOfARequestThatIsNotWhole(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n"
	for _, test := range []struct {
		raw  string
		want int
	}{
		{"", 1},
		{head[:10], 11},
		{head[:len(head)-1], len(head)},
		{head, len(head) + 50},
		{head + "hello", len(head) + 50},
	} {
		if r, length := parse([]byte(test.raw), usually()); r != nil || length != test.want {
			t.Errorf("parse(%q) = %v, %d, want nil, %d", test.raw, r, length, test.want)
		}
	}
}

// Everything that is taken for a request is what net/http takes for the same request.
func FuzzParse(f *testing.F) {
	for _, test := range requests {
		f.Add([]byte(test.raw))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		memory := bytes.Clone(p)
		usual := usually()
		r, length := parse(memory, usual)
		if r == nil {
			if length != 0 && length <= len(p) {
				t.Errorf("parse = nil, %d of %d bytes", length, len(p))
			}
			return
		}
		if length < 1 || length > len(p) {
			t.Fatalf("the request has %d bytes of %d", length, len(p))
		}
		for i := range memory {
			memory[i] = '#' // nothing of it is used any more
		}
		if !reflect.DeepEqual(usual, usually()) {
			t.Errorf("it has changed what is usual")
		}
		sameAsNetHTTP(t, &r.Request, p, length)
		refusesWhatTheServerRefuses(t, p)
		for n := range length {
			if r, needs := parse(p[:n], usual); r != nil || needs <= n || needs > length {
				t.Fatalf("parse of the first %d bytes = %v, %d, want nil and between %d and %d", n, r, needs, n+1, length)
			}
		}
	})
}

// sameAsNetHTTP compares got, which is said to be the first length bytes of p, with what net/http reads.
func sameAsNetHTTP(t *testing.T, got *http.Request, p []byte, length int) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(p))
	want, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("net/http refuses it: %v", err)
	}
	body, err := io.ReadAll(want.Body)
	if err != nil {
		t.Fatalf("net/http refuses its body: %v", err)
	}
	if rest, _ := io.ReadAll(in); !bytes.Equal(rest, p[length:]) {
		t.Errorf("%q is left, for net/http it is %q", p[length:], rest)
	}
	if (got.Body == http.NoBody) != (want.Body == http.NoBody) {
		t.Errorf("the body is %T, want %T", got.Body, want.Body)
	}
	if text, err := io.ReadAll(got.Body); err != nil || !bytes.Equal(text, body) {
		t.Errorf("the body is %q, %v, want %q", text, err, body)
	}
	for _, same := range []struct {
		name      string
		got, want any
	}{
		{"Method", got.Method, want.Method},
		{"RequestURI", got.RequestURI, want.RequestURI},
		{"URL", got.URL, want.URL},
		{"Proto", got.Proto, want.Proto},
		{"ProtoMajor", got.ProtoMajor, want.ProtoMajor},
		{"ProtoMinor", got.ProtoMinor, want.ProtoMinor},
		{"Header", got.Header, want.Header},
		{"Host", got.Host, want.Host},
		{"ContentLength", got.ContentLength, want.ContentLength},
		{"TransferEncoding", got.TransferEncoding, want.TransferEncoding},
		{"Trailer", got.Trailer, want.Trailer},
		{"Close", got.Close, want.Close},
		{"RemoteAddr", got.RemoteAddr, usually().RemoteAddr},
	} {
		if !reflect.DeepEqual(same.got, same.want) {
			t.Errorf("%s = %#v, want %#v", same.name, same.got, same.want)
		}
	}
	if got.TransferEncoding != nil || got.Trailer != nil {
		t.Errorf("Transfer-Encoding %q, trailer %q, want none", got.TransferEncoding, got.Trailer)
	}
	if extra := added(got.Header); !reflect.DeepEqual(extra, added(want.Header)) {
		t.Errorf("with values added, Header = %q", extra)
	}
}

// added returns h with a value more of every field. None may get into the memory of another.
func added(h http.Header) http.Header {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		h.Add(name, "to "+name)
	}
	return h
}

// refusesWhatTheServerRefuses fails for what http.ReadRequest accepts, and the server of net/http
// refuses or treats in another way than as a plain request.
func refusesWhatTheServerRefuses(t *testing.T, p []byte) {
	t.Helper()
	in := textproto.NewReader(bufio.NewReader(bytes.NewReader(p)))
	_, _ = in.ReadLine()
	header, err := in.ReadMIMEHeader()
	if err != nil {
		t.Fatalf("the fields cannot be read: %v", err)
	}
	if hosts := header["Host"]; len(hosts) != 1 || hosts[0] == "" || !httpguts.ValidHostHeader(hosts[0]) {
		t.Errorf("Host is %q", hosts)
	}
	for name, values := range header {
		if !httpguts.ValidHeaderFieldName(name) {
			t.Errorf("%q is no name", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				t.Errorf("%s: %q is no value", name, value)
			}
		}
	}
	for _, name := range []string{"Expect", "Transfer-Encoding", "Upgrade", "Trailer"} {
		if values, there := header[name]; there {
			t.Errorf("%s is %q", name, values)
		}
	}
	for _, name := range []string{"Content-Length", "Connection"} {
		if values := header[name]; len(values) > 1 {
			t.Errorf("%s is %q", name, values)
		}
	}
}

// A body behaves like that of net/http.
func TestBody(t *testing.T) {
	const raw = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
	r, _ := parse([]byte(raw), usually())
	var p [3]byte
	if n, err := r.Body.Read(p[:]); n != 3 || err != nil {
		t.Errorf("Read = %d, %v, want 3, nil", n, err)
	}
	if n, err := r.Body.Read(p[:]); n != 2 || err != nil {
		t.Errorf("Read = %d, %v, want 2, nil", n, err)
	}
	if n, err := r.Body.Read(p[:]); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read at the end = %d, %v, want 0, EOF", n, err)
	}
	for range 2 {
		if err := r.Body.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if n, err := r.Body.Read(p[:]); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("Read after Close = %d, %v, want 0, %v", n, err, http.ErrBodyReadAfterClose)
	}
}
