package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"snowgate/request/fields"
)

// lingering is how long a client that still sends a body may go on after it was
// answered, before its connection is closed.
const lingering = time.Second

// clientBody is the body of a request on its way to the service. It is read by
// a goroutine of the transport, possibly after the answer has begun.
type clientBody struct {
	request *http.Request
	source  io.ReadCloser
	control *http.ResponseController
	idle    time.Duration // longest silence of the client
	timer   *exchangeTimer

	proceed func() // called before the first Read of the source; nil: the client waits for nothing
	limit   int64  // bytes; 0: none
	trailer func() // called when all was read, nil: nobody asks

	mu      sync.Mutex
	back    *sync.Cond // on mu: a Read has returned
	reading bool
	until   time.Time // deadline of the Read
	read    int64
	err     error // first error, io.EOF included
	cut     error // why nothing more is read; nil: it is
	closed  bool
	duplex  bool // the client may be silent for as long as it is answered
}

// newClientBody returns the body of r. limit is its largest size in bytes, 0 for none.
func newClientBody(r *http.Request, idle time.Duration, limit int64, p *exchangeTimer, client *clientResponse) *clientBody {
	b := &clientBody{request: r, source: r.Body, control: &client.control, idle: idle, timer: p, limit: limit}
	b.back = sync.NewCond(&b.mu)
	// net/http refuses every other expectation, and writes 100 Continue by itself if it finds
	// one. It does so without regard to interim responses. HTTP/2 has a queue for both.
	if r.ProtoMajor == 1 && r.ProtoAtLeast(1, 1) && r.Header.Get("Expect") != "" {
		b.proceed = sync.OnceFunc(client.sayContinue)
	}
	return b
}

// smallBody is the largest body that is read ahead, in bytes: net/http reads no more than that at
// once from a connection.
const smallBody = 4 << 10

var smallBodies = sync.Pool{New: func() any { return new([smallBody]byte) }}

// Read reads from the client, within its time and its limit.
func (b *clientBody) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	b.timer.pause()
	if b.proceed != nil {
		b.proceed()
	}
	n, err := b.source.Read(p)
	b.timer.resume()
	return b.account(n, err)
}

// begin sets the deadline of one Read.
func (b *clientBody) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
		return b.err
	case b.cut != nil:
		return b.cut
	case b.closed:
		return http.ErrBodyReadAfterClose
	}
	// Where deadlines are not supported there is no connection to protect.
	if !b.duplex {
		b.until = time.Now().Add(b.idle)
		_ = b.control.SetReadDeadline(b.until)
	}
	b.reading = true
	return nil
}

// account keeps the books of one Read.
func (b *clientBody) account(n int, err error) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.back.Signal()
	b.read += int64(n)
	if b.limit > 0 && b.read > b.limit {
		n, err = 0, &http.MaxBytesError{Limit: b.limit}
	}
	if b.cut != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = b.cut
	}
	if err != nil {
		b.err = err
	}
	if errors.Is(err, io.EOF) {
		// The server now watches the connection for a client that leaves. A
		// deadline that strikes then would look like one.
		_ = b.control.SetReadDeadline(time.Time{})
		if b.trailer != nil {
			b.trailer()
		}
	}
	return n, err
}

// atEnd has f called by the Read that finds the end of the body.
func (b *clientBody) atEnd(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trailer = f
}

// answering lifts the bound on the silence of a client whose body goes on while it
// is answered, as in a stream of gRPC: whether it says more is between it and the
// service now.
func (b *clientBody) answering() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.duplex = true
	if b.reading && b.cut == nil && !b.closed {
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

// Close does nothing: the server owns the body.
func (b *clientBody) Close() error { return nil }

// interrupt ends all reading for the reason given. The transport waits for a Read
// that hangs, even when its request was cancelled.
func (b *clientBody) interrupt(reason error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil { // else the deadline is not that of the body any more
		b.cut = reason
		_ = b.control.SetReadDeadline(past)
	}
}

// settle waits for a Read that hangs when the exchange is given up, which may be because
// of what that Read has met: only then failure knows. One that has met nothing is
// interrupted.
func (b *clientBody) settle(reason error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.reading {
		if b.duplex || time.Now().Before(b.until) {
			b.cut = reason
			if b.control.SetReadDeadline(past) != nil {
				return // no connection, no deadlines
			}
		}
		b.back.Wait()
	}
}

// failure returns the error by which the client's body ended, nil if it has
// not ended, was read whole, or was not read on for another reason.
func (b *clientBody) failure() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(b.err, io.EOF) || b.cut != nil && errors.Is(b.err, b.cut) {
		return nil
	}
	return b.err
}

// whole reports whether there is nothing left to be read.
func (b *clientBody) whole() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.err, io.EOF)
}

// finish ends the reading of the body. Of a response that was broken off, nothing is left that the
// client could take while it sends what is left.
func (b *clientBody) finish(broken bool) {
	if broken {
		b.release(0)
		return
	}
	b.release(lingering)
}

// release ends all reading, before the handler returns. A Read that hangs is
// cut short and waited for: the server cannot finish the request while it
// lasts, and would lift the deadline within which it then discards what is left
// of the body, for at most the time given.
func (b *clientBody) release(linger time.Duration) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for b.reading {
		if b.control.SetReadDeadline(past) != nil {
			return // no connection, no deadlines
		}
		b.back.Wait()
	}
	if !errors.Is(b.err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Now().Add(linger))
	}
}

// ForwardTrailer has the trailer fields that the client announced sent behind the body, but for those
// that only the gateway says. HTTP/1.1 services are sent none: many of them take a trailer for more of
// the header.
func (b *clientBody) ForwardTrailer(r *http.Request) {
	if b == nil || len(b.request.Trailer) == 0 {
		return
	}
	announced := make(http.Header, len(b.request.Trailer))
	for name := range b.request.Trailer {
		if fields.KindOf(name) == fields.Ordinary && !hopByHop(name) &&
			httpguts.ValidHeaderFieldName(name) && httpguts.ValidTrailerHeader(name) {
			announced[name] = nil
		}
	}
	r.Trailer = announced
	b.atEnd(func() {
		for name := range announced {
			announced[name] = b.request.Trailer[name]
		}
	})
}
