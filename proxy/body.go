package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"snowgate/internal/request/fields"
)

// lingering is how long a client may go on to send its body after the response, before the server
// closes its connection.
const lingering = time.Second

// clientBody is the body of a request on its way to the service. A goroutine of the transport reads
// it, possibly after the response has begun. The methods are safe for concurrent use.
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
	// net/http refuses every other expectation, and writes 100 Continue by itself if it finds one.
	// It does so without waiting for interim responses that are being written. HTTP/2 has a queue
	// for both.
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

// begin sets the deadline of one Read, or returns why there is nothing more to read.
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

// account records the result of one Read and applies the limit.
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

// atEnd sets f, which the Read that finds the end of the body calls.
func (b *clientBody) atEnd(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trailer = f
}

// answering lifts the limit on the silence of a client that sends while it receives the response,
// as a gRPC stream does. From now on, neither client nor service has a limit.
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

// interrupt ends all reading for the reason given. Without it the transport would wait for a
// blocked Read, even after its request was cancelled.
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

// settle waits for a blocked Read to return when the round trip is given up. The error of that Read
// may be the cause, and failure returns it only afterwards. A Read whose time has not passed is
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

// failure returns the error by which reading the body of the client failed. It is nil if the body
// has not ended, was read to its end, or was interrupted by us.
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

// whole reports whether the body was read to its end.
func (b *clientBody) whole() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.err, io.EOF)
}

// finish ends the reading of the body. If the response was broken off, the client gets no time to
// send the rest.
func (b *clientBody) finish(broken bool) {
	if broken {
		b.release(0)
		return
	}
	b.release(lingering)
}

// release ends all reading before the handler returns. It interrupts a blocked Read and waits for
// it: the server cannot finish the request while a Read lasts. Afterwards the server discards the
// rest of the body, for at most linger.
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

// ForwardTrailer announces in r the trailer fields that the client announced, and has them sent
// after the body. Fields that only the gateway may set are left out. Services that speak HTTP/1.1
// get no trailer: many of them merge it into the header.
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
