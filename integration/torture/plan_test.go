package torture_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// The services that exchanges go to, by the first segment of the path.
const (
	calm     = "calm"     // keeps its connections
	restless = "restless" // closes them without saying so; requests are safe and have no body
	crooked  = "crooked"  // gives malformed responses; requests are as for restless
	tunnels  = "tunnels"  // takes WebSockets
	h2c      = "h2c"
	h2       = "h2" // with TLS
)

// The ways in which the service treats its connection after a response.
const (
	keeps   = "keeps"
	says    = "says close"
	silent  = "closes without saying so"
	drained = "says close, and closes before it has read the request"
)

// An exchange is one request and what the service makes of it. It is the same through both proxies.
type exchange struct {
	id      uint64
	round   uint64 // of a conversation that is held again and again
	lane    string
	kind    string // for the counts
	method  string
	target  string
	odd     string // what the gateway has against the request
	old     bool   // HTTP/1.0
	expect  bool
	close   bool // the client says that it ends the connection
	upgrade bool
	ahead   bool // the client does not wait for the service to switch protocols
	follows bool // sent together with the request before

	switches                    bool   // the service takes an upgrade whose request has a body, if it is asked for one
	standard                    bool   // by the gateway with net/http's transport
	wrongRequest, wrongResponse *fault // malformed framing

	request  message
	interims []*message
	codes    []int // of the interim responses
	response message
	status   int
	when     int // bytes of the request body that the service reads before it answers; -1: all
	refuses  bool
	ending   string
	leaves   int // bytes of the response body after which the client leaves; -1: it stays
}

func (e *exchange) early() bool { return e.when >= 0 && e.when < e.request.size }

// clientAborts reports whether the client leaves before the exchange is over.
func (e *exchange) clientAborts() bool { return e.request.abortAt >= 0 || e.leaves >= 0 }

// text returns what X-Answer says in the response.
func (e *exchange) text() string { return fmt.Sprintf("%016x", e.id) }

// mark returns what X-Torture says in the request.
func (e *exchange) mark(side string) string { return fmt.Sprintf("%016x-%08x-%s", e.id, e.round, side) }

// String tells what is planned, for reports.
func (e *exchange) String() string {
	var extra []string
	note := func(is bool, what string, args ...any) {
		if is {
			extra = append(extra, fmt.Sprintf(what, args...))
		}
	}
	note(e.old, "HTTP/1.0")
	note(e.expect, "expects 100")
	note(e.follows, "pipelined")
	note(e.switches, "upgrade with a body")
	note(e.standard, "standard transport")
	if fault := e.wrong(); fault != nil {
		note(true, "malformed: %s", fault.name)
	}
	note(e.request.abortAt >= 0, "client aborts at %d of %d, reset %v", e.request.abortAt, len(e.request.wire), e.request.reset)
	note(e.leaves >= 0, "client leaves after %d", e.leaves)
	note(e.response.abortAt >= 0, "service aborts at %d of %d (head %d), reset %v", e.response.abortAt, len(e.response.wire), e.response.head, e.response.reset)
	note(e.early(), "answered after %d", e.when)
	note(len(e.codes) > 0, "interim %v", e.codes)
	return fmt.Sprintf("exchange %016x (%s): %s %s, %s %d; %d, %s %d, service %s; %s\nrequest head %.900q\nresponse head %.900q", e.id, e.kind, e.method, e.target,
		e.request.coding, e.request.size, e.status, e.response.coding, e.response.size, e.ending, strings.Join(extra, ", "),
		e.request.wire[:e.request.head], e.response.wire[:e.response.head])
}

// A generator makes conversations of random numbers.
type generator struct{ *rand.Rand }

func (g generator) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

// newConversation makes the conversation of that number in the run of a seed: exchanges on one
// connection, as long as that lasts.
func newConversation(seed, number, round uint64) []*exchange {
	g := generator{rand.New(rand.NewPCG(seed, number))}
	list := make([]*exchange, 1+g.IntN(5))
	for i := range list {
		list[i] = g.exchange(&exchange{id: number<<4 | uint64(i), round: round, leaves: -1, when: -1, ending: keeps})
		if i > 0 {
			list[i].follows = g.one(3) && list[i].pipelines() && list[i-1].pipelines()
		}
	}
	return list
}

// pipelines reports whether the request may be sent together with others: nothing in it depends
// on what comes back.
func (e *exchange) pipelines() bool {
	return !e.clientAborts() && !e.early() && !e.expect && !e.upgrade && !e.close && !e.old && !e.switches &&
		e.odd == "" && e.wrong() == nil && e.response.abortAt < 0
}

func (g generator) exchange(e *exchange) *exchange {
	e.lane = pick(g, calm, calm, calm, calm, restless, crooked, tunnels, h2c, h2c, h2)
	e.request.key, e.response.key = stream(e.id<<1), stream(e.id<<1|1)
	if e.lane == tunnels && !g.one(4) {
		g.tunnel(e)
		return e
	}
	if g.one(10) {
		g.malformed(e)
		return e
	}
	g.ask(e)
	g.reply(e)
	if e.lane == tunnels && e.request.size > 0 && !e.old && !e.early() && e.method != "HEAD" {
		e.switches, e.method, e.ending, e.expect = true, "GET", says, false
		e.request.fields = slices.DeleteFunc(e.request.fields, func(f field) bool { return f.name == "Upgrade" })
		e.request.fields = append(e.request.fields, field{"Connection", "Upgrade"}, field{"Upgrade", "websocket"},
			field{"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}, field{"Sec-WebSocket-Version", "13"})
	}
	g.build(e)
	g.breakOff(e)
	e.kind = e.describe()
	return e
}

// describe returns what is counted in the report.
func (e *exchange) describe() string {
	switch {
	case e.switches:
		return "upgrade with a body"
	case e.request.abortAt >= 0:
		return "client aborts the request"
	case e.leaves >= 0:
		return "client leaves within the response"
	case e.response.abortAt >= 0:
		return "service aborts the response"
	case e.expect:
		return "Expect: 100-continue"
	case e.early():
		return "early response"
	case len(e.codes) > 0:
		return "interim responses"
	case len(e.request.trailer)+len(e.response.trailer) > 0:
		return "trailers"
	}
	return "plain, " + e.request.coding.String() + " / " + e.response.coding.String()
}

// size returns the length of a body: mostly small, at times around what buffers hold, rarely large.
func (g generator) size() int {
	switch g.IntN(12) {
	case 0:
		return 0
	case 1:
		return 1 + g.IntN(3)
	case 2, 3:
		return pick(g, 2048, 4096, 8192, 32<<10, 64<<10) + g.IntN(9) - 4
	case 4:
		return g.IntN(300_000)
	case 5:
		if g.one(6) {
			return 1<<20 + g.IntN(1<<21)
		}
	}
	return g.IntN(6000)
}

// chunking returns the sizes of chunks for a body.
func (g generator) chunking(size int) []int {
	switch g.IntN(5) {
	case 0:
		if size < 5000 {
			return []int{1}
		}
	case 1:
		return []int{pick(g, 100, 1000, 2048, 4090, 4096, 32<<10, 1<<20) + g.IntN(3)}
	case 2:
		return []int{1 << 20}
	}
	list := make([]int, 1+g.IntN(5))
	for i := range list {
		list[i] = 1 + g.IntN(pick(g, 20, 500, 5000, 70_000))
	}
	if size > 50_000 {
		list = append(list, size/10)
	}
	return list
}

// body decides on the body of a message.
func (g generator) body(m *message, codings ...coding) {
	m.coding = pick(g, codings...)
	if m.coding == none {
		return
	}
	m.size = g.size()
	if m.coding != chunked {
		return
	}
	m.chunks = g.chunking(m.size)
	if g.one(8) {
		m.extension = pick(g, ";x", ";name=value", ";q=\"a b\"")
	}
	if g.one(4) {
		m.trailer = []field{{pick(g, "X-Sum", "X-Unannounced"), "of the body"}}
	}
}

var requestFields = []field{
	{"Accept", "*/*"}, {"Accept-Encoding", "gzip, br"}, {"Accept-Language", "de"}, {"User-Agent", "torture/1"},
	{"Cookie", "a=1; b=2"}, {"Cookie", "c=3"}, {"X-Custom", "one"}, {"X-Custom", "two, three"}, {"X-Empty", ""},
	{"x-LOWER-and-Upper", "kept"}, {"X-Long", strings.Repeat("long ", 700)}, {"Cache-Control", "no-cache"},
	{"Range", "bytes=0-9"}, {"If-None-Match", "\"x\""}, {"Content-Type", "text/plain"}, {"Content-Encoding", "gzip"},
	{"Connection", "X-Hop"}, {"X-Hop", "hop"}, {"Keep-Alive", "timeout=5"}, {"Te", "trailers"}, {"Te", "gzip"},
	{"Proxy-Connection", "keep-alive"}, {"Proxy-Authorization", "Basic eA=="}, {"Authorization", "Basic eA=="},
	{"X-Forwarded-For", "192.0.2.1"}, {"X-Real-Ip", "192.0.2.1"}, {"Forwarded", "for=192.0.2.1"}, {"X-Snowgate-Client", "forged"},
	{"X-Request-Id", "abc"}, {"Idempotency-Key", "k"}, {"Via", "1.1 x"}, {"Max-Forwards", "3"}, {"Origin", "https://a.example"},
	{"X-Utf8", "gr\u00fc\u00df"}, {"Upgrade", "h2c"}, {"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
}

var responseFields = []field{
	{"Content-Type", "text/plain"}, {"Set-Cookie", "a=1"}, {"Set-Cookie", "b=2; Path=/"}, {"Server", "torture"},
	{"Date", "Tue, 15 Nov 1994 08:12:31 GMT"}, {"Etag", "\"x\""}, {"Cache-Control", "no-store"}, {"Link", "</a>; rel=preload"},
	{"X-Custom", "one"}, {"X-Custom", "two"}, {"X-Empty", ""}, {"x-LOWER-and-Upper", "kept"}, {"X-Long", strings.Repeat("long ", 1500)},
	{"Connection", "X-Hop"}, {"X-Hop", "hop"}, {"Keep-Alive", "timeout=5"}, {"Alt-Svc", "h3=\":443\""}, {"X-Snowgate-Client", "told"},
	{"X-Request-Id", "other"}, {"Proxy-Authenticate", "Basic"}, {"Www-Authenticate", "Basic"}, {"Content-Encoding", "gzip"},
	{"Vary", "Accept"}, {"Location", "/elsewhere"}, {"Retry-After", "1"}, {"Upgrade", "h2c"}, {"X-Forwarded-For", "192.0.2.1"},
	{"X-Utf8", "gr\u00fc\u00df"}, {"X-Content-Type-Options", "nosniff"},
}

// some returns a few of the fields, in order.
func (g generator) some(all []field) (some []field) {
	n := g.IntN(7)
	for _, f := range all {
		if g.IntN(len(all)) < n {
			some = append(some, f)
		}
	}
	return some
}

// ask makes the request.
func (g generator) ask(e *exchange) {
	e.method = pick(g, "GET", "GET", "GET", "HEAD", "OPTIONS", "POST", "POST", "POST", "PUT", "PATCH", "DELETE", "REPORT", "BREW")
	if e.lane == restless || e.lane == crooked {
		e.method = pick(g, "GET", "HEAD", "OPTIONS")
	}
	e.target = "/" + e.lane + pick(g, "/a/b", "", "/", "/%C3%A4", "/a%20b", "/x;v=1", "/a?", "/a?q=1&r=%zz;", "/x%3Fy", "/~x", "/a:b@c")
	e.request.fields = g.some(requestFields)
	e.old = e.lane != restless && e.lane != crooked && g.one(14)
	e.close = g.one(10)
	switch {
	case e.lane == restless, e.lane == crooked:
	case e.old:
		g.body(&e.request, none, sized)
	case e.method == "GET" || e.method == "HEAD":
		g.body(&e.request, none, none, none, sized, chunked)
	default:
		g.body(&e.request, none, sized, sized, chunked, chunked)
	}
	e.expect = e.request.size > 0 && !e.old && g.one(10)
	g.oddity(e)
}

// oddity makes, at times, a request of it that the gateway refuses.
func (g generator) oddity(e *exchange) {
	if !g.one(40) || e.expect || e.request.coding != none {
		return
	}
	e.odd = pick(g, "path", "method")
	if e.odd == "path" {
		e.target = "/" + e.lane + pick(g, "/a//b", "/a/./b", "/a/%2e%2e/b", "/a%2Fb", "/a\\b", "/%zz")
	} else {
		e.method = "TRACE"
	}
}

// reply makes what the service says.
func (g generator) reply(e *exchange) {
	e.status = pick(g, 200, 200, 200, 200, 201, 204, 206, 301, 304, 400, 404, 418, 500, 502, 503, 599)
	e.response.fields = append([]field{{"X-Answer", e.text()}}, g.some(responseFields)...)
	switch {
	case e.method == "HEAD" || e.status == http.StatusNotModified:
		if g.one(2) {
			e.response.lie = 1 + g.IntN(5000)
		}
	case e.status == http.StatusNoContent:
	case e.lane == h2c || e.lane == h2:
		g.body(&e.response, sized, chunked, chunked)
	default:
		g.body(&e.response, sized, sized, chunked, chunked, chunked, closing)
	}
	if g.one(8) {
		for range 1 + g.IntN(3) {
			m := &message{fields: g.some(responseFields)}
			e.codes, e.interims = append(e.codes, pick(g, 102, 103, 103, 150)), append(e.interims, m)
		}
	}
	if e.request.size > 0 && e.request.coding != none && !e.old && g.one(6) {
		e.when = g.IntN(e.request.size)
		e.refuses = e.expect // one that asks for the body first has net/http's proxy hang
		if e.refuses {
			e.when = 0
		}
	}
	switch {
	case e.response.coding == closing:
		e.ending = says
	case e.lane == restless && g.one(3):
		e.ending = silent
	case g.one(8):
		e.ending = says
	}
}

// build writes both messages down.
func (g generator) build(e *exchange) {
	version := "1.1"
	if e.old {
		version = "1.0"
	}
	if e.expect {
		e.request.fields = append(e.request.fields, field{"Expect", "100-continue"})
	}
	if e.close {
		e.request.fields = append(e.request.fields, field{"Connection", "close"})
	}
	if e.ending == says {
		e.response.fields = append(e.response.fields, field{"Connection", "close"})
	}
	e.request.build(fmt.Sprintf("%s %s HTTP/%s\r\nX-Torture: %s\r\nHost: torture.test\r\n", e.method, e.target, version, e.mark("a")))
	e.request.slice(g.Rand)
	for i, m := range e.interims {
		m.build(fmt.Sprintf("HTTP/1.1 %d Interim\r\n", e.codes[i]))
		m.slice(g.Rand)
	}
	e.response.build(fmt.Sprintf("HTTP/1.1 %d %s\r\n", e.status, pick(g, "Reason", "", "A longer reason")))
	e.response.slice(g.Rand)
}

// breakOff has, at times, one side end the exchange before its time.
func (g generator) breakOff(e *exchange) {
	if e.odd != "" || e.old || e.expect || e.switches {
		return
	}
	switch g.IntN(16) {
	case 0:
		e.request.abortAt = 1 + g.IntN(len(e.request.wire)-1)
		if e.request.size > 0 && !g.one(4) {
			e.request.abortAt = e.request.head + g.IntN(len(e.request.wire)-e.request.head)
		}
		e.request.reset = g.one(2)
	case 1:
		if e.response.size > 0 {
			e.leaves = g.IntN(e.response.size)
			e.request.reset = g.one(2)
		}
	case 2, 3:
		e.response.abortAt = g.IntN(len(e.response.wire))
		if e.response.size > 0 && !g.one(4) {
			e.response.abortAt = e.response.head + g.IntN(len(e.response.wire)-e.response.head)
		}
		e.response.reset = g.one(3)
		if e.early() {
			e.response.reset = false
		}
	}
}

// tunnel makes a WebSocket, or something like it: who has switched protocols copies bytes.
func (g generator) tunnel(e *exchange) {
	e.kind, e.upgrade, e.method, e.target, e.status = "upgrade", true, "GET", "/tunnels/ws", http.StatusSwitchingProtocols
	e.request.fields = []field{
		{"Connection", pick(g, "Upgrade", "upgrade", "keep-alive, Upgrade")}, {"Upgrade", pick(g, "websocket", "WebSocket")},
		{"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}, {"Sec-WebSocket-Version", "13"},
	}
	e.response.fields = []field{{"X-Answer", e.text()}, {"Connection", "Upgrade"}, {"Upgrade", "websocket"}, {"Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}}
	e.request.size, e.response.size = g.size(), g.size()
	e.request.build(fmt.Sprintf("GET %s HTTP/1.1\r\nX-Torture: %s\r\nHost: torture.test\r\n", e.target, e.mark("a")))
	e.response.build("HTTP/1.1 101 Switching Protocols\r\n")
	e.request.slice(g.Rand)
	e.response.slice(g.Rand)
	e.ending, e.ahead = says, g.one(3)
	switch g.IntN(12) {
	case 0: // the client ends it
		e.request.abortAt = e.request.head + g.IntN(len(e.request.wire)-e.request.head+1)
		e.request.reset, e.kind = g.one(2), "upgrade, client ends it"
	case 1:
		e.leaves = g.IntN(e.response.size + 1)
		e.request.reset, e.kind = g.one(2), "upgrade, client ends it"
	case 2, 3: // the service ends it in the middle
		e.response.abortAt = e.response.head + g.IntN(len(e.response.wire)-e.response.head+1)
		e.kind = "upgrade, service ends it"
	}
}
