package integration_test

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"snowgate/integration/cuttest"
)

// sent is a request of a conversation, as it was meant. A request carries its
// serial number in X-Tag, on the line before its Authorization.
type sent struct {
	serial       uint64
	conversation uint64
	text         string // of the whole conversation, for the report
	method       string
	target       string // as it was sent
	host         string // as it was sent, of the target if it names one
	client       string // whose good token it shows in the right place; empty: nobody's
	body         string // what arrives as its body, if framed is true
	framed       bool   // nothing was done to how it is framed
	lined        bool   // nothing was done to what is in its first line, but to the target
	hidden       bool   // it is in the body of another

	arrived bool // guarded by the ledger
}

// tagLedger holds the requests of the latest conversations by their serial numbers.
type tagLedger struct {
	mu     sync.Mutex
	last   uint64
	by     map[uint64]*sent
	oldest uint64
}

// kept is how many requests are remembered. Whatever arrives comes soon.
const kept = 100_000

func newTagLedger() *tagLedger { return &tagLedger{by: make(map[uint64]*sent), oldest: 1} }

// add gives s its serial number.
func (l *tagLedger) add(s *sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	s.serial = l.last
	l.by[l.last] = s
	for l.last-l.oldest > kept {
		delete(l.by, l.oldest)
		l.oldest++
	}
}

func (l *tagLedger) find(serial uint64) *sent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[serial]
}

// arrive notes that s has arrived, and reports whether it is the first time.
func (l *tagLedger) arrive(s *sent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !s.arrived
	s.arrived = true
	return first
}

// newSpy starts the service of a route and returns its URL.
func newSpy(w *town, r *fuzzRoute) string {
	w.t.Helper()
	listener, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	listener = cuttest.Listener(listener)
	w.t.Cleanup(func() { _ = listener.Close() })
	if r.scheme == "h2c" {
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, request *http.Request) {
			w.overHTTP2(r, rw, request)
		}), Protocols: only((*http.Protocols).SetUnencryptedHTTP2)}
		w.t.Cleanup(func() { _ = server.Close() })
		go func() { _ = server.Serve(listener) }()
		return "h2c://" + listener.Addr().String()
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go w.listen(r, conn)
		}
	}()
	return "http://" + listener.Addr().String()
}

// arrival is a request that a spy has received.
type arrival struct {
	head     string // with its last empty line; of HTTP/2 as it would be in HTTP/1.1
	body     []byte
	complete bool
}

// listen reads the requests of one connection, byte by byte, and answers.
func (w *town) listen(r *fuzzRoute, conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 4<<10)
	for {
		head, err := readHead(in)
		if err != nil {
			if head != "" && errors.Is(err, io.EOF) {
				w.fault("route %s: a header broke off: %q", r.name, head)
			} else if errors.Is(err, errHead) {
				w.fault("route %s: bytes that are no header: %q", r.name, head)
			}
			return
		}
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
		if err != nil {
			w.fault("route %s: a header that is none, %v: %q", r.name, err, head)
			return
		}
		if request.Header.Get("Expect") != "" {
			_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		body, err := readBody(request, in)
		if errors.Is(err, errBody) {
			w.fault("route %s: %v behind %q", r.name, err, head)
			return
		}
		serial := w.judge(r, &arrival{head, body, err == nil})
		if err != nil {
			return // the client went away within the body
		}
		response := fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Echo: %s\r\nContent-Length: 2\r\n\r\nok", serial)
		if request.Method == http.MethodHead {
			response = strings.TrimSuffix(response, "ok")
		}
		if _, err := io.WriteString(conn, response); err != nil {
			return
		}
	}
}

var (
	errHead = errors.New("lines that are no header")
	errBody = errors.New("a body that is not framed as it should be")
)

// headLine is a field as a careful sender writes it (RFC 9112 §5): a name of
// tokens and a value without control characters, not folded.
var headLine = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n$")

// requestLine is a first line with a canonical origin-form, or OPTIONS *.
var requestLine = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+ (/[^?\x00-\x20\x7f#\\\\]*(\\?[^\x00-\x20\x7f#]*)?|\\*) HTTP/1\\.1\r\n$")

// readHead reads a header, which must not leave a reader a choice.
func readHead(in *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		head.WriteString(line)
		if err != nil {
			if errors.Is(err, syscall.ECONNRESET) || line == "" && head.Len() == 0 {
				return "", err
			}
			return head.String(), err
		}
		form := headLine
		if head.Len() == len(line) {
			form = requestLine
		} else if line == "\r\n" {
			return head.String(), nil
		}
		if !form.MatchString(line) {
			return head.String(), errHead
		}
	}
}

// readBody reads a body that is framed in one way and strictly. Another error
// than errBody says that the sender went away.
func readBody(request *http.Request, in *bufio.Reader) ([]byte, error) {
	if len(request.TransferEncoding) == 0 {
		length := max(request.ContentLength, 0)
		body := make([]byte, length)
		_, err := io.ReadFull(in, body)
		return body, err
	}
	var body bytes.Buffer
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseUint(strings.TrimSuffix(line, "\r\n"), 16, 31)
		if err != nil || !strings.HasSuffix(line, "\r\n") {
			return nil, fmt.Errorf("%w: a chunk begins with %q", errBody, line)
		}
		if _, err := io.CopyN(&body, in, int64(size)); err != nil {
			return nil, err
		}
		end, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if end != "\r\n" {
			return nil, fmt.Errorf("%w: a chunk ends with %q", errBody, end)
		}
		if size == 0 {
			return body.Bytes(), nil
		}
	}
}

// overHTTP2 receives a request over HTTP/2.
func (w *town) overHTTP2(r *fuzzRoute, rw http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	head := request.Method + " " + request.RequestURI + " HTTP/1.1\r\nHost: " + request.Host + "\r\n"
	for name, values := range request.Header {
		for _, value := range values {
			head += name + ": " + value + "\r\n"
		}
	}
	for name := range request.Trailer {
		if folded := fold(name); strings.HasPrefix(folded, "xsnowgate") || folded == "authorization" || isHearsay(folded) {
			w.fault("route %s: the trailer %s: %q", r.name, name, request.Trailer)
		}
	}
	serial := w.judge(r, &arrival{head + "\r\n", body, err == nil})
	rw.Header().Set("X-Echo", serial)
	_, _ = io.WriteString(rw, "ok")
}

// judge holds a request that has arrived on a route against what was sent. It
// returns the serial number of the request.
//
//  1. The gateway let it through itself, on this route, once: it has the seal.
//  2. It is a request that was sent as one, and it arrives once.
//  3. On a protected route, it was sent with a good token whose scopes suffice, and
//     says so, each identity field once and in no other spelling. On a public one
//     it says nothing.
//  4. Nothing that only the gateway may say was said by the client.
//  5. Its path is the one that was sent, belongs to this route, and has no reading
//     by which it belongs to another that asks for more.
//  6. Its method and its body are those that were sent, framed in one way.
func (w *town) judge(r *fuzzRoute, a *arrival) string {
	r.arrivals.Add(1)
	fields := fieldsOf(a.head)
	tags := valuesOf(fields, "X-Tag")
	fail := func(format string, arguments ...any) {
		w.fault("route %s: %s\nit received %q", r.name, fmt.Sprintf(format, arguments...), a.head)
	}
	if seals := valuesOf(fields, "X-Seal"); len(seals) != 1 || seals[0] != r.seal {
		fail("the request was not let through on this route, once: its seal is %q", seals)
	}
	if fault := overstated(fields); fault != "" {
		fail("%s", fault)
	}
	if r.name != "pass" && slices.ContainsFunc(fields, func(f field) bool { return fold(f.name) == "authorization" }) {
		fail("it is shown the client's credentials")
	}
	s, merged := w.whose(tags)
	if fault := w.misjudged(r, fields, s); fault != "" {
		fail("%s", w.withText(fault, s))
	}
	if s == nil {
		if len(tags) != 0 {
			fail("it has the tags %q", tags)
		}
		return ""
	}
	if merged {
		if fault := w.misread(r, s, targetOf(a.head)); fault != "" {
			fail("%s", w.withText(fault, s))
		}
		return tags[0]
	}
	if !w.ledger.arrive(s) {
		fail("%s", w.withText("it arrives for the second time", s))
	}
	if fault := w.misplaced(r, a, s); fault != "" {
		fail("%s", w.withText(fault, s))
	}
	return tags[0]
}

// whose returns the request that arrives with these tags. If line ends were
// tampered with, two may have become one, and then what is returned is a likeness
// of it.
func (w *town) whose(tags []string) (s *sent, merged bool) {
	for _, tag := range tags {
		serial, _ := strconv.ParseUint(tag, 10, 64)
		next := w.ledger.find(serial)
		switch {
		case next == nil:
			return nil, false
		case s == nil:
			s = next
		case s.framed || next.framed || next.conversation != s.conversation || s.client != "" && next.client != "":
			return nil, false
		default:
			both := *s
			both.client, both.lined, both.framed = cmp.Or(s.client, next.client), false, false
			s, merged = &both, true
		}
	}
	return s, merged
}

func (w *town) withText(fault string, s *sent) string {
	if s == nil {
		return fault
	}
	return fmt.Sprintf("%s\nrequest %d of conversation %d, sent %q", fault, s.serial, s.conversation, s.text)
}

func valuesOf(fields []field, name string) (values []string) {
	for _, f := range fields {
		if strings.EqualFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}

// evil is in every value that the fuzzer gives to a field that is not its own.
const evil = "evil"

// hearsayFields are what proxies say of a request, or what changes it into another.
var hearsayFields = []string{
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-User",
	"X-Forwarded-Uri", "X-Forwarded-Method", "Forwarded", "X-Real-Ip", "True-Client-Ip", "X-Original-Url", "X-Original-Uri",
	"X-Rewrite-Url", "X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "Proxy", "X-Client-Ip",
	"X-Request-Id",
}

var hearsayFolded = func() []string {
	var list []string
	for _, name := range hearsayFields {
		list = append(list, fold(name))
	}
	return list
}()

func isHearsay(folded string) bool { return slices.Contains(hearsayFolded, folded) }

// overstated tells which field says what only the gateway may say.
func overstated(fields []field) string {
	framing, hosts := 0, 0
	for _, f := range fields {
		folded := fold(f.name)
		known := slices.ContainsFunc(slices.Concat(tokenFields, requestFields), func(name string) bool { return strings.EqualFold(name, f.name) })
		switch {
		case (strings.HasPrefix(folded, "xsnowgate") || strings.HasPrefix(folded, "xforwarded")) && !known:
			return "the field " + f.name + " is not one of the gateway's"
		case (strings.HasPrefix(folded, "xsnowgate") || isHearsay(folded)) && strings.Contains(f.value, evil) && folded != "xforwardedhost":
			return "the field " + f.name + " is the client's"
		case folded == "host":
			hosts++
		case strings.EqualFold(f.name, "Content-Length"), strings.EqualFold(f.name, "Transfer-Encoding"):
			framing++
		case strings.EqualFold(f.name, "Trailer"), strings.EqualFold(f.name, "Keep-Alive"), strings.EqualFold(f.name, "Proxy-Connection"):
			return "the field " + f.name + " concerns one connection"
		}
	}
	for _, name := range requestFields {
		if _, fault := said("X\r\n"+linesOf(fields)+"\r\n", name); fault != "" {
			return fault
		}
	}
	if framing > 1 || hosts != 1 {
		return fmt.Sprintf("%d framings, %d hosts", framing, hosts)
	}
	return ""
}

func linesOf(fields []field) string {
	var text strings.Builder
	for _, f := range fields {
		text.WriteString(f.name + ": " + f.value + "\r\n")
	}
	return text.String()
}

// misjudged tells what is wrong with the verdict that a request came with.
func (w *town) misjudged(r *fuzzRoute, fields []field, s *sent) string {
	if r.scope == "" {
		for _, f := range fields {
			if strings.HasPrefix(fold(f.name), "xsnowgate") {
				return "an identity on a public route: " + f.name
			}
		}
		return ""
	}
	values := map[string]string{}
	for _, name := range tokenFields {
		value, fault := said("X\r\n"+linesOf(fields)+"\r\n", name)
		if fault != "" {
			return fault
		}
		values[name] = value
	}
	client := w.ids[values["X-Snowgate-Token-Id"]]
	switch {
	case client == "" || client != values["X-Snowgate-Client"]:
		return "an identity that was never issued"
	case !slices.Contains(strings.Fields(values["X-Snowgate-Scope"]), r.scope):
		return "a token without the scope " + r.scope
	case !r.reachable:
		return "nobody has a token for this route"
	case s == nil:
		return "nobody has sent it"
	case s.client != client:
		return fmt.Sprintf("it was sent with the token of %q", s.client)
	}
	return ""
}

// misplaced tells what is wrong with where a request went, and as what.
func (w *town) misplaced(r *fuzzRoute, a *arrival, s *sent) string {
	first, _, _ := strings.Cut(a.head, "\r\n")
	method, rest, _ := strings.Cut(first, " ")
	target, _, _ := strings.Cut(rest, " ")
	if s.hidden && s.framed {
		return "it was hidden in the body of another"
	}
	if !s.lined {
		return w.misread(r, s, target)
	}
	asked := originForm(s.target)
	if want := forwardedAs(r, asked); target != want {
		return fmt.Sprintf("its target is %q, want %q", target, want)
	}
	if method != s.method {
		return fmt.Sprintf("its method is %q, want %q", method, s.method)
	}
	if s.framed && a.complete && string(a.body) != s.body {
		return fmt.Sprintf("its body is %.300q, want %.300q", a.body, s.body)
	}
	return w.misread(r, s, target)
}

// originForm returns a target without scheme and authority.
func originForm(target string) string {
	if i := strings.Index(target, "://"); i > 0 && target[0] != '/' {
		rest := target[i+3:]
		if j := strings.IndexAny(rest, "/?#"); j >= 0 {
			if rest[j] != '/' {
				return "/" + rest[j:]
			}
			return rest[j:]
		}
		return "/"
	}
	return target
}

// forwardedAs returns what a route makes of a target.
func forwardedAs(r *fuzzRoute, target string) string {
	if !r.strip {
		return target
	}
	rest := strings.TrimPrefix(target, r.path)
	if !strings.HasPrefix(rest, "/") {
		rest = "/" + rest
	}
	return r.add + rest
}

// misread tells by which reading a target belongs to another route than the one
// it came on: as it is, decoded, with parameters stripped, with slashes merged,
// with backslashes turned, with dot segments removed.
func (w *town) misread(r *fuzzRoute, s *sent, target string) string {
	target, _, _ = strings.Cut(target, "?")
	if r.strip {
		target = strings.TrimSuffix(r.path+strings.TrimPrefix(target, r.add), "/")
	}
	host := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(s.host)), ".")
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = strings.TrimSuffix(host[:i], ".")
	}
	for _, reading := range readings(target) {
		if slices.Contains(strings.Split(reading, "/"), "..") {
			return fmt.Sprintf("its target can be read as %q", reading)
		}
		other := w.routeFor(host, reading)
		if other != r && other != nil && other.scope != "" {
			return fmt.Sprintf("its target for %q can be read as %q, which is on route %s", host, reading, other.name)
		}
	}
	if s.lined && w.routeFor(host, target) != r {
		return fmt.Sprintf("its target %q for %q is not on this route", target, host)
	}
	return ""
}

// readings are the paths that services take a target for.
func readings(target string) []string {
	decoded, err := url.PathUnescape(target)
	if err != nil {
		decoded = target
	}
	var list []string
	for _, reading := range []string{target, decoded} {
		slashed := strings.ReplaceAll(reading, `\`, "/")
		bare := withoutParameters(slashed)
		for _, candidate := range []string{reading, slashed, bare, strings.TrimRight(bare, "\x00")} {
			list = append(list, candidate, path.Clean("/"+candidate))
		}
	}
	return list
}
