package torture_test

import (
	"fmt"
	"strings"
)

// A fault is something wrong with the framing of a message.
type fault struct {
	name string
	// text is the message. In it stand {M} for the fields that name the exchange, {C} for
	// "Transfer-Encoding: chunked" and the end of the head, {S} for a request that must never
	// reach the service or a response that must never reach the client, and for line ends \n,
	// but \l for a LF alone.
	text string
	// refused tells that nothing may come through: neither the whole request to the service nor
	// the whole response to the client.
	refused bool
	ends    bool // the sender says that nothing more comes
	more    bool // bytes follow the response that are no part of it
}

// The faults of requests.
var wrongRequests = []fault{
	{name: "letters for a chunk size", text: "POST {P} HTTP/1.1\n{M}{C}xyz\nabc\n0\n\n", refused: true},
	{name: "chunk size with +", text: "POST {P} HTTP/1.1\n{M}{C}+3\nabc\n0\n\n", refused: true},
	{name: "chunk size with -", text: "POST {P} HTTP/1.1\n{M}{C}-3\nabc\n0\n\n", refused: true},
	{name: "chunk size with 0x", text: "POST {P} HTTP/1.1\n{M}{C}0x3\nabc\n0\n\n", refused: true},
	{name: "space before a chunk size", text: "POST {P} HTTP/1.1\n{M}{C} 3\nabc\n0\n\n", refused: true},
	{name: "space behind a chunk size", text: "POST {P} HTTP/1.1\n{M}{C}3 \nabc\n0\n\n"},
	{name: "chunk size of 17 digits", text: "POST {P} HTTP/1.1\n{M}{C}10000000000000003\nabc\n0\n\n", refused: true},
	{name: "empty chunk size", text: "POST {P} HTTP/1.1\n{M}{C}\nabc\n0\n\n", refused: true},
	{name: "chunk longer than its size", text: "POST {P} HTTP/1.1\n{M}{C}3\nabcdef\n0\n\n", refused: true},
	{name: "chunk shorter than its size", text: "POST {P} HTTP/1.1\n{M}{C}8\nabc\n0\n\n", refused: true, ends: true},
	{name: "LF behind a chunk size", text: "POST {P} HTTP/1.1\n{M}{C}3\\labc\n0\n\n"},
	{name: "LF behind a chunk", text: "POST {P} HTTP/1.1\n{M}{C}3\nabc\\l0\n\n", refused: true},
	{name: "no last chunk", text: "POST {P} HTTP/1.1\n{M}{C}3\nabc\n", refused: true, ends: true},
	{name: "end within a trailer", text: "POST {P} HTTP/1.1\n{M}{C}3\nabc\n0\nX-Sum: a", refused: true, ends: true},
	{name: "trailer that is none", text: "POST {P} HTTP/1.1\n{M}{C}3\nabc\n0\nnothing\n\n"},
	{name: "length and chunks", text: "POST {P} HTTP/1.1\n{M}Content-Length: 5\n{C}0\n\n{S}"},
	{name: "chunks and length", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding: chunked\nContent-Length: 5\n\n0\n\n{S}"},
	{name: "length over chunks that hold a request", text: "POST {P} HTTP/1.1\n{M}Content-Length: 500\n{C}0\n\n"},
	{name: "two lengths", text: "POST {P} HTTP/1.1\n{M}Content-Length: 3\nContent-Length: 5\n\nabcde", refused: true},
	{name: "length twice", text: "POST {P} HTTP/1.1\n{M}Content-Length: 3\nContent-Length: 3\n\nabc"},
	{name: "list of lengths", text: "POST {P} HTTP/1.1\n{M}Content-Length: 3, 3\n\nabc"},
	{name: "length with +", text: "POST {P} HTTP/1.1\n{M}Content-Length: +3\n\nabc", refused: true},
	{name: "length with -", text: "POST {P} HTTP/1.1\n{M}Content-Length: -3\n\nabc", refused: true},
	{name: "length with 0x", text: "POST {P} HTTP/1.1\n{M}Content-Length: 0x3\n\nabc", refused: true},
	{name: "length of 20 digits", text: "POST {P} HTTP/1.1\n{M}Content-Length: 18446744073709551619\n\nabc", refused: true},
	{name: "empty length", text: "POST {P} HTTP/1.1\n{M}Content-Length: \n\n{S}"},
	{name: "longer than its length", text: "POST {P} HTTP/1.1\n{M}Content-Length: 3\n\nabcnothing\n\n"},
	{name: "shorter than its length", text: "POST {P} HTTP/1.1\n{M}Content-Length: 9\n\nabc", refused: true, ends: true},
	{name: "coding gzip", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding: gzip\n\n{S}", refused: true},
	{name: "coding chunked, chunked", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding: chunked, chunked\n\n0\n\n{S}", refused: true},
	{name: "coding gzip, chunked", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding: gzip, chunked\n\n0\n\n", refused: true},
	{name: "coding xchunked", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding: xchunked\n\n{S}", refused: true},
	{name: "coding twice", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding: chunked\n{C}0\n\n{S}", refused: true},
	{name: "coding with VT", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding: \vchunked\n\n0\n\n{S}", refused: true},
	{name: "coding in HTTP/1.0", text: "POST {P} HTTP/1.0\n{M}{C}3\nabc\n0\n\n{S}"},
	{name: "space before a colon", text: "POST {P} HTTP/1.1\n{M}Content-Length : 3\n\nabc", refused: true},
	{name: "space before the colon of chunks", text: "POST {P} HTTP/1.1\n{M}Transfer-Encoding : chunked\n\n0\n\n{S}", refused: true},
	{name: "LF in the head", text: "GET {P} HTTP/1.1\n{M}X-A: a\\lX-B: b\n\n"},
	{name: "LF alone", text: "GET {P} HTTP/1.1\\l{M}\\l"},
	{name: "folded field", text: "GET {P} HTTP/1.1\n{M}X-A: a\n b: c\n\n"},
	{name: "folded length", text: "POST {P} HTTP/1.1\n{M}Content-Length:\n 3\n\nabc"},
	{name: "folded first field", text: "GET {P} HTTP/1.1\n X-A: a\n{M}\n", refused: true},
	{name: "CR in a field", text: "GET {P} HTTP/1.1\n{M}X-A: a\rb\n\n", refused: true},
	{name: "NUL in a field", text: "GET {P} HTTP/1.1\n{M}X-A: a\x00b\n\n", refused: true},
	{name: "field without a name", text: "GET {P} HTTP/1.1\n{M}: a\n\n", refused: true},
	{name: "field without a colon", text: "GET {P} HTTP/1.1\n{M}nothing\n\n", refused: true},
	{name: "space in a name", text: "GET {P} HTTP/1.1\n{M}X A: a\n\n", refused: true},
	{name: "no Host", text: "GET {P} HTTP/1.1\nX-Torture: {K}\n\n", refused: true},
	{name: "two Hosts", text: "GET {P} HTTP/1.1\n{M}Host: other.test\n\n", refused: true},
	{name: "HTTP/1.2", text: "GET {P} HTTP/1.2\n{M}\n"},
	{name: "HTTP/3.0", text: "GET {P} HTTP/3.0\n{M}\n", refused: true},
	{name: "http/1.1", text: "GET {P} http/1.1\n{M}\n", refused: true},
	{name: "space in the target", text: "GET {P} b HTTP/1.1\n{M}\n", refused: true},
	{name: "method with a colon", text: "GE:T {P} HTTP/1.1\n{M}\n", refused: true},
	{name: "end within the head", text: "GET {P} HTTP/1.1\n{M}X-A: a", refused: true, ends: true},
}

// The faults of responses.
var wrongResponses = []fault{
	{name: "letters for a chunk size", text: "HTTP/1.1 200 OK\n{M}{C}xyz\nabc\n0\n\n", refused: true},
	{name: "chunk size with +", text: "HTTP/1.1 200 OK\n{M}{C}+3\nabc\n0\n\n", refused: true},
	{name: "chunk size with -", text: "HTTP/1.1 200 OK\n{M}{C}-3\nabc\n0\n\n", refused: true},
	{name: "chunk size with 0x", text: "HTTP/1.1 200 OK\n{M}{C}0x3\nabc\n0\n\n", refused: true},
	{name: "space before a chunk size", text: "HTTP/1.1 200 OK\n{M}{C} 3\nabc\n0\n\n", refused: true},
	{name: "space behind a chunk size", text: "HTTP/1.1 200 OK\n{M}{C}3 \nabc\n0\n\n"},
	{name: "chunk size of 17 digits", text: "HTTP/1.1 200 OK\n{M}{C}10000000000000003\nabc\n0\n\n", refused: true},
	{name: "empty chunk size", text: "HTTP/1.1 200 OK\n{M}{C}\nabc\n0\n\n", refused: true},
	{name: "chunk longer than its size", text: "HTTP/1.1 200 OK\n{M}{C}3\nabcdef\n0\n\n", refused: true},
	{name: "chunk shorter than its size", text: "HTTP/1.1 200 OK\n{M}{C}8\nabc\n0\n\n", refused: true, ends: true},
	{name: "LF behind a chunk size", text: "HTTP/1.1 200 OK\n{M}{C}3\\labc\n0\n\n"},
	{name: "LF behind a chunk", text: "HTTP/1.1 200 OK\n{M}{C}3\nabc\\l0\n\n", refused: true},
	{name: "no last chunk", text: "HTTP/1.1 200 OK\n{M}{C}3\nabc\n", refused: true, ends: true},
	{name: "end behind the last chunk", text: "HTTP/1.1 200 OK\n{M}{C}3\nabc\n0\n", refused: true, ends: true},
	{name: "end within a trailer", text: "HTTP/1.1 200 OK\n{M}{C}3\nabc\n0\nX-Sum: a", refused: true, ends: true},
	{name: "trailer that is none", text: "HTTP/1.1 200 OK\n{M}{C}3\nabc\n0\nnothing\n\n", refused: true},
	{name: "length and chunks", text: "HTTP/1.1 200 OK\n{M}Content-Length: 5\n{C}3\nabc\n0\n\n"},
	{name: "two lengths", text: "HTTP/1.1 200 OK\n{M}Content-Length: 3\nContent-Length: 5\n\nabcde", refused: true},
	{name: "length twice", text: "HTTP/1.1 200 OK\n{M}Content-Length: 3\nContent-Length: 3\n\nabc"},
	{name: "list of lengths", text: "HTTP/1.1 200 OK\n{M}Content-Length: 3, 3\n\nabc"},
	{name: "length with +", text: "HTTP/1.1 200 OK\n{M}Content-Length: +3\n\nabc", refused: true},
	{name: "length with -", text: "HTTP/1.1 200 OK\n{M}Content-Length: -3\n\nabc", refused: true},
	{name: "length of 20 digits", text: "HTTP/1.1 200 OK\n{M}Content-Length: 18446744073709551619\n\nabc", refused: true},
	{name: "longer than its length", text: "HTTP/1.1 200 OK\n{M}Content-Length: 3\n\nabcdef", more: true},
	{name: "two responses", text: "HTTP/1.1 200 OK\n{M}Content-Length: 3\n\nabc{S}", more: true},
	{name: "body of a 204", text: "HTTP/1.1 204 No Content\n{M}\n{S}", more: true},
	{name: "length of a 204", text: "HTTP/1.1 204 No Content\n{M}Content-Length: 3\n\nabc", more: true},
	{name: "body of a 304", text: "HTTP/1.1 304 Not Modified\n{M}Content-Length: 3\n\nabc{S}", more: true},
	{name: "body for HEAD", text: "HTTP/1.1 200 OK\n{M}Content-Length: 3\n\nabc{S}", more: true},
	{name: "chunks for HEAD", text: "HTTP/1.1 200 OK\n{M}{C}3\nabc\n0\n\n{S}", more: true},
	{name: "shorter than its length", text: "HTTP/1.1 200 OK\n{M}Content-Length: 9\n\nabc", refused: true, ends: true},
	{name: "coding gzip", text: "HTTP/1.1 200 OK\n{M}Transfer-Encoding: gzip\n\nabc", refused: true, ends: true},
	{name: "coding gzip, chunked", text: "HTTP/1.1 200 OK\n{M}Transfer-Encoding: gzip, chunked\n\n3\nabc\n0\n\n", refused: true},
	{name: "coding twice", text: "HTTP/1.1 200 OK\n{M}Transfer-Encoding: chunked\n{C}3\nabc\n0\n\n", refused: true},
	{name: "coding in HTTP/1.0", text: "HTTP/1.0 200 OK\n{M}{C}3\nabc\n0\n\n", ends: true},
	{name: "space before a colon", text: "HTTP/1.1 200 OK\n{M}Content-Length : 3\n\nabc", ends: true},
	{name: "LF alone", text: "HTTP/1.1 200 OK\\l{M}Content-Length: 3\\l\\labc"},
	{name: "folded field", text: "HTTP/1.1 200 OK\n{M}X-A: a\n b: c\nContent-Length: 3\n\nabc"},
	{name: "folded first field", text: "HTTP/1.1 200 OK\n X-A: a\n{M}Content-Length: 3\n\nabc", refused: true},
	{name: "CR in a field", text: "HTTP/1.1 200 OK\n{M}X-A: a\rb\nContent-Length: 3\n\nabc"},
	{name: "NUL in a field", text: "HTTP/1.1 200 OK\n{M}X-A: a\x00b\nContent-Length: 3\n\nabc"},
	{name: "field without a name", text: "HTTP/1.1 200 OK\n{M}: a\nContent-Length: 3\n\nabc"},
	{name: "field without a colon", text: "HTTP/1.1 200 OK\n{M}nothing\nContent-Length: 3\n\nabc", refused: true},
	{name: "status of two digits", text: "HTTP/1.1 20 OK\n{M}Content-Length: 3\n\nabc", refused: true},
	{name: "status of four digits", text: "HTTP/1.1 2000 OK\n{M}Content-Length: 3\n\nabc", refused: true},
	{name: "status of letters", text: "HTTP/1.1 abc OK\n{M}Content-Length: 3\n\nabc", refused: true},
	{name: "status 099", text: "HTTP/1.1 099 OK\n{M}Content-Length: 3\n\nabc", refused: true},
	{name: "status 600", text: "HTTP/1.1 600 OK\n{M}Content-Length: 3\n\nabc"},
	{name: "no status", text: "HTTP/1.1\n{M}Content-Length: 3\n\nabc", refused: true},
	{name: "HTTP/2.0", text: "HTTP/2.0 200 OK\n{M}Content-Length: 3\n\nabc"},
	{name: "ICY", text: "ICY 200 OK\n{M}Content-Length: 3\n\nabc", refused: true},
	{name: "body only", text: "abc\n\n", refused: true, ends: true},
	{name: "end within the head", text: "HTTP/1.1 200 OK\n{M}X-A: a", refused: true, ends: true},
	{name: "end before the head", text: "", refused: true, ends: true},
	{name: "101 unasked", text: "HTTP/1.1 101 Switching Protocols\n{M}Connection: Upgrade\nUpgrade: websocket\n\nabc", refused: true},
	{name: "interim responses without end", text: strings.Repeat("HTTP/1.1 103 Early Hints\n\n", 300), refused: true, ends: true},
}

// smuggled is the mark of what hides in another message.
const smuggled = "smuggled "

// malformed makes an exchange whose request or response is malformed. Nothing follows it on the
// connection of the client.
func (g generator) malformed(e *exchange) {
	e.lane, e.status, e.method, e.close = pick(g, calm, calm, h2c), 200, "POST", true
	e.target = "/" + e.lane + "/malformed"
	if g.one(2) {
		e.lane, e.target = crooked, "/crooked/malformed"
		e.method = pick(g, "GET", "OPTIONS")
		e.wrongResponse = &wrongResponses[g.IntN(len(wrongResponses))]
		if strings.HasSuffix(e.wrongResponse.name, "HEAD") {
			e.method = "HEAD"
		}
		e.kind = "malformed response"
	} else {
		e.wrongRequest = &wrongRequests[g.IntN(len(wrongRequests))]
		e.kind = "malformed request"
	}
	e.response.coding, e.response.size = sized, 3
	e.response.fields = []field{{"X-Answer", e.text()}}
	g.build(e)
	if e.wrongRequest != nil {
		fields := fmt.Sprintf("X-Torture: %s\nHost: torture.test\n", e.mark("a"))
		e.request.malform(e.wrongRequest.text, "{P}", e.target, "{M}", fields, "{K}", e.mark("a"),
			"{S}", "GET /calm/smuggled HTTP/1.1\nX-Torture: "+smuggled+e.mark("a")+"\nHost: torture.test\n\n")
		if method, _, found := strings.Cut(e.wrongRequest.text, " "); found {
			e.method = strings.TrimSpace(method)
		}
		e.request.slice(g.Rand)
		return
	}
	e.response.malform(e.wrongResponse.text, "{M}", "X-Answer: "+e.text()+"\n",
		"{S}", "HTTP/1.1 200 OK\nX-Answer: smuggled\nContent-Length: 3\n\nxyz")
	if !e.wrongResponse.more {
		e.response.slice(g.Rand)
	}
}

// malform replaces the wire by a text.
func (m *message) malform(text string, replace ...string) {
	text = strings.NewReplacer(append(replace, "{C}", "Transfer-Encoding: chunked\n\n")...).Replace(text)
	text = strings.NewReplacer(`\l`, "\n", "\n", "\r\n").Replace(text)
	m.wire, m.parts, m.cuts = []byte(text), nil, nil
	m.head = len(m.wire)
	if i := strings.Index(text, "\r\n\r\n"); i >= 0 {
		m.head = i + len("\r\n\r\n")
	}
}

// wrong returns what is malformed, nil if nothing is.
func (e *exchange) wrong() *fault {
	if e.wrongRequest != nil {
		return e.wrongRequest
	}
	return e.wrongResponse
}
