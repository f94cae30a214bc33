package integration_test

import (
	"fmt"
	"strings"
)

// mutations are what the fuzzer does to requests over HTTP/1.1.
var mutations = []func(*conversation, *draft){
	mutateTarget, mutateTarget, mutateTarget, absoluteForm, anyTarget,
	mutateHost, mutateHost,
	addField, addField, addField, addField, addField, addField,
	nominate, nominate,
	secondAuthorization,
	mutateMethod, mutateVersion,
	mutateFraming, mutateFraming, mutateFraming, mutateChunks, cutShort,
	mutateLineEnds, mutateBytes, expect, upgrade,
}

// traversals are what is put between the segments of a path.
var traversals = []string{
	"/..", "/.", "/%2e%2e", "/.%2e", "/%2E.", "/..;", "/..;a=b", "/.;", "/..%2f", "/..%5c", `\..\`, `\`, "//", "/./", "/;/", "/;a", "%2f", "%2F", "%5c",
	"%00", "%0d%0a", "%20", "%09", "%c0%ae", "%c0%af", "%e0%80%af", "%252e%252e", "%252f", "%ff", "%u002e", "%", "%zz", "%2", ";", ";x=y", "?", "#", "/%2e",
	"/public/..", "/svc", "/admin", "/svc/admin", "%3b", "%3f", "%23", "..", ".", "...", "~", "*", ":", "@", "\t", " ", "\x00", "\x7f", "\xc3\xa4", "\"", "<", "[",
}

func mutateTarget(c *conversation, d *draft) {
	path, query, hasQuery := strings.Cut(d.target, "?")
	i := c.IntN(len(path) + 1)
	switch c.IntN(6) {
	case 0: // an octet by its number
		if i < len(path) {
			format := pick(c, []string{"%%%02x", "%%%02X", "%%25%02x", "%%u00%02x"})
			path = path[:i] + fmt.Sprintf(format, path[i]) + path[i+1:]
		}
	case 1:
		path = swapCase(path, i)
	case 2: // out of somewhere and back to a route
		path += pick(c, traversals) + pick(c, traversals) + pick(c, c.routes).path
	case 3: // from outside into where it was
		path = pick(c, c.routes).path + pick(c, traversals) + path
	default:
		path = path[:i] + pick(c, traversals) + path[i:]
	}
	d.retarget(path, query, hasQuery)
}

// retarget puts a path into the request, and notes whether its first line can
// still be read in one way only.
func (d *draft) retarget(path, query string, hasQuery bool) {
	d.target = path
	if hasQuery {
		d.target += "?" + query
	}
	if strings.ContainsAny(d.target, " \t\r\n") || d.target == "" {
		d.lined = false
	}
}

func swapCase(text string, i int) string {
	if i >= len(text) {
		return text
	}
	letter := text[i]
	switch {
	case 'a' <= letter && letter <= 'z':
		letter -= 'a' - 'A'
	case 'A' <= letter && letter <= 'Z':
		letter += 'a' - 'A'
	}
	return text[:i] + string(letter) + text[i+1:]
}

func absoluteForm(c *conversation, d *draft) {
	if !strings.HasPrefix(d.target, "/") {
		return
	}
	host := d.host
	if c.one(2) {
		host = pick(c, c.routes).exampleHost() // another than Host says
	}
	authority := pick(c, []string{host, host, host, host + ":80", host + ".", strings.ToUpper(host), "user@" + host, "beside.test@" + host, host + "%00", host + "#", host + `\`, "", host + ":http", "%62eside.test"})
	d.target = pick(c, []string{"http://", "http://", "http://", "HTTP://", "https://", "ftp://", "http:", "//", "h2c://", "http:/"}) + authority + d.target
}

func anyTarget(c *conversation, d *draft) {
	d.target = pick(c, refusedTargets).target
	d.lined = false
}

func mutateHost(c *conversation, d *draft) {
	host := pick(c, c.routes).exampleHost()
	switch c.IntN(9) {
	case 0:
		d.hosts = nil
	case 1:
		d.hosts = append(d.hosts, host) // never to be let through
	case 2:
		d.setHost(strings.ToUpper(d.host))
	case 3:
		d.setHost(d.host + pick(c, []string{".", ":80", ":8080", ".:443", ":", ":x", ":99999", "..", " ", "\t", ",", "/", "?", "#", "@x", `\`}))
	case 4:
		d.setHost(pick(c, []string{"", " ", "[::1]", "127.0.0.1", "localhost", "*", "a b", "evil@" + host, host + ", " + d.host, "\x00", "x\xff"}))
	case 5:
		d.lines = append(d.lines, pick(c, []string{"Host : ", "Host\t: ", " Host: ", "X-Host: ", "Host_: "})+host)
		d.framed = false // it may be a continuation of what comes before it
	default:
		d.setHost(host)
	}
}

// setHost changes what Host says.
func (d *draft) setHost(host string) { d.hosts = []string{host} }

// ordinaryFields may be sent by anybody, and are for the service.
var ordinaryFields = []string{
	"Accept: */*", "Accept-Encoding: gzip", "User-Agent: x", "Cookie: a=b", "Range: bytes=0-1", "If-None-Match: \"x\"", "TE: trailers", "TE: gzip, chunked",
	"Content-Type: text/plain", "Origin: https://evil.example", "Referer: /svc", "Via: 1.1 evil", "X-Own: 1", "Max-Forwards: 0", "Cache-Control: no-cache",
	"Date: x", "Early-Data: 1", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Pragma:", "Keep-Alive: timeout=5",
	"Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eA==", "Trailer: X-Snowgate-Client", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA", "Content-Encoding: gzip", "Access-Control-Request-Method: GET",
}

func addField(c *conversation, d *draft) {
	if c.one(3) {
		d.lines = append(d.lines, pick(c, ordinaryFields))
		return
	}
	name := pick(c, append(append(append([]string{}, tokenFields...), hearsayFields...), "X-Snowgate-", "X-Snowgate", "X-Snowgate-Anything", "Authorization-", "X-Forwarded-Anything"))
	value := pick(c, []string{evil, evil + ".test", "worker " + evil, "/svc/" + evil, "1, " + evil})
	switch c.IntN(6) {
	case 0:
		value = "b\r\n " + value // folded: all of it is the value of the line before
	case 1:
		d.lines = append(d.lines, "X-Folded: a\r\n\t"+respell(c, name)+": "+value)
		return
	}
	d.lines = append(d.lines, respell(c, name)+pick(c, []string{": ", ":", ":\t", ":  "})+value)
}

// respell writes the name of a field in another way.
func respell(c *conversation, name string) string {
	text := []byte(name)
	for i := range text {
		switch {
		case text[i] == '-' && c.one(3):
			text[i] = pick(c, []byte("_.~!#$%&'*+^`|-"))
		case c.one(6):
			text[i] = swapCase(string(text[i]), 0)[0]
		}
	}
	name = string(text)
	if c.one(8) {
		name += pick(c, []string{"_", "-", ".", " ", "\t", "\x00", ":", "\xc2\xa0", "\u200b", ";"})
	}
	if c.one(10) {
		name = pick(c, []string{"_", "-", " ", "HTTP_", "\t"}) + name
	}
	return name
}

func nominate(c *conversation, d *draft) {
	name := pick(c, append(append([]string{}, tokenFields...), "X-Forwarded-For", "X-Request-Id", "Host", "Content-Length", "Transfer-Encoding", "X-Seal", "Traceparent", "Authorization", "close", "keep-alive", "upgrade", "te", ""))
	if strings.EqualFold(name, "te") && c.one(2) {
		name += ", " + pick(c, tokenFields)
	}
	d.lines = append(d.lines, pick(c, []string{"Connection: ", "connection:", "CONNECTION: ", "Connection: ,", "Connection:\r\nConnection: ", "Proxy-Connection: ", "Connection: close, "})+swapCase(name, c.IntN(len(name)+1)))
}

// secondAuthorization shows a token in a place where it is none, or beside
// another: who shows two is refused, whatever they are.
func secondAuthorization(c *conversation, d *draft) {
	good := c.tokens[c.worker.ID]
	switch c.IntN(6) {
	case 0:
		d.lines = append(d.lines, pick(c, []string{"Cookie: access_token=", "X-Access-Token: ", "Proxy-Authorization: Bearer ", "X-Authorization: Bearer ", "Authorization_: Bearer ", "X-Auth: Bearer ", "X-Api-Key: "})+good)
	case 1:
		path, query, _ := strings.Cut(d.target, "?")
		d.retarget(path, query+"&access_token="+good, true)
	default:
		if d.token == "" {
			// The only one, and not where it usually is.
			d.token = "Bearer " + good
			d.client = c.worker.ID
			return
		}
		d.lines = append(d.lines, "Authorization: "+pick(c, []string{"Bearer " + good, "Bearer x", "Basic eDp5", ""}))
	}
}

func mutateMethod(c *conversation, d *draft) {
	d.method = pick(c, []string{
		"OPTIONS", "TRACE", "CONNECT", "PROPFIND", "PURGE", "get", "Get", "G\tET", "GET\x00", "", "GET ", " GET", "PRI", "M-SEARCH", "GET/svc", "X" + strings.Repeat("Y", 100), "\"GET\"", "PUT", "TRACK", "DEBUG", "SUBSCRIBE",
	})
	if strings.ContainsAny(d.method, " \t\x00\"/") || d.method == "" {
		d.lined, d.odd = false, true
	}
}

func mutateVersion(c *conversation, d *draft) {
	d.version = pick(c, []string{"HTTP/1.0", "HTTP/1.0", "HTTP/0.9", "", "HTTP/2.0", "HTTP/1.2", "HTTP/1.10", "http/1.1", "HTTP/1.1 ", " HTTP/1.1", "HTTP/1.1 HTTP/1.1", "HTTP/1", "HTTP/3", "HTTP/1.1x", "HTTPS/1.1", "HTTP /1.1"})
	d.tamper()
	if d.version != "HTTP/1.0" {
		d.lined = false
	}
}

// tamper notes that where the request ends is no longer beyond doubt.
func (d *draft) tamper() {
	d.framed, d.odd = false, true
}

// framings are lines that say how long a body is, or seem to.
var framings = []string{
	"Content-Length: 0", "Content-Length: 1", "Content-Length: 5", "Content-Length: 30", "Content-Length: 4000", "Content-Length: +5", "Content-Length: -1", "Content-Length: 0x5", "Content-Length: 5, 5",
	"Content-Length: 5, 6", "Content-Length: 5 6", "Content-Length:", "Content-Length: 05", "Content-Length : 5", "Content-Length: 5;x", "Content_Length: 5", "Content-Length: \t5", "Content-Length: 5\x0b",
	"Content-Length: 18446744073709551621", "CONTENT-LENGTH: 5",
	"Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "transfer-encoding:chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, identity",
	"Transfer-Encoding: chunked, chunked", "Transfer-Encoding: x", "Transfer-Encoding:\tchunked", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding:\r\n chunked", "Transfer_Encoding: chunked",
	"X: y\r\n Transfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked", "X: y\rTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "Transfer-Encoding: ", "Transfer-Encoding: chunked;q=1",
	"Foo: bar\r\n\r\n", "Content-Type: multipart/byteranges; boundary=x", "Expect: 100-continue", "Content-Length: 5\r\n\r\nhello", "TE: chunked",
}

func mutateFraming(c *conversation, d *draft) {
	d.tamper()
	switch c.IntN(5) {
	case 0:
		d.framing = nil
	case 1:
		d.framing = []string{pick(c, framings)}
	case 2:
		d.framing = append([]string{pick(c, framings)}, d.framing...)
	default:
		d.framing = append(d.framing, pick(c, framings))
	}
	if d.payload == "" {
		d.payload = pick(c, []string{"", c.content(), c.chunks(c.content()), "0\r\n\r\n" + c.content()})
	}
}

func mutateChunks(c *conversation, d *draft) {
	d.tamper()
	body := c.content()
	n := len(body)
	d.framing = []string{"Transfer-Encoding: chunked"}
	d.payload = pick(c, []string{
		fmt.Sprintf("%x\n%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("%x\r\n%s\n0\r\n\r\n", n, body), fmt.Sprintf("%x;x\n\r\n%s\r\n0\r\n\r\n", n, body),
		fmt.Sprintf("%x;x=\"\r\n%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("0x%x\r\n%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("+%x\r\n%s\r\n0\r\n\r\n", n, body),
		fmt.Sprintf(" %x \r\n%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("%x\t\r\n%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("%x\r\n%s0\r\n\r\n", n, body),
		fmt.Sprintf("%x\r\n%s\r\n0\r\n", n+1, body), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", max(n-1, 0), body), fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Snowgate-Client: evil\r\n\r\n", n, body),
		fmt.Sprintf("%x\r\n%s\r\n0\r\nContent-Length: 5\r\nHost: evil\r\nAuthorization: Bearer x\r\n\r\n", n, body), fmt.Sprintf("%x\r\n%s\r\n00\r\n\r\n", n, body),
		fmt.Sprintf("%x\r%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("%x\r\r\n%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("%017x\r\n%s\r\n0\r\n\r\n", n, body), fmt.Sprintf("%x\r\n%s\r\n0\n\n", n, body),
		fmt.Sprintf("%x\r\n%s\r\n0\r\n: evil\r\n\r\n", n, body), fmt.Sprintf("%x\r\n%s\r\n0\r\n \r\n\r\n", n, body), "ffffffffffffffff\r\n" + body, "7fffffffffffffff\r\n" + body, "\r\n" + body, "0;\r\n\r\n" + body,
	})
}

// cutShort leaves out the end, so that the next request comes where the rest was
// expected.
func cutShort(c *conversation, d *draft) {
	d.tamper()
	if len(d.payload) > 0 {
		d.payload = d.payload[:c.IntN(len(d.payload))]
		return
	}
	d.framing = []string{fmt.Sprintf("Content-Length: %d", 1+c.IntN(400))}
}

func mutateLineEnds(c *conversation, d *draft) {
	d.tamper()
	d.lined = false
	d.end = pick(c, []string{"\n", "\n", "\r", "\r\r\n", "\n\r\n", "\r\n ", "\x00\r\n", "\x0b\r\n", " \r\n", "\u0085", "\r\n\r\n"})
}

// mutateBytes tampers with a byte of a line.
func mutateBytes(c *conversation, d *draft) {
	d.tamper()
	lines := d.lines
	if len(lines) == 0 {
		lines = d.framing
	}
	if len(lines) == 0 {
		return
	}
	i := c.IntN(len(lines))
	at := c.IntN(len(lines[i]) + 1)
	lines[i] = lines[i][:at] + pick(c, []string{"\x00", "\r", "\n", "\r\n", " ", "\t", ":", "\xff", "\x7f", ",", ";", "\r\n\r\n", "\n\n", "\r\n ", "\x08", "\u212a"}) + lines[i][at:]
}

func expect(c *conversation, d *draft) {
	d.lines = append(d.lines, "Expect: "+pick(c, []string{"100-continue", "100-Continue", "100-continue, x", "x", "", "200-ok"}))
}

func upgrade(c *conversation, d *draft) {
	protocol := pick(c, []string{"websocket", "h2c", "WebSocket", "TLS/1.0", "websocket, h2c", "", "x", "HTTP/2.0"})
	d.lines = append(d.lines, "Connection: Upgrade"+pick(c, []string{"", ", HTTP2-Settings", ", X-Snowgate-Client", ", close"}), "Upgrade: "+protocol)
	if c.one(2) {
		d.lines = append(d.lines, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
	}
	d.tamper() // what comes behind may be no longer HTTP
}
