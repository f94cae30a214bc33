package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"snowgate/integration/cuttest"
	"snowgate/integration/gatewaytest"
)

// TestWebSocketSuite goes through the cases of Autobahn's test suite for servers
// (the numbers are its own) with two servers that were written without one another,
// of coder/websocket and of ws for Node.js. What the gateway adds must be nothing:
// each case is held with the server itself and through the gateway, byte by byte,
// and both must see the same.
func TestWebSocketSuite(t *testing.T) {
	t.Parallel()
	s := newSocketStage(t)
	for _, server := range s.servers {
		t.Run(server.name, func(t *testing.T) {
			cases := socketCases()
			want, got := make([]socketRecord, len(cases)), make([]socketRecord, len(cases))
			var running sync.WaitGroup
			slots := make(chan struct{}, 16)
			for i, test := range cases {
				slots <- struct{}{}
				running.Go(func() {
					want[i] = holdSocket(server.address, "/", "", test)
					got[i] = holdSocket(s.Addr, server.path, s.token, test)
					<-slots
				})
			}
			running.Wait()
			answered := 0
			for i, test := range cases {
				if diff := cmp.Diff(want[i], got[i]); diff != "" {
					t.Errorf("%s: through the gateway (+) it is not as with the server itself (-):\n%s", test.name, diff)
				}
				if len(want[i].Frames) > 0 {
					answered++
				}
			}
			if most := len(cases); answered < most*3/4 {
				t.Errorf("%d of %d cases were answered: they test nothing", answered, most)
			}
		})
	}
}

// TestWebSocketClients drives two client libraries through the gateway, each
// against both servers.
func TestWebSocketClients(t *testing.T) {
	t.Parallel()
	s := newSocketStage(t)
	for _, server := range s.servers {
		t.Run("coder to "+server.name, func(t *testing.T) { s.useCoder(t, server) })
		t.Run("ws to "+server.name, func(t *testing.T) { s.useNode(t, server) })
	}
}

// socketServer is a server that echoes, and what it is reached by.
type socketServer struct {
	name, address, path string
}

type socketStage struct {
	*gatewaytest.Gateway
	servers []socketServer
	token   string
	node    string
}

func newSocketStage(t *testing.T) *socketStage {
	t.Helper()
	node := nodeWith(t, "ws")
	coder := cuttest.NewServer(http.HandlerFunc(serveSocket))
	t.Cleanup(coder.Close)
	s := &socketStage{node: node, servers: []socketServer{
		{"coder", coder.Listener.Addr().String(), "/coder"},
		{"ws", startNodeServer(t, node, "ws-server.mjs"), "/ws"},
	}}
	client := gatewaytest.NewClient("worker", "svc")
	var routes []string
	for _, server := range s.servers {
		routes = append(routes, `{name: `+server.name+`, path: `+server.path+`, upstreams: ["http://`+server.address+`"], scopes: [svc], websocket: true}`)
	}
	s.Gateway = gatewaytest.Start(t, gatewaytest.Options{Config: fileOf([]gatewaytest.Credentials{client}, routes...)})
	s.token = s.Token(client)
	return s
}

// startNodeServer starts a server that prints its port, and returns its address.
func startNodeServer(t *testing.T, node, script string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), node, filepath.Join("testdata", "interop", "node", script))
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s does not start: %v", script, err)
	}
	return "127.0.0.1:" + strings.TrimSpace(port)
}

// serveSocket is the server of coder/websocket. It does what ws-server.mjs does.
func serveSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{"b"}, CompressionMode: websocket.CompressionContextTakeover, CompressionThreshold: 1, InsecureSkipVerify: true,
	})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(-1)
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		text := ""
		if kind == websocket.MessageText {
			text = string(message)
		}
		words := strings.SplitN(text, " ", 3)
		switch {
		case len(words) == 3 && words[0] == "close":
			code, _ := strconv.Atoi(words[1])
			_ = conn.Close(websocket.StatusCode(code), words[2])
			return
		case text == "terminate":
			return
		case text == "ping": // its Ping tells nothing of the payload of the pong
			ctx := conn.CloseRead(r.Context())
			if conn.Ping(ctx) == nil {
				_ = conn.Write(r.Context(), websocket.MessageText, []byte("pong are you there?"))
			}
			<-ctx.Done() // nothing can be read from it any more
			return
		default:
			if err := conn.Write(r.Context(), kind, message); err != nil {
				return
			}
		}
	}
}

// socketCase is what a client sends once the connection stands.
type socketCase struct {
	name   string
	sends  []byte
	chop   int    // it is sent in pieces of that size; 0: at once
	header string // further lines of the handshake
	half   bool   // the client says that it sends no more, and waits
}

const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
	fin            = 0x80
)

// frame returns a frame of a client: first is FIN, RSV and opcode (RFC 6455 §5.2).
func frame(first byte, payload string) []byte {
	out := []byte{first}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	mask := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	out = append(out, mask[:]...)
	for i := range len(payload) {
		out = append(out, payload[i]^mask[i%4])
	}
	return out
}

func closing(code uint16, reason string) []byte {
	return frame(fin|opClose, string(binary.BigEndian.AppendUint16(nil, code))+reason)
}

// bye ends a connection in order.
var bye = closing(1000, "")

func frames(list ...[]byte) []byte { return slices.Concat(append(list, bye)...) }

// socketCases are those of Autobahn that do not ask how fast a server is. Sections 12
// and 13, on compression, are for the clients.
func socketCases() []socketCase {
	var list []socketCase
	add := func(name string, sends []byte, chop ...int) {
		list = append(list, socketCase{name: name, sends: sends, chop: append(chop, 0)[0]})
	}
	for i, size := range []int{0, 125, 126, 127, 128, 65535, 65536} {
		add(fmt.Sprintf("1.1.%d text of %d bytes", i+1, size), frames(frame(fin|opText, strings.Repeat("*", size))))
		add(fmt.Sprintf("1.2.%d binary of %d bytes", i+1, size), frames(frame(fin|opBinary, strings.Repeat("\xfe", size))))
	}
	add("1.1.8 text in pieces of 997 bytes", frames(frame(fin|opText, strings.Repeat("*", 65536))), 997)
	add("9.1.6 16 MiB", frames(frame(fin|opText, strings.Repeat("*", 16<<20))))
	add("9.4.9 4 MiB in fragments of 1 MiB", frames(frame(opBinary, strings.Repeat("a", 1<<20)), frame(0, strings.Repeat("b", 1<<20)), frame(0, strings.Repeat("c", 1<<20)), frame(fin, strings.Repeat("d", 1<<20))))
	addSocketControls(add)
	addSocketFragments(add)
	addSocketTexts(add)
	addSocketCloses(add)
	list = append(list,
		socketCase{name: "subprotocols", sends: bye, header: "Sec-WebSocket-Protocol: a, b, c\r\n"},
		socketCase{name: "subprotocols that the server does not speak", sends: bye, header: "Sec-WebSocket-Protocol: x\r\n"},
		socketCase{name: "12.1 compression is offered", sends: frames(frame(fin|opText, "not compressed")), header: "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; client_max_window_bits\r\n"},
		socketCase{name: "compression with a parameter that nobody knows", sends: frames(frame(fin|opText, "x")), header: "Sec-WebSocket-Extensions: permessage-deflate; unknown=1, permessage-deflate\r\n"},
		socketCase{name: "a compressed message", sends: frames(frame(fin|0x40|opText, "\xf2\x48\xcd\xc9\xc9\x07\x00")), header: "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"},
		socketCase{name: "a half-closed connection", sends: frame(fin|opText, "last words"), half: true},
	)
	return list
}

func addSocketControls(add func(string, []byte, ...int)) {
	add("2.1 a ping without payload", frames(frame(fin|opPing, "")))
	add("2.4 a ping with 125 bytes", frames(frame(fin|opPing, strings.Repeat("\xfe", 125))))
	add("2.5 a ping with 126 bytes", frames(frame(fin|opPing, strings.Repeat("\xfe", 126))))
	add("2.6 a ping byte by byte", frames(frame(fin|opPing, strings.Repeat("\xfe", 125))), 1)
	add("2.7 a pong that nobody asked for", frames(frame(fin|opPong, "")))
	add("2.9 such a pong, and a ping", frames(frame(fin|opPong, "unsolicited"), frame(fin|opPing, "ping")))
	add("2.10 ten pings", frames(bytes.Repeat(frame(fin|opPing, "p"), 10)))
	for rsv := byte(1); rsv < 8; rsv++ {
		add(fmt.Sprintf("3.%d reserved bits", rsv), frames(frame(fin|opText, "before"), frame(fin|rsv<<4|opText, "x"), frame(fin|opPing, "")))
		add(fmt.Sprintf("3.%d reserved bits of a ping", rsv), frames(frame(fin|rsv<<4|opPing, "")))
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		add(fmt.Sprintf("4. reserved opcode %d", op), frames(frame(fin|opText, "before"), frame(fin|op, "x"), frame(fin|opPing, "")))
	}
	unmasked := frame(fin|opText, "")
	unmasked[1] = 0
	add("a frame that is not masked", frames(unmasked[:2]))
}

func addSocketFragments(add func(string, []byte, ...int)) {
	add("5.1 a ping in fragments", frames(frame(opPing, "a"), frame(fin, "b")))
	add("5.2 a pong in fragments", frames(frame(opPong, "a"), frame(fin, "b")))
	add("5.3 a text in fragments", frames(frame(opText, "fragment1"), frame(fin, "fragment2")))
	add("5.5 the same byte by byte", frames(frame(opText, "fragment1"), frame(fin, "fragment2")), 1)
	add("5.6 a ping between them", frames(frame(opText, "fragment1"), frame(fin|opPing, "ping payload"), frame(fin, "fragment2")))
	add("5.8 the same byte by byte", frames(frame(opText, "fragment1"), frame(fin|opPing, "ping payload"), frame(fin, "fragment2")), 1)
	add("5.9 a continuation of nothing", frames(frame(fin, "x"), frame(fin|opText, "Hello")))
	add("5.12 a continuation of nothing, not the last", frames(frame(0, "x"), frame(fin|opText, "Hello")))
	add("5.15 a continuation behind the end", frames(frame(opText, "fragment1"), frame(fin, "fragment2"), frame(0, "fragment3"), frame(fin|opText, "fragment4")))
	add("5.18 a new message within another", frames(frame(opText, "fragment1"), frame(fin|opText, "fragment2")))
	add("5.19 pings within", frames(frame(opText, "1"), frame(0, "2"), frame(fin|opPing, "p1"), frame(0, "3"), frame(0, "4"), frame(fin|opPing, "p2"), frame(fin, "5")))
	add("6.1.2 empty fragments", frames(frame(opText, ""), frame(0, ""), frame(fin, "")))
	add("6.1.3 empty fragments around", frames(frame(opText, ""), frame(0, "middle"), frame(fin, "")))
	add("10.1.1 a text in 1300 byte fragments", frames(inFragments(strings.Repeat("*", 65536), 1300)))
}

func inFragments(text string, size int) []byte {
	var out []byte
	first := byte(opText)
	for ; len(text) > size; text = text[size:] {
		out = append(out, frame(first, text[:size])...)
		first = opContinuation
	}
	return append(out, frame(fin|first, text)...)
}

func addSocketTexts(add func(string, []byte, ...int)) {
	const greek = "Hello-µ@ßöäüàá-UTF-8!! κόσμε"
	add("6.2.1 UTF-8", frames(frame(fin|opText, greek)))
	add("6.2.2 cut between characters", frames(frame(opText, "Hello-µ@ßöä"), frame(fin, "üàá-UTF-8!!")))
	add("6.2.3 a fragment for each byte", frames(inFragments(greek, 1)))
	for i, bad := range []string{
		"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited", "\xff", "\xfe\xfe\xff\xff", "\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\x80", "\xbf", "\xed\xbf\xbf", "\xc3", "\xe2\x82", "\x00\x01\x7f",
	} {
		add(fmt.Sprintf("6.3.%d no UTF-8", i+1), frames(frame(fin|opText, bad)))
		add(fmt.Sprintf("6.4.%d no UTF-8, in fragments", i+1), frames(frame(opText, "begin"), frame(0, bad), frame(fin, "end")))
	}
}

func addSocketCloses(add func(string, []byte, ...int)) {
	add("7.1.1 a message, then close", frames(frame(fin|opText, "Hello World!")))
	add("7.1.2 two close frames", slices.Concat(bye, bye))
	add("7.1.3 a ping behind close", slices.Concat(bye, frame(fin|opPing, "")))
	add("7.1.4 a text behind close", slices.Concat(bye, frame(fin|opText, "late")))
	add("7.1.5 close within a message", slices.Concat(frame(opText, "fragment1"), bye, frame(fin, "fragment2")))
	add("7.3.1 an empty close", frame(fin|opClose, ""))
	add("7.3.2 a close of one byte", frame(fin|opClose, "a"))
	add("7.3.4 a reason", closing(1000, "Hello World!"))
	add("7.3.5 the longest reason", closing(1000, strings.Repeat("*", 123)))
	add("7.3.6 a reason that is too long", closing(1000, strings.Repeat("*", 124)))
	add("7.5.1 a reason that is no UTF-8", closing(1000, "\xce\xba\xe1\xbd\xb9\xed\xa0\x80"))
	for _, code := range []uint16{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999} {
		add(fmt.Sprintf("7.7 code %d", code), closing(code, ""))
	}
	for _, code := range []uint16{0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65535} {
		add(fmt.Sprintf("7.9 code %d, which is none", code), closing(code, ""))
	}
	add("the server closes with a code and a reason", frame(fin|opText, "close 4321 because"))
	add("the server breaks off", frame(fin|opText, "terminate"))
}

// socketRecord is what a client has seen.
type socketRecord struct {
	Status    int
	Handshake map[string][]string // the fields of the handshake that say something
	Frames    []string
	End       string
}

// holdSocket goes through a case at an address.
func holdSocket(address, path, token string, test socketCase) socketRecord {
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return socketRecord{End: err.Error()}
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	head := "GET " + path + " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + test.header
	if token != "" {
		head += bearer(token) + "\r\n"
	}
	_, _ = io.WriteString(conn, head+"\r\n")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		return socketRecord{End: err.Error()}
	}
	record := socketRecord{Status: response.StatusCode, Handshake: map[string][]string{}}
	for name, values := range response.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") || name == "Upgrade" {
			record.Handshake[name] = values
		}
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return record
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		test.send(conn)
	}()
	record.Frames, record.End = readSocket(in, conn)
	_ = conn.Close()
	<-sent
	return record
}

// send sends all of it. An error says that the server has seen enough.
func (c socketCase) send(conn net.Conn) {
	size := c.chop
	if size == 0 {
		size = len(c.sends)
	}
	for rest := c.sends; len(rest) > 0; {
		n := min(size, len(rest))
		if _, err := conn.Write(rest[:n]); err != nil {
			return
		}
		rest = rest[n:]
	}
	if c.half {
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}
}

// readSocket reads frames to the end of the connection. When the server has sent
// its close frame, the client ends the connection on its side.
func readSocket(in *bufio.Reader, conn net.Conn) (list []string, end string) {
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(in, head); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				return list, "it stays open"
			}
			return list, "ended"
		}
		size := uint64(head[1] & 0x7f)
		if more := map[uint64]int{126: 2, 127: 8}[size]; more > 0 {
			length := make([]byte, 8)
			if _, err := io.ReadFull(in, length[8-more:]); err != nil {
				return list, "ended within a header"
			}
			size = binary.BigEndian.Uint64(length)
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(in, payload); err != nil {
			return list, "ended within a frame"
		}
		text := fmt.Sprintf("%q", payload)
		if len(payload) > 200 {
			sum := fnv.New64a()
			_, _ = sum.Write(payload)
			text = fmt.Sprintf("%d bytes, %x", len(payload), sum.Sum64())
		}
		list = append(list, fmt.Sprintf("%#02x masked=%v %s", head[0], head[1]&0x80 != 0, text))
		if head[0]&0x0f == opClose {
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		}
	}
}

// useCoder goes through what the client of coder/websocket can do.
func (s *socketStage) useCoder(t *testing.T, server socketServer) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for name, mode := range map[string]websocket.CompressionMode{"plain": websocket.CompressionDisabled, "takeover": websocket.CompressionContextTakeover, "no takeover": websocket.CompressionNoContextTakeover} {
		conn := s.dialCoder(ctx, t, server, mode)
		if conn.Subprotocol() != "b" {
			t.Errorf("%s: the subprotocol is %q, want b", name, conn.Subprotocol())
		}
		largest := 1 << 20
		if mode == websocket.CompressionDisabled {
			largest = 16 << 20
		}
		for _, size := range []int{0, 1, 125, 126, 65535, 65536, largest} {
			message := make([]byte, size)
			_, _ = rand.Read(message)
			wantEcho(ctx, t, conn, websocket.MessageBinary, message)
			wantEcho(ctx, t, conn, websocket.MessageText, bytes.Repeat([]byte("é"), size/2))
		}
		if err := conn.Write(ctx, websocket.MessageText, []byte("close 4321 that was all")); err != nil {
			t.Fatal(err)
		}
		_, _, err := conn.Read(ctx)
		if closed := websocket.CloseStatus(err); closed != 4321 || !strings.Contains(err.Error(), "that") {
			t.Errorf("%s: the connection ended with %v", name, err)
		}
	}
	conn := s.dialCoder(ctx, t, server, websocket.CompressionDisabled)
	background := conn.CloseRead(ctx)
	if err := conn.Ping(background); err != nil {
		t.Errorf("Ping = %v", err)
	}
	if err := conn.Close(4000, "own reason"); err != nil {
		t.Errorf("Close = %v, want an answer in order", err)
	}
}

func (s *socketStage) dialCoder(ctx context.Context, t *testing.T, server socketServer, mode websocket.CompressionMode) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(ctx, s.URL+server.path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + s.token}}, Subprotocols: []string{"a", "b"}, CompressionMode: mode, CompressionThreshold: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func wantEcho(ctx context.Context, t *testing.T, conn *websocket.Conn, kind websocket.MessageType, message []byte) {
	t.Helper()
	if err := conn.Write(ctx, kind, message); err != nil {
		t.Fatal(err)
	}
	if got, text, err := conn.Read(ctx); err != nil || got != kind || !bytes.Equal(text, message) {
		t.Fatalf("%d bytes come back as %d, %v", len(message), len(text), err)
	}
}

// nodeSeen is what ws-client.mjs prints.
type nodeSeen struct {
	Plain, Compressed []any
	Closes            []string
	Refused           int
}

// useNode runs the client of ws.
func (s *socketStage) useNode(t *testing.T, server socketServer) {
	command := exec.CommandContext(t.Context(), s.node, filepath.Join("testdata", "interop", "node", "ws-client.mjs"), strings.Replace(s.URL, "http:", "ws:", 1)+server.path)
	command.Env = append(os.Environ(), "TOKEN="+s.token)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("ws-client.mjs: %v\n%s", err, stderrOf(err))
	}
	var got nodeSeen
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("ws-client.mjs prints %q: %v", out, err)
	}
	results := func(extension string) []any {
		list := []any{"b", extension}
		for range 2*7 + 1 {
			list = append(list, true)
		}
		return append(list, "one two three", "between", "pong are you there?", "4321 that was all")
	}
	want := nodeSeen{
		Plain: results(""), Compressed: results("permessage-deflate"), Refused: http.StatusUnauthorized,
		Closes: []string{"1000 bye", "4999 reason", "1011 failure", "1006 "},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ws-client.mjs (-want +got):\n%s", diff)
	}
}
