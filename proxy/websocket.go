package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/tokens"
)

// Limits of the end of a WebSocket that is cut.
const (
	frameTime = 500 * time.Millisecond // for the frame under way to end and for the close frame to be sent
	partTime  = 250 * time.Millisecond // for the client to close its side after that
)

// tunnelTime is how long a client may not take what the service sends.
const tunnelTime = 60 * time.Second

// Status codes of a close frame.
const (
	closeGoingAway       = 1001 // RFC 6455 §7.4.1
	closePolicyViolation = 1008 // the same
	closeTryAgainLater   = 1013 // of the IANA registry
)

// opClose is the opcode of a close frame (RFC 6455 §5.5.1).
const opClose = 0x8

// ErrStopping is the cause with which the contexts of requests are cancelled when the gateway stops
// and waits no longer. A WebSocket then ends with a close frame of status 1001.
var ErrStopping = errors.New("proxy: the gateway stops")

// closeFrame returns the close frame (RFC 6455 §5.5.1) that tells a client why its WebSocket was
// cut. It does not say why a token is not valid.
func closeFrame(why error) []byte {
	code, reason := uint16(closePolicyViolation), "the access token is not valid any more"
	switch {
	case errors.Is(why, ErrStopping):
		code, reason = closeGoingAway, "the gateway stops"
	case errors.Is(why, tokens.ErrUnavailable):
		code, reason = closeTryAgainLater, "the access token cannot be checked at the moment"
	}
	const fin = 0x80
	frame := []byte{fin | opClose, byte(2 + len(reason))} // under 126: one byte of length, no mask
	frame = binary.BigEndian.AppendUint16(frame, code)
	return append(frame, reason...)
}

// frames follows the frames (RFC 6455 §5.2) in one direction of a connection, in pieces of any
// size, to know where one ends. It reads nothing but their lengths. The zero value is the start of
// a connection.
type frames struct {
	header  [14]byte // what there is of a header
	have    int      // bytes in header
	payload uint64   // bytes of payload that are still to come
	closed  bool     // there was a close frame
}

// between reports whether the position is between two frames.
func (f *frames) between() bool { return f.have == 0 && f.payload == 0 }

// next consumes bytes from the start of p, up to the end of the frame or of p, and returns how
// many.
func (f *frames) next(p []byte) int {
	n := 0
	for f.payload == 0 {
		if n == len(p) {
			return n
		}
		f.header[f.have] = p[n]
		f.have++
		n++
		if f.have == headerSize(f.header[:f.have]) {
			f.payload = payloadSize(f.header[:f.have])
			f.closed = f.closed || f.header[0]&0x0f == opClose
			f.have = 0
			break
		}
	}
	rest := min(f.payload, uint64(len(p)-n))
	f.payload -= rest
	return n + int(rest)
}

// pass consumes all of p.
func (f *frames) pass(p []byte) {
	for len(p) > 0 {
		p = p[f.next(p):]
	}
}

// headerSize returns the size of the frame header that begins like this.
func headerSize(begin []byte) int {
	size := 2
	if len(begin) < size {
		return size
	}
	switch begin[1] & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if begin[1]&0x80 != 0 { // masked, which a server must not do
		size += 4
	}
	return size
}

// payloadSize returns the length that a whole frame header announces.
func payloadSize(header []byte) uint64 {
	switch length := header[1] & 0x7f; length {
	case 126:
		return uint64(binary.BigEndian.Uint16(header[2:]))
	case 127:
		return binary.BigEndian.Uint64(header[2:])
	default:
		return uint64(length)
	}
}

// errCut ends the copying to a client that was cut.
var errCut = errors.New("proxy: the WebSocket was cut")

// tunnel is the connection to the client of a WebSocket. It looks only for the ends of frames, so
// that it can send a close frame between two of them.
type tunnel struct {
	net.Conn
	opened   func() // called once, when the tunnel is open
	openOnce sync.Once
	sent     chan struct{} // closed when a close frame was sent, or need not be
	gone     chan struct{} // closed by Close
	shut     sync.Once     // by Close
	ending   atomic.Bool   // it is being cut

	mu     sync.Mutex // held while something is written
	open   bool       // the head of the response has been sent, frames follow
	frames frames     // that were written
	last   []byte     // the close frame to end with; nil: the tunnel was not cut
	over   bool       // sent is closed
}

// newTunnel returns a tunnel on conn. It calls opened when the response to the handshake was sent.
func newTunnel(conn net.Conn, opened func()) *tunnel {
	return &tunnel{Conn: conn, opened: opened, sent: make(chan struct{}), gone: make(chan struct{})}
}

// Read reads from the client. The caller sends the response to the handshake before the first Read.
func (t *tunnel) Read(p []byte) (int, error) {
	t.openOnce.Do(func() {
		t.mu.Lock()
		t.open = true
		t.mu.Unlock()
		t.opened()
	})
	return t.Conn.Read(p)
}

// Write sends bytes of the service to the client. Once the tunnel is cut, it sends only the rest of
// a frame.
func (t *tunnel) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil {
		return t.writeRest(p)
	}
	t.allow()
	n, err := t.Conn.Write(p)
	t.frames.pass(p[:n])
	return n, err
}

// allow sets the deadline of one write; a short one if the tunnel is being cut.
func (t *tunnel) allow() {
	_ = t.SetWriteDeadline(time.Now().Add(tunnelTime))
	if t.ending.Load() {
		_ = t.SetWriteDeadline(time.Now().Add(frameTime))
	}
}

func (t *tunnel) writeRest(p []byte) (int, error) {
	if t.over {
		return 0, errCut
	}
	ahead := t.frames // only what is written counts
	n, err := t.Conn.Write(p[:ahead.next(p)])
	t.frames.pass(p[:n])
	if err == nil && !t.frames.between() {
		return n, nil
	}
	t.writeLast()
	return n, errors.Join(errCut, err)
}

// writeLast sends the close frame, if one may follow. A frame that broke off leaves no room for it,
// and after a close frame of the service nothing may follow (RFC 6455 §5.5.1).
func (t *tunnel) writeLast() {
	if t.frames.between() && !t.frames.closed {
		_, _ = t.Conn.Write(t.last) // a client that is gone cannot be told
	}
	t.over = true
	close(t.sent)
}

// cut ends the tunnel with a close frame that says why. It returns when the frame was sent, and
// after [frameTime] if the client does not take it or the service does not finish its frame.
func (t *tunnel) cut(why error) {
	limit := time.NewTimer(frameTime)
	defer limit.Stop()
	t.ending.Store(true)
	_ = t.SetWriteDeadline(time.Now().Add(frameTime)) // also of a Write that hangs
	if !t.announce(closeFrame(why)) {
		return
	}
	select {
	case <-t.sent:
	case <-t.gone:
	case <-limit.C:
	}
}

// announce sends last as soon as a frame may begin. It reports whether that is possible: before the
// response to the handshake there are no frames.
func (t *tunnel) announce(last []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.open {
		return false
	}
	t.last = last
	if t.frames.between() {
		t.writeLast()
	}
	return true
}

// CloseWrite tells the client that the service has closed its side.
func (t *tunnel) CloseWrite() error {
	half, ok := t.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close closes the connection. A client that was sent a close frame first gets time to take it and
// to close its side: closing with unread bytes would reset the connection, and the frame could be
// lost. Close may be called more than once.
func (t *tunnel) Close() (err error) {
	t.shut.Do(func() { err = t.end() })
	return err
}

func (t *tunnel) end() error {
	close(t.gone)
	select {
	case <-t.sent:
		_ = t.CloseWrite()
		_ = t.SetReadDeadline(time.Now().Add(partTime))
		_, _ = io.Copy(io.Discard, t.Conn)
	default:
	}
	return t.Conn.Close()
}
