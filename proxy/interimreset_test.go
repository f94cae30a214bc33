package proxy_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestResetWithinInterimResponses: an HTTP/2 client resets its stream while interim responses come. The
// server still encodes the last of them; a map that changes meanwhile would end the process, for
// concurrent use of a map is an error that nothing recovers from.
func TestResetWithinInterimResponses(t *testing.T) {
	fields := strings.Repeat("Link: </style.css>; rel=preload; as=style\r\nX-A: b\r\n", 20)
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\n"+fields+"\r\n", 10)
	service := newUpstream(t, func(conn net.Conn, _ string) bool {
		_, err := io.WriteString(conn, hints+okResponse)
		return err == nil
	})
	g := newGateway(t, gatewayOptions{http2: true}, public(service.url))
	conn, err := tls.Dial("tcp", g.address(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patienceOfTests))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	for stream := uint32(1); stream < 400; stream += 2 {
		head.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: http.MethodGet}, {Name: ":scheme", Value: "https"},
			{Name: ":authority", Value: "g.example"}, {Name: ":path", Value: "/public"},
		} {
			_ = encoder.WriteField(f)
		}
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true})
		for err == nil {
			var frame http2.Frame
			if frame, err = framer.ReadFrame(); err != nil || frame.Header().StreamID == stream {
				break
			}
		}
		if err == nil {
			err = framer.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
		if err != nil {
			t.Fatalf("stream %d: %v", stream, err)
		}
		for len(service.requests) > 0 {
			<-service.requests // or the service would wait
		}
	}
}
