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

// Bounds of the end of a WebSocket that is cut.
const (
	frameTime = 500 * time.Millisecond // for the frame under way to end and for the close frame to be sent
	partTime  = 250 * time.Millisecond // for the client to close its side after that
)

// tunnelTime is how long a client may take nothing of what the service sends it.
const tunnelTime = 60 * time.Second

// Status codes of a close frame.
const (
	closeGoingAway       = 1001 // RFC 6455 §7.4.1
	closePolicyViolation = 1008 // the same
	closeTryAgainLater   = 1013 // of the IANA registry
)

// opClose is the opcode of a close frame (RFC 6455 §5.5.1).
const opClose = 0x8

// ErrStopping is the cause with which the context of a request is cancelled when the gateway stops and
// waits no longer: a WebSocket is closed with a close frame that says so.
var ErrStopping = errors.New("proxy: the gateway stops")

// closeFrame returns the close frame of a server (RFC 6455 §5.5.1) that tells a
// client why it was cut. Why a token is not valid is told to nobody.
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

// frames follows the frames (RFC 6455 §5.2) in one direction of a connection,
// however they are cut up, to know where one ends. It understands nothing but
// their length. The zero value is where a connection begins.
type frames struct {
	header  [14]byte // what there is of a header
	have    int      // bytes in header
	payload uint64   // bytes of payload that are still to come
	closed  bool     // there was a close frame
}

// between reports whether one frame has ended and the next not begun.
func (f *frames) between() bool { return f.have == 0 && f.payload == 0 }

// next takes bytes from the beginning of p, to the end of the frame or of p,
// and returns how many.
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

// pass takes all of p.
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

// tunnel is the connection to the client of a WebSocket. What passes through it
// is not looked at, but for where frames end, so that a close frame can be sent
// between two of them.
type tunnel struct {
	net.Conn
	opened   func() // called once, when the tunnel is open
	openOnce sync.Once
	sent     chan struct{} // closed when a close frame was sent, or need not be
	gone     chan struct{} // closed by Close
	shut     sync.Once     // by Close
	ending   atomic.Bool   // it is being cut

	mu     sync.Mutex // held while something is written
	open   bool       // the head of the answer has been sent, frames follow
	frames frames     // that were written
	last   []byte     // the close frame to end with; nil: the tunnel was not cut
	over   bool       // sent is closed
}

// newTunnel returns a tunnel on conn. opened is called when the answer to the
// handshake has been sent.
func newTunnel(conn net.Conn, opened func()) *tunnel {
	return &tunnel{Conn: conn, opened: opened, sent: make(chan struct{}), gone: make(chan struct{})}
}

// Read reads from the client. That is not done before the answer to the handshake was
// sent, past the tunnel.
func (t *tunnel) Read(p []byte) (int, error) {
	t.openOnce.Do(func() {
		t.mu.Lock()
		t.open = true
		t.mu.Unlock()
		t.opened()
	})
	return t.Conn.Read(p)
}

// Write sends what the service has sent. Once the tunnel was cut, it is no more
// than the rest of a frame.
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

// allow gives the client its time to take something; little if the tunnel is being cut meanwhile.
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

// writeLast sends the close frame, if a frame may follow. A frame that broke off
// half-way leaves no room for one, and after a close frame of the service there
// is nothing more to say (RFC 6455 §5.5.1).
func (t *tunnel) writeLast() {
	if t.frames.between() && !t.frames.closed {
		_, _ = t.Conn.Write(t.last) // a client that is gone cannot be told
	}
	t.over = true
	close(t.sent)
}

// cut ends the tunnel with a close frame that tells why. It returns when that
// was sent, within [frameTime] when the client does not take it or the service
// does not end the frame under way.
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

// announce has last sent as soon as a frame may begin, and reports whether that
// can be: ahead of the answer to the handshake there are no frames.
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

// CloseWrite passes on that the service has closed its side.
func (t *tunnel) CloseWrite() error {
	half, ok := t.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close closes the connection. A client that was sent a close frame is first
// given the time to take it and to close its side: closing with its bytes unread
// would reset the connection, and the frame could be lost with it. It may be called again.
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
