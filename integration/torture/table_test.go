package torture_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
)

// A row is a difference that is meant.
type row struct {
	name, reason string
	is           func(e *exchange, d difference) bool
	rare         bool // it takes a slow machine, or luck
	count        atomic.Int64
}

// field returns the name of the field that differs, if what names one.
func (d difference) field(what string) string {
	name, _ := strings.CutPrefix(d.what, what+" ")
	if name == d.what {
		return ""
	}
	return name
}

func oneOf(name string, names ...string) bool { return slices.Contains(names, name) }

// inChunks reports whether the request has a Transfer-Encoding.
func (e *exchange) inChunks() bool {
	return e.request.coding == chunked || e.wrongRequest != nil && strings.Contains(e.wrongRequest.text, "{C}") ||
		e.wrongRequest != nil && strings.Contains(e.wrongRequest.text, "Transfer-Encoding: ")
}

// answers reports whether the response is malformed in one of these ways.
func (e *exchange) answers(names ...string) bool {
	return e.wrongResponse != nil && slices.Contains(names, e.wrongResponse.name)
}

// newTable returns everything that our forwarder does otherwise than that of net/http on purpose.
func newTable() []*row {
	return []*row{
		{name: "path is not canonical", reason: "a path with two readings is refused with 400",
			is: func(e *exchange, d difference) bool {
				return e.odd == "path" && (d.what == "refused" && d.ours == "400" || d.what == "arrivals" && d.ours == "0")
			}},
		{name: "malformed request body", reason: "the fault of the client, so 400, or 499 if it ends; net/http's proxy blames the service with 502",
			is: func(e *exchange, d difference) bool {
				return e.wrongRequest != nil && d.what == "status of its own" && oneOf(d.ours, "400", "499") && d.theirs == "502"
			}},
		{name: "response that RFC 9112 has a proxy refuse or mend", reason: "sections 5.1 (space before a colon), 5.2 (folded field) and 6.1 (coding in HTTP/1.0): we refuse with 502, net/http mends or passes on",
			is: func(e *exchange, d difference) bool {
				return e.answers("space before a colon", "folded field", "coding in HTTP/1.0") && d.what == "refused" && d.ours == "502" && !e.standard
			}},
		{name: "version or status of no HTTP/1.1 response", reason: "502; net/http passes HTTP/2.0 and 600 on, and panics when it is to write 099",
			is: func(e *exchange, d difference) bool {
				return e.answers("HTTP/2.0", "status 600") && d.what == "refused" && d.ours == "502" ||
					e.answers("status 099") && d.what == "end" && d.ours == own && d.theirs == broke
			}},
		{name: "upgrade with a body", reason: "a handshake has no body (RFC 6455 section 4.1), and what is left of one would get into the tunnel: the request is sent on as an ordinary one",
			is: func(e *exchange, d difference) bool {
				return e.switches && d.what == "switched" && d.ours == fmt.Sprint(e.status) && d.theirs == "101"
			}},
		{name: "empty body in chunks", reason: "with transport: standard, net/http looks whether there is a body where methods usually have none; its proxy keeps it from that by TransferEncoding",
			is: func(e *exchange, d difference) bool {
				return e.standard && e.request.coding == chunked && e.request.size == 0 && oneOf(e.method, "GET", "HEAD", "OPTIONS", "DELETE") &&
					d.what == "request framing" && d.ours == "length 0" && d.theirs == "unknown length"
			}},
		{name: "TRACE", reason: "reflects what a client shows, so no route allows it (405)",
			is: func(e *exchange, d difference) bool {
				return e.odd == "method" && (d.what == "refused" && d.ours == "405" || d.what == "status of its own" && d.ours == "405" || d.what == "arrivals" && d.ours == "0")
			}},
		{name: "identity to the service", reason: "only the gateway says who asks, and it says more: X-Request-Id, Traceparent",
			is: func(_ *exchange, d difference) bool {
				return oneOf(d.field("request field"), "X-Request-Id", "Traceparent", "X-Snowgate-Client")
			}},
		{name: "address of a stranger", reason: "X-Real-Ip, Forwarded and their like are believed of trusted proxies only",
			is: func(_ *exchange, d difference) bool {
				return oneOf(d.field("request field"), "X-Real-Ip", "Forwarded") && d.ours == ""
			}},
		{name: "Authorization", reason: "removed unless the route has pass_token",
			is: func(_ *exchange, d difference) bool {
				return d.field("request field") == "Authorization" && d.ours == ""
			}},
		{name: "X-Request-Id to the client", reason: "the client is told the id of its request, and no other",
			is: func(_ *exchange, d difference) bool {
				return d.field("response field") == "X-Request-Id" && d.ours != ""
			}},
		{name: "identity to the client", reason: "a service may not repeat to the client what the gateway told it",
			is: func(_ *exchange, d difference) bool {
				return oneOf(d.field("response field"), "X-Snowgate-Client", "X-Forwarded-For") && d.ours == ""
			}},
		{name: "Alt-Svc", reason: "names places where there is no gateway",
			is: func(_ *exchange, d difference) bool { return d.field("response field") == "Alt-Svc" && d.ours == "" }},
		{name: "Connection: close after Transfer-Encoding", reason: "RFC 9112 section 6.1; see middleware.Framing",
			is: func(e *exchange, d difference) bool {
				return e.inChunks() && (d.what == "closes" && d.ours == "true" || d.field("response field") == "Connection" && d.ours == "close")
			}},
		{name: "HTTP/1.0 closes", reason: "the connection closes after every response to HTTP/1.0, so that nothing hides behind a Transfer-Encoding",
			is: func(e *exchange, d difference) bool {
				return e.old && (d.what == "closes" && d.ours == "true" || d.field("response field") == "Connection" && d.ours == "close")
			}},
		{name: "HTTP/1.0 gets no interim response", reason: "RFC 9110 section 15.2 forbids them; net/http's proxy sends them",
			is: func(e *exchange, d difference) bool { return e.old && d.what == "interim responses" && d.ours == "" }},
		{name: "empty body of unknown length", reason: "we send the header at once where the end of the body is told by what follows it (proxy.holdHeader); net/http's proxy sends it together with the first byte, or here with the end, and then knows the length",
			is: func(e *exchange, d difference) bool {
				return d.field("response field") == "Content-Length" && d.ours == "" && d.theirs == "0" &&
					(e.response.size == 0 && (e.response.coding == chunked || e.response.coding == closing) || e.response.coding == closing && e.response.abortAt == e.response.head)
			}},
		{name: "304 over HTTP/2 with a length", reason: "net/http misses the body of a 304 that names the length of the 200, and its proxy breaks off",
			is: func(e *exchange, d difference) bool {
				return oneOf(e.lane, h2, h2c) && e.status == 304 && e.response.lie > 0 && d.what == "end" && d.ours == whole && oneOf(d.theirs, closed, broke)
			}},
		{name: "Connection: close after an early response", reason: "the body was not read to its end when the response began (proxy.flight.WriteHeader), and its rest must never be taken for a request",
			is: func(e *exchange, d difference) bool {
				return e.early() && (d.what == "closes" && d.ours == "true" || d.field("response field") == "Connection" && d.ours == "close")
			}},
		{name: "rest of the request after an early response", reason: "when the response is over, neither proxy has to send on what is left",
			is: func(e *exchange, d difference) bool { return e.early() && d.what == "end of the request body" }},
		{name: "large rest of the request after an early response", reason: "net/http's server reads 256 KiB of it and resets the connection half a second later, with what a slow client has not read of the response", rare: true,
			is: func(e *exchange, d difference) bool {
				return e.early() && e.request.size-e.when > 256<<10 && d.what == "end" && d.ours == whole && d.theirs == broke
			}},
		{name: "body that is none from its first byte", reason: "what came together with the header of the response is no chunk, and nothing was sent yet, so 502; net/http's proxy sends the header and breaks off", rare: true,
			is: func(e *exchange, d difference) bool {
				return e.wrongResponse != nil && !e.standard && (d.what == "end" && d.ours == own && oneOf(d.theirs, broke, closed) || d.what == "status of its own" && d.ours == "502") &&
					strings.Contains(d.cause, "malformed response: ")
			}},
		{name: "HTTP/2 service that ends its connection", reason: "the service says that it will not look at the request, of which the body has been sent: it cannot be sent again, by neither proxy, and each meets other requests with this", rare: true,
			is: func(e *exchange, d difference) bool {
				return oneOf(e.lane, h2c, h2) && e.request.coding != none && d.what == "refused" && d.ours == "502" && strings.Contains(d.cause, "graceful shutdown GOAWAY")
			}},
		{name: "attempts after a broken connection", reason: "where not a byte of a response has come, we send a safe request once more, and only if the connection had been kept; net/http does so for as long as it has kept connections",
			is: func(e *exchange, d difference) bool {
				return d.what == "arrivals" && (e.response.abortAt == 0 && len(e.codes) == 0 || e.answers("end before the head") || e.response.abortAt > 0 && e.response.reset) && oneOf(d.ours, "1", "2") && oneOf(e.method, "GET", "HEAD", "OPTIONS") && e.request.size == 0
			}},
		{name: "field that Connection names beside close", reason: "net/http forgets Connection when it says close, and sends the field on that it names",
			is: func(e *exchange, d difference) bool {
				return d.field("response field") == "X-Hop" && d.ours == "" && e.ending == says
			}},
		{name: "100 Continue with an early response", reason: "a service that is done early is not waited for: whether the client still learns that its body was asked for is a race, and the transport of net/http asks for it even then",
			is: func(e *exchange, d difference) bool {
				return e.expect && e.early() && d.what == "interim responses" && withoutForbidden(withoutContinue(d.ours)) == withoutForbidden(withoutContinue(d.theirs))
			}},
		{name: "100 Continue twice", reason: "net/http's proxy passes the one of the service on, and its server writes another if the body is read before that; we send one", rare: true,
			is: func(e *exchange, d difference) bool {
				const one = "100 map[]"
				return e.expect && d.what == "interim responses" && strings.Count(d.ours, one) == 1 && strings.Count(d.theirs, one) == 2 &&
					withoutForbidden(withoutContinue(d.ours)) == withoutForbidden(withoutContinue(d.theirs))
			}},
		{name: "Date", reason: "where the service names none, each proxy writes its own, perhaps a second apart",
			is: func(e *exchange, d difference) bool {
				return d.field("response field") == "Date" && d.ours != "" && d.theirs != "" && !slices.ContainsFunc(e.response.fields, func(f field) bool { return f.name == "Date" })
			}},
		{name: "request trailer", reason: "we send it on to HTTP/2 services, net/http's proxy forgets it: it clones the request before the trailer is there",
			is: func(e *exchange, d difference) bool {
				return e.lane == h2c && d.field("request trailer") != "" && d.ours == "of the body" && d.theirs == ""
			}},
		{name: "no guessed Content-Type", reason: "net/http guesses a type where the service names none; we pass on what it says",
			is: func(_ *exchange, d difference) bool {
				return d.field("response field") == "Content-Type" && d.ours == ""
			}},
		{name: "short chunked body gets a length", reason: "a body that has come as a whole when the header is sent is sent with its length",
			is: func(e *exchange, d difference) bool {
				return d.field("response field") == "Content-Length" && d.theirs == "" && (e.response.coding != sized || e.wrongResponse != nil && strings.Contains(e.wrongResponse.text, "{C}")) && d.ours == fmt.Sprint(e.response.size)
			}},
		{name: "interim fields", reason: "interim responses say nothing either that a service may not say",
			is: func(_ *exchange, d difference) bool {
				return d.what == "interim responses" && d.ours != "" && withoutForbidden(d.ours) == withoutForbidden(d.theirs)
			}},
	}
}

// withoutContinue drops 100 Continue from a list of interim responses.
func withoutContinue(text string) string {
	return strings.TrimSuffix(strings.ReplaceAll(text+"\n", "100 map[]\n", ""), "\n")
}

// forbidden matches, in the text of a header, what a service may not say.
var forbidden = regexp.MustCompile(`(Alt-Svc|X-Snowgate-Client|X-Forwarded-For|X-Request-Id|Connection|X-Hop|Keep-Alive|Proxy-Authenticate|Upgrade):\[[^\]]*\]`)

// withoutForbidden drops that.
func withoutForbidden(text string) string {
	text = strings.Join(strings.Fields(forbidden.ReplaceAllString(text, "")), " ")
	return strings.NewReplacer("[ ", "[", " ]", "]").Replace(text)
}
