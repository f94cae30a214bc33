package torture_test

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestLateTrailersEndTheConnection: a server of net/http that has responded early resets the stream
// of the request. When the trailer of that request arrives after the reset, the server ends the
// whole connection, and every other stream on it, where RFC 9113 §5.1 has it ignore the frame. So
// the gateway gives a request with a trailer a connection of its own. When this test fails, net/http
// ignores the frame, and the gateway need not do that any more.
func TestLateTrailersEndTheConnection(t *testing.T) {
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	service.Config.Protocols = new(http.Protocols)
	service.Config.Protocols.SetUnencryptedHTTP2(true)
	service.Config.ErrorLog = log.New(io.Discard, "", 0)
	service.Start()
	defer service.Close()
	conn, err := net.Dial("tcp", service.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	framer := http2.NewFramer(conn, conn)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	write := func(fields ...hpack.HeaderField) []byte {
		block.Reset()
		for _, f := range fields {
			_ = encoder.WriteField(f)
		}
		return block.Bytes()
	}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: write(
		hpack.HeaderField{Name: ":method", Value: "POST"}, hpack.HeaderField{Name: ":scheme", Value: "http"},
		hpack.HeaderField{Name: ":authority", Value: "service.example"}, hpack.HeaderField{Name: ":path", Value: "/"},
		hpack.HeaderField{Name: "trailer", Value: "x-late"})})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				t.Fatalf("the early response is followed by a reset for %v", frame.ErrCode)
			}
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
				BlockFragment: write(hpack.HeaderField{Name: "x-late", Value: "1"})})
			_ = framer.WritePing(false, [8]byte{1})
		case *http2.PingFrame:
			if frame.IsAck() {
				t.Fatal("the connection goes on: the row of the h2c service in newTable can go")
			}
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeProtocol {
				t.Fatalf("the connection is ended for %v", frame.ErrCode)
			}
			return
		}
	}
}
