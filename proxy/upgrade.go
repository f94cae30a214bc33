package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"snowgate/internal/panics"
	"snowgate/proxy/http1"
	"snowgate/proxy/transport"
)

// acceptUpgrade checks the response to a WebSocket handshake (RFC 6455 §4.2.2) and keeps its
// Upgrade field.
func (t *roundTrip) acceptUpgrade(a *transport.Response) error {
	protocol := valuesOf(a.Header, "Upgrade")
	if !upgrading(t.in, t.policy, t.body) || a.Tunnel == nil || len(protocol) != 1 || !strings.EqualFold(protocol[0], "websocket") ||
		!names(valuesOf(a.Header, "Connection"), "upgrade") {
		return fmt.Errorf("proxy: the service switched to %q, which was not asked for", protocol)
	}
	a.Header = append(overrule(t.client.Header(), t.policy, cleanResponse(a.Header)), http1.Field{Name: "Upgrade", Value: protocol[0]})
	return nil
}

// switchProtocols takes over the connection of the client, passes on that the service has accepted
// the handshake, and relays until both sides have ended or one has failed.
func (t *roundTrip) switchProtocols(a transport.Response) {
	client, buffered, err := t.client.hijack()
	if err != nil {
		t.fail(fmt.Errorf("proxy: the connection cannot be taken over: %w", err))
		return
	}
	defer func() { _ = client.Close() }() // net/http closes it no more, not even if this panics
	t.lifetime.leaveToTunnel()
	ctx := t.lifetime.Context()
	stop := context.AfterFunc(ctx, func() {
		defer panics.Catch(panics.Tunnel, nil)
		if errors.Is(context.Cause(ctx), ErrStopping) {
			client.cut(ErrStopping)
		}
		_ = a.Tunnel.Close()
	})
	defer stop()
	if err := writeSwitched(buffered, t.client.Header(), &a); err != nil {
		t.fail(err)
		return
	}
	relay(client, pending{client, buffered.Reader}, a.Tunnel)
}

// relay copies between a client, of which from is read, and a service until both have ended, one has
// failed, or one waits for the other in vain (see [stall]). It closes both.
func relay(client io.WriteCloser, from io.Reader, service io.ReadWriteCloser) {
	var copying sync.WaitGroup
	ended := make(chan error, 3) // one of each direction, and one of the stall
	broken := func(err error) { ended <- err }
	hanging := newStall(func() { broken(errStalled) })
	copying.Go(func() {
		defer panics.Catch(panics.Tunnel, broken)
		ended <- copyOneWay(client, stallWriter{client, hanging, false}, service)
	})
	copying.Go(func() {
		defer panics.Catch(panics.Tunnel, broken)
		ended <- copyOneWay(service, stallWriter{service, hanging, true}, from)
	})
	for range 2 {
		if err := <-ended; err != nil {
			break // and so ends the other
		}
		hanging.sideEnded()
	}
	hanging.stop()
	_ = service.Close()
	_ = client.Close()
	copying.Wait()
}

// errStalled ends a WebSocket in which one side waited in vain for the other.
var errStalled = errors.New("proxy: nothing moves in the WebSocket")

// writeSwitched writes the header of the response, with the fields that the gateway has put into h.
func writeSwitched(w *bufio.ReadWriter, h http.Header, a *transport.Response) error {
	addFields(h, a.Header)
	h["Connection"] = []string{"Upgrade"} // HTTP neither keeps nor closes the connection any more
	head := http.Response{StatusCode: a.Status, ProtoMajor: 1, ProtoMinor: 1, Header: h}
	return errors.Join(head.Write(w), w.Flush())
}

// pending is a connection some bytes of which were read into a buffer already.
type pending struct {
	net.Conn
	ahead *bufio.Reader
}

// Read returns the buffered bytes first.
func (p pending) Read(b []byte) (int, error) {
	n := min(len(b), p.ahead.Buffered())
	if n == 0 {
		return p.Conn.Read(b)
	}
	return p.ahead.Read(b[:n])
}

// copyOneWay copies from src to writer, which writes to dst. When src ends, it closes the write
// side of dst.
func copyOneWay(dst, writer io.Writer, src io.Reader) error {
	if _, err := io.Copy(writer, struct{ io.Reader }{src}); err != nil {
		return err
	}
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return io.EOF // there is no other way to pass it on than to end altogether
}
