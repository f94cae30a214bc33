package integration_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// conversation is what is sent on one connection.
type conversation struct {
	*town
	*rand.Rand
	number   uint64
	text     string // over HTTP/1.1
	requests []*sent
	streams  []*stream // over HTTP/2
}

// draft is a request in the making.
type draft struct {
	*sent
	version string
	hosts   []string // Host lines
	lines   []string // further lines of the header
	token   string   // the value of Authorization, empty for none
	framing []string // lines of the header
	payload string   // the bytes behind it
	end     string   // of lines
	odd     bool     // its bytes were tampered with: what comes behind may be part of it
}

// newConversation makes the conversation of that number in the run of a seed.
func newConversation(w *town, seed, number uint64) *conversation {
	c := &conversation{town: w, Rand: rand.New(rand.NewPCG(seed, number)), number: number}
	if c.IntN(4) == 0 {
		c.composeHTTP2()
		return c
	}
	count := 1 + c.IntN(5)
	odd := false
	for i := range count {
		d := c.draft(i == count-1)
		for range c.IntN(3) { // none at all in a third of them
			pick(c, mutations)(c, d)
		}
		if odd { // its beginning may be taken for the rest of the one before
			d.framed, d.lined = false, false
		}
		odd = odd || d.odd
		d.host = d.effectiveHost()
		if d.showsTwice() {
			d.client = "" // nobody may be believed
		}
		c.text += d.String()
	}
	for _, s := range c.requests {
		s.text, s.conversation = c.text, number
		if odd && s.hidden { // and perhaps not in a body
			s.framed, s.lined = false, false
		}
	}
	return c
}

func pick[T any](c *conversation, list []T) T { return list[c.IntN(len(list))] }

// one reports true once in n times.
func (c *conversation) one(n int) bool { return c.IntN(n) == 0 }

// enter puts a request into the ledger.
func (c *conversation) enter(s *sent) *sent {
	c.ledger.add(s)
	c.requests = append(c.requests, s)
	return s
}

// place is a host and a path, of a route or near one.
func (c *conversation) place() (host, target string) {
	r := pick(c, c.routes)
	host, target = r.exampleHost(), r.path
	if c.one(6) {
		host = pick(c, c.routes).exampleHost()
	}
	target = strings.TrimSuffix(target, "/") + pick(c, []string{"/x", "/x/y", "", "/", "/a%20b", "/x?q=1", "/x?a;b&c=%zz", "/svc/x", "/x;v=1", "/%C3%A4", "/x%3Fy"})
	if target == "" {
		target = "/"
	}
	return host, target
}

// shows returns a value of Authorization and whose good token it is.
func (c *conversation) shows() (value, client string) {
	switch c.IntN(8) {
	case 0, 1:
		return "", ""
	case 2:
		return "Bearer " + pick(c, c.bad), ""
	case 3:
		return "Bearer " + c.tokens[c.other.ID], c.other.ID
	case 4:
		good := c.tokens[c.worker.ID]
		return pick(c, []string{"Basic " + good, good, "Bearer " + good + ", Bearer " + good, "Bearer \"" + good + "\"", "Bearer " + good + " x", "Bearer\t" + good + "x", "Token " + good}), ""
	default:
		return pick(c, []string{"Bearer ", "bearer ", "BEARER "}) + c.tokens[c.worker.ID], c.worker.ID
	}
}

// draft makes a request that is in order. The last ends the connection.
func (c *conversation) draft(last bool) *draft {
	host, target := c.place()
	token, client := c.shows()
	s := c.enter(&sent{method: "GET", target: target, host: host, client: client, framed: true, lined: true})
	d := &draft{sent: s, version: "HTTP/1.1", hosts: []string{host}, token: token, end: "\r\n"}
	if last {
		d.lines = append(d.lines, "Connection: close")
	}
	switch c.IntN(4) {
	case 0:
		s.method = pick(c, []string{"POST", "PUT", "PATCH", "DELETE", "REPORT"})
		s.body = c.content()
		d.framing, d.payload = []string{fmt.Sprintf("Content-Length: %d", len(s.body))}, s.body
	case 1:
		s.method = pick(c, []string{"POST", "PUT", "GET"})
		s.body = c.content()
		d.framing, d.payload = []string{"Transfer-Encoding: chunked"}, c.chunks(s.body)
	default:
		if last && c.one(4) {
			s.method = "HEAD"
		}
	}
	return d
}

// content is a body: a request is in most of them.
func (c *conversation) content() string {
	if c.one(4) {
		return strings.Repeat("x", c.IntN(5000))
	}
	text := c.hiddenRequest()
	if c.one(2) {
		text = pick(c, []string{"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "\r\n\r\n", "x"}) + text
	}
	return text
}

// hiddenRequest is a request in the body of another: with what it takes to be
// believed by a service, if it ever gets to one as a request.
func (c *conversation) hiddenRequest() string {
	host, target := c.place()
	token, client := c.shows()
	s := c.enter(&sent{method: "GET", target: target, host: host, client: client, framed: true, lined: true, hidden: true})
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nX-Tag: %d\r\n", target, host, s.serial)
	if token != "" {
		text += "Authorization: " + token + "\r\n"
	}
	if c.one(2) {
		text += "X-Snowgate-Client: worker\r\nX-Snowgate-Scope: svc.use\r\nX-Snowgate-Token-Id: " + publicID(c.tokens[c.worker.ID]) +
			"\r\nX-Snowgate-Token-Expires: 2100-01-01T00:00:00Z\r\n"
	}
	return text + "\r\n"
}

// chunks frames a body in the chunked coding.
func (c *conversation) chunks(body string) string {
	var text strings.Builder
	for body != "" {
		n := 1 + c.IntN(len(body))
		size := strconv.FormatInt(int64(n), 16)
		if c.one(4) {
			size = strings.ToUpper(size)
		}
		if c.one(6) {
			size = "0" + size + pick(c, []string{"", ";x", ";x=y", ";x=\"y\""})
		}
		text.WriteString(size + "\r\n" + body[:n] + "\r\n")
		body = body[n:]
	}
	return text.String() + "0\r\n\r\n"
}

// effectiveHost returns the host that the request is for: that of its target, or
// else what Host says (RFC 9112 §3.2.2).
func (d *draft) effectiveHost() string {
	if i := strings.Index(d.target, "://"); i > 0 && d.target[0] != '/' {
		authority, _, _ := strings.Cut(d.target[i+3:], "/")
		authority, _, _ = strings.Cut(authority, "?")
		return authority
	}
	if len(d.hosts) == 0 {
		return ""
	}
	return d.hosts[0]
}

// showsTwice reports whether there is more than one Authorization line before the
// header ends, wherever that is by now.
func (d *draft) showsTwice() bool {
	head := strings.ReplaceAll(d.String(), "\r\n", "\n")
	head, _, _ = strings.Cut(head, "\n\n")
	return strings.Count(head, "\nAuthorization:") > 1
}

// String returns the bytes of the request. X-Tag and Authorization come first and
// stay together, so that what arrives tells what was shown with it.
func (d *draft) String() string {
	var text strings.Builder
	text.WriteString(d.method + " " + d.target)
	if d.version != "" {
		text.WriteString(" " + d.version)
	}
	text.WriteString(d.end)
	fmt.Fprintf(&text, "X-Tag: %d\r\n", d.serial)
	if d.token != "" {
		text.WriteString("Authorization: " + d.token + "\r\n")
	}
	for _, host := range d.hosts {
		text.WriteString("Host: " + host + d.end)
	}
	for _, line := range d.lines {
		text.WriteString(line + d.end)
	}
	for _, line := range d.framing {
		text.WriteString(line + d.end)
	}
	return text.String() + d.end + d.payload
}

// patienceOfFuzzer is how long it waits for a response that may never come.
const patienceOfFuzzer = 250 * time.Millisecond

// hold sends a conversation and reads the responses, which must be to its own
// requests, and in their order.
func (w *town) hold(c *conversation) {
	w.requests.Add(int64(len(c.requests)))
	conn, err := net.Dial("tcp", w.Addr)
	if err != nil {
		w.fault("conversation %d: the gateway is gone: %v", c.number, err)
		return
	}
	defer conn.Close()
	if c.streams != nil {
		c.holdHTTP2(conn)
		return
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = io.WriteString(conn, c.text)
	}()
	c.readResponses(bufio.NewReader(conn), conn)
	_ = conn.Close()
	<-written
}

func (c *conversation) readResponses(in *bufio.Reader, conn net.Conn) {
	var latest uint64
	half := false
	for {
		_ = conn.SetReadDeadline(time.Now().Add(patienceOfFuzzer))
		if _, err := in.Peek(1); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() && !half {
				half = true
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
				continue
			}
			return
		}
		method := http.MethodGet
		if len(c.requests) > 0 && c.requests[len(c.requests)-1].method == http.MethodHead && !c.requests[len(c.requests)-1].hidden {
			method = c.methodOfResponse(in)
		}
		response, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return
		}
		c.statuses.add(response.StatusCode)
		if response.StatusCode >= http.StatusOK {
			c.wantOrder(response, &latest)
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				return
			}
		}
		_ = response.Body.Close()
		if response.Close {
			return
		}
	}
}

// methodOfResponse returns HEAD if the next response is that to the last request, by
// its tag or because the connection ends with it.
func (c *conversation) methodOfResponse(in *bufio.Reader) string {
	head, _ := in.Peek(in.Buffered())
	text, _, _ := strings.Cut(string(head), "\r\n\r\n")
	if strings.Contains(text, "\r\nConnection: close") {
		return http.MethodHead
	}
	return http.MethodGet
}

// wantOrder checks that a response of a service is to a request of this
// conversation that comes after the one answered before.
func (c *conversation) wantOrder(response *http.Response, latest *uint64) {
	echo := response.Header.Get("X-Echo")
	if echo == "" {
		return
	}
	serial, _ := strconv.ParseUint(echo, 10, 64)
	s := c.ledger.find(serial)
	switch {
	case s == nil || s.conversation != c.number:
		c.fault("conversation %d: an answer to request %q, which is not one of its own; sent %q", c.number, echo, c.text)
	case serial <= *latest:
		c.fault("conversation %d: the answer to request %d comes after that to %d; sent %q", c.number, serial, *latest, c.text)
	}
	*latest = serial
}
