package integration_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// stream is a request over HTTP/2, field by field.
type stream struct {
	*sent
	fields   [][2]string
	trailers [][2]string // nil: none
	data     []string    // a frame each
	split    bool        // the header is spread over CONTINUATION frames
	reset    bool        // it is cancelled at once
	unended  bool        // it is left open
	priority bool
	padded   bool
}

// composeHTTP2 makes the streams of a connection.
func (c *conversation) composeHTTP2() {
	for range 1 + c.IntN(8) {
		s := c.newStream()
		for range c.IntN(3) {
			pick(c, streamMutations)(c, s)
		}
		s.host = cmp.Or(s.value(":authority"), s.value("host"))
		if s.differs() {
			s.host = "" // on no route: it is malformed
		}
		c.streams = append(c.streams, s)
	}
	text := c.describe()
	for _, s := range c.requests {
		s.conversation, s.text = c.number, text
	}
}

// describe returns the streams for the report of a fault.
func (c *conversation) describe() string {
	var text strings.Builder
	for _, s := range c.streams {
		fmt.Fprintf(&text, "%q %q %q; ", s.fields, s.data, s.trailers)
	}
	return text.String()
}

func (c *conversation) newStream() *stream {
	host, target := c.place()
	token, client := c.shows()
	s := &stream{sent: c.enter(&sent{method: "GET", target: target, host: host, client: client, framed: true, lined: true})}
	if c.one(3) {
		s.method, s.body = pick(c, []string{"POST", "PUT"}), c.content()
		for rest := s.body; rest != ""; {
			n := 1 + c.IntN(len(rest))
			s.data = append(s.data, rest[:n])
			rest = rest[n:]
		}
	}
	s.fields = [][2]string{{":method", s.method}, {":scheme", "http"}, {":authority", host}, {":path", target}, {"x-tag", strconv.FormatUint(s.serial, 10)}}
	if token != "" {
		s.fields = append(s.fields, [2]string{"authorization", token})
	}
	if s.data != nil && c.one(2) {
		s.fields = append(s.fields, [2]string{"content-length", strconv.Itoa(len(s.body))})
	}
	return s
}

// set changes the value of a field.
func (s *stream) set(name, value string) {
	for i := range s.fields {
		if s.fields[i][0] == name {
			s.fields[i][1] = value
		}
	}
}

// differs reports whether several fields say which host is asked, and not the same
// (RFC 9113 §8.3.1).
func (s *stream) differs() bool {
	hosts := 0
	for _, f := range s.fields {
		if f[0] == "host" {
			hosts++
		}
	}
	authority := s.value(":authority")
	return hosts > 1 || hosts == 1 && authority != "" && authority != s.value("host")
}

// value returns the value of a field, the first of several.
func (s *stream) value(name string) string {
	for i := range s.fields {
		if s.fields[i][0] == name {
			return s.fields[i][1]
		}
	}
	return ""
}

func (s *stream) has(name string) bool {
	for i := range s.fields {
		if s.fields[i][0] == name {
			return true
		}
	}
	return false
}

// streamMutations are what the fuzzer does to requests over HTTP/2.
var streamMutations = []func(*conversation, *stream){
	mutatePath, mutatePath, mutatePath,
	mutateAuthority, mutateAuthority,
	mutatePseudo, mutatePseudo,
	addStreamField, addStreamField, addStreamField, addStreamField,
	connectionFields, streamLength, streamTrailers, secondStreamAuthorization,
	func(_ *conversation, s *stream) { s.split = true },
	func(_ *conversation, s *stream) { s.reset = true },
	func(_ *conversation, s *stream) { s.unended, s.framed = true, false },
	func(_ *conversation, s *stream) { s.priority, s.padded = true, true },
}

// mutatePath does to :path what is done to targets.
func mutatePath(c *conversation, s *stream) {
	d := &draft{sent: s.sent}
	pick(c, []func(*conversation, *draft){mutateTarget, mutateTarget, absoluteForm, anyTarget})(c, d)
	s.set(":path", s.target)
}

func mutateAuthority(c *conversation, s *stream) {
	host := pick(c, c.routes).exampleHost()
	switch c.IntN(6) {
	case 0: // beside it, and other than it says (RFC 9113 §8.3.1)
		s.fields = append(s.fields, [2]string{"host", host})
	case 1:
		s.remove(":authority")
		s.fields = append(s.fields, [2]string{"host", host})
	case 2:
		host += pick(c, []string{".", ":80", ":", ":x", "/", "@x", " ", "\x00", "?", "#", ",", "%"})
	case 3:
		host = pick(c, []string{"", "evil@" + host, host + ", x.test", strings.ToUpper(host), "[::1]", "*"})
	}
	s.set(":authority", host)
}

func (s *stream) remove(name string) {
	for i := range s.fields {
		if s.fields[i][0] == name {
			s.fields = append(s.fields[:i:i], s.fields[i+1:]...)
			return
		}
	}
}

// mutatePseudo leaves out, repeats, moves or spoils a pseudo-header field.
func mutatePseudo(c *conversation, s *stream) {
	name := pick(c, []string{":method", ":scheme", ":authority", ":path"})
	switch c.IntN(7) {
	case 0:
		s.remove(name)
		s.lined = s.lined && name != ":method" && name != ":path"
	case 1: // twice
		s.fields = append([][2]string{{name, pick(c, []string{"", "/public/x", "GET", "http", "beside.test"})}}, s.fields...)
		s.lined = false
	case 2: // behind ordinary fields
		s.fields = append(s.fields, [2]string{name, pick(c, []string{"/public/x", "GET", "http", "below.test"})})
		s.lined = false
	case 3:
		s.fields = append([][2]string{{pick(c, []string{":protocol", ":status", ":x", ":", ":PATH", ": path", ":host"}), pick(c, []string{"websocket", "200", "/public/x", "below.test"})}}, s.fields...)
	case 4:
		s.method = pick(c, []string{"CONNECT", "TRACE", "OPTIONS", "get", "GET /public/x HTTP/1.1\r\nHost: x\r\n\r\n", "G T", "", "GET\x00", "PRI", "HEAD"})
		s.set(":method", s.method)
	case 5:
		s.set(":scheme", pick(c, []string{"https", "", "ftp", "http://x/", "HTTP", "http\r\n"}))
	default:
		s.set(":path", pick(c, []string{"*", "", "svc/x", "/svc/x HTTP/1.1\r\nHost: below.test\r\nX: y", "/svc\r\n", "/svc\x00", "//svc", "?", "http://below.test/svc"}))
		s.lined = false
	}
}

func addStreamField(c *conversation, s *stream) {
	if c.one(4) {
		name, value, _ := strings.Cut(pick(c, ordinaryFields), ": ")
		if name != "Connection" {
			s.fields = append(s.fields, [2]string{strings.ToLower(name), value})
		}
		return
	}
	name := strings.ToLower(respell(c, pick(c, append(append([]string{}, tokenFields...), hearsayFields...))))
	if c.one(8) {
		name = swapCase(name, c.IntN(len(name)))
	}
	value := pick(c, []string{evil, evil, "a\r\nx-snowgate-client: " + evil, "a\nx: " + evil, evil + "\x00", " " + evil + " ", "b\r\n " + evil})
	if c.one(4) {
		name, value = pick(c, []string{"x\r\nx-snowgate-client", "x-own: 1\r\nx-snowgate-client", "x own", "", "x\x00", "x:y", "cookie", "transfer-encoding\r\n"}), evil
	}
	field := [2]string{name, value}
	if c.one(3) {
		s.fields = append([][2]string{field}, s.fields...) // before the pseudo-header fields
		return
	}
	s.fields = append(s.fields, field)
}

func connectionFields(c *conversation, s *stream) {
	s.fields = append(s.fields, pick(c, [][2]string{
		{"connection", "x-snowgate-client"}, {"connection", "close"}, {"transfer-encoding", "chunked"}, {"upgrade", "websocket"}, {"te", "trailers"}, {"te", "gzip"},
		{"keep-alive", "x"}, {"proxy-connection", "x"}, {"http2-settings", "x"}, {"expect", "100-continue"}, {"expect", "x"}, {"trailer", "x-snowgate-client"}, {"cookie", "a=b"}, {"cookie", "c=d"},
	}))
}

// streamLength says another length than there are bytes (RFC 9113 §8.1.1).
func streamLength(c *conversation, s *stream) {
	s.framed = false
	s.fields = append(s.fields, [2]string{"content-length", pick(c, []string{"0", "1", "5", "100000", "-1", "+1", "x", "", "18446744073709551616", "1, 1"})})
	if s.data == nil && c.one(2) {
		s.body = c.content()
		s.data = []string{s.body}
	}
}

func streamTrailers(c *conversation, s *stream) {
	s.trailers = [][2]string{pick(c, [][2]string{
		{"x-snowgate-client", evil}, {"x_snowgate_client", evil}, {"authorization", "Bearer x"}, {":path", "/svc/admin"}, {"x-sum", "1"}, {"host", "below.test"}, {"content-length", "5"},
		{"X-Upper", "1"}, {"x-forwarded-for", evil}, {"transfer-encoding", "chunked"}, {"x\r\nx-snowgate-client", evil},
	})}
	if c.one(2) {
		s.fields = append(s.fields, [2]string{"trailer", s.trailers[0][0]})
	}
}

func secondStreamAuthorization(c *conversation, s *stream) {
	good := "Bearer " + c.tokens[c.worker.ID]
	if !s.has("authorization") {
		s.fields = append(s.fields, [2]string{"cookie", "access_token=" + good})
		return
	}
	s.fields = append(s.fields, [2]string{"authorization", pick(c, []string{good, "Bearer x", ""})})
	s.client = ""
}

// holdHTTP2 sends the streams, one behind the other, and reads what comes back.
func (c *conversation) holdHTTP2(conn net.Conn) {
	var out bytes.Buffer
	framer := http2.NewFramer(&out, nil)
	framer.AllowIllegalWrites = true
	out.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i, s := range c.streams {
		s.write(framer, encoder, &block, uint32(2*i+1))
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = conn.Write(out.Bytes())
	}()
	c.readStreams(http2.NewFramer(conn, conn), conn)
	_ = conn.Close()
	<-written
}

func (s *stream) write(framer *http2.Framer, encoder *hpack.Encoder, block *bytes.Buffer, id uint32) {
	block.Reset()
	for _, f := range s.fields {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	bare := len(s.data) == 0 && s.trailers == nil && !s.unended
	first, rest := block.Bytes(), []byte(nil)
	if s.split && len(first) > 2 {
		first, rest = first[:len(first)/2], first[len(first)/2:]
	}
	headers := http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: bare, EndHeaders: rest == nil}
	if s.priority {
		headers.Priority = http2.PriorityParam{StreamDep: id, Exclusive: true, Weight: 255} // on itself (RFC 7540 §5.3.1)
		if id > 1 {
			headers.Priority.StreamDep = id - 2
		}
	}
	if s.padded {
		headers.PadLength = 17
	}
	_ = framer.WriteHeaders(headers)
	if rest != nil {
		_ = framer.WriteContinuation(id, true, rest)
	}
	if s.reset {
		_ = framer.WriteRSTStream(id, http2.ErrCodeCancel)
		return
	}
	for i, data := range s.data {
		_ = framer.WriteData(id, i == len(s.data)-1 && s.trailers == nil && !s.unended, []byte(data))
	}
	if s.trailers != nil && !s.unended {
		block.Reset()
		for _, f := range s.trailers {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	}
}

// readStreams reads until every stream that was ended has its response, or nothing
// comes any more.
func (c *conversation) readStreams(framer *http2.Framer, conn net.Conn) {
	open := make(map[uint32]bool)
	for i, s := range c.streams {
		if !s.reset && !s.unended {
			open[uint32(2*i+1)] = true
		}
	}
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for len(open) > 0 {
		_ = conn.SetReadDeadline(time.Now().Add(patienceOfFuzzer))
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			return
		case *http2.RSTStreamFrame:
			delete(open, f.StreamID)
		case *http2.MetaHeadersFrame:
			c.wantOwnStream(f)
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		}
		if headers := frame.Header(); headers.Flags.Has(http2.FlagDataEndStream) && (headers.Type == http2.FrameData || headers.Type == http2.FrameHeaders) {
			delete(open, headers.StreamID)
		}
	}
}

// wantOwnStream checks that a response of a service comes on the stream of the
// request that it is to.
func (c *conversation) wantOwnStream(f *http2.MetaHeadersFrame) {
	status, _ := strconv.Atoi(f.PseudoValue("status"))
	c.statuses.add(status)
	for _, field := range f.RegularFields() {
		i := int(f.StreamID-1) / 2
		if field.Name == "x-echo" && field.Value != "" && (i >= len(c.streams) || field.Value != strconv.FormatUint(c.streams[i].serial, 10)) {
			c.fault("conversation %d: the answer to request %s comes on stream %d; sent %s", c.number, field.Value, f.StreamID, c.describe())
		}
	}
}
