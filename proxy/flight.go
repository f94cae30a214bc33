package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/internal/panics"
	"snowgate/proxy/http1"
	"snowgate/request/exchange"
)

// flight is one request on its way to a service, and its answer on the way
// back. It is the ResponseWriter of whatever is answered, so that it sees everything
// that passes to the client.
type flight struct {
	forwarder *Forwarder
	writer    http.ResponseWriter
	control   http.ResponseController // of writer
	request   *http.Request           // from the client
	exchange  *exchange.Exchange
	route     *terms
	pool      *pool
	outgoing  http1.Request    // to the service
	list      *[]http1.Field   // its header, which is lent
	attempt   attempt          // the current one, or the last
	tried     []*replica       // before that, in vain
	body      *clientBody      // nil: the request has none
	small     *[smallBody]byte // lent for what was read ahead of the body; nil: nothing was
	ahead     bool             // the whole body was read ahead, so no other goroutine reads it
	patience  *patience

	failing  bool      // fail was called
	flushed  bool      // nothing of the answer waits to be sent
	allowed  bool      // a deadline for writing was looked at, and little was written since
	resent   bool      // the request was sent twice
	passed   bool      // the whole answer was passed on
	writable time.Time // when a deadline for writing was last set

	first http1.Call // what call is, in most exchanges
	leash leash

	mu        sync.Mutex // guards what follows and, until answered, the header of writer and writes to it
	answered  bool       // the header of the answer has come
	continued bool       // 100 Continue was sent, in HTTP/1

	life     sync.Mutex  // guards what follows
	reason   error       // why the exchange was given up; nil: it goes on
	quit     atomic.Bool // there is a reason; read without the lock
	call     *http1.Call
	ctx      context.Context //nolint:containedctx // of this exchange; see context
	cancel   context.CancelCauseFunc
	unfollow func() bool // the client; nil: nobody follows it
}

// newFlight returns one that is zero.
func (f *Forwarder) newFlight() *flight {
	if one, ok := f.flights.Get().(*flight); ok {
		return one
	}
	return new(flight)
}

// reuse gives the memory of one, which nobody knows of any more, to another exchange.
func (f *Forwarder) reuse(one *flight) {
	*one = flight{}
	f.flights.Put(one)
}

// launch prepares the forwarding of r.
func (f *Forwarder) launch(w http.ResponseWriter, r *http.Request, x *exchange.Exchange, at *place) *flight {
	one := f.newFlight()
	one.forwarder, one.writer, one.control, one.request = f, w, *http.NewResponseController(w), r
	one.exchange, one.route, one.pool = x, at.terms, &at.pool
	one.patience = f.patiences.lend(at.Timeout, one)
	// Deadlines of the server are for whole requests, and would cut streams. Where there is
	// no body, it has taken that for reading away itself, to look for the client.
	hasBody := r.Body != nil && r.Body != http.NoBody
	if hasBody || r.ProtoMajor == 2 {
		_ = one.control.SetReadDeadline(time.Time{})
	}
	if r.ProtoMajor == 2 {
		_ = one.control.SetWriteDeadline(time.Time{})
	}
	if hasBody && r.ContentLength != 0 {
		one.body = one.newBody(r.Body)
		if r.ProtoMajor == 1 {
			// Else the server may swallow what is left of the body as soon as
			// the answer begins. HTTP/2 is full duplex by itself.
			_ = one.control.EnableFullDuplex()
		}
	}
	return one
}

// serve forwards the request and streams the answer.
func (f *flight) serve() {
	returned := false
	defer func() {
		if !returned { // a panic: end would wait for what goes on
			f.giveUp(context.Canceled)
		}
		f.end()
	}()
	f.forward()
	returned = true
}

func (f *flight) forward() {
	f.compose()
	answer, err := f.ask()
	if err != nil {
		f.fail(err)
		return
	}
	defer func() { _ = answer.body.Close() }()
	switch err := f.accept(&answer); {
	case err != nil:
		f.fail(err)
	case answer.status == http.StatusSwitchingProtocols:
		f.switchProtocols(answer)
	default:
		f.pass(&answer)
		f.passed = true
	}
}

// ask sends the request and waits for the header of the answer.
func (f *flight) ask() (answer, error) {
	got, err := f.send()
	f.patience.answer()
	f.mu.Lock()
	f.answered = true
	f.mu.Unlock()
	if given := f.givenUp(); err == nil && given != nil {
		// The header came too late, but before anybody noticed.
		_ = got.body.Close()
		return answer{}, given
	}
	return got, err
}

// end gives everything back that the exchange has used.
func (f *flight) end() {
	f.releaseBody()
	f.land()
	f.giveBack()
	f.life.Lock()
	call, cancel, unfollow := f.call, f.cancel, f.unfollow
	f.life.Unlock()
	if unfollow != nil {
		unfollow()
	}
	if cancel != nil {
		cancel(nil)
	}
	if call != nil {
		call.Wait()
	}
	if f.body == nil || f.ahead { // else its last Read may come after the end
		f.patience.giveBack()
	}
	f.decompose()
	if f.isUnshared() {
		f.exchange.Unshared = true
		f.forwarder.reuse(f)
	}
}

// isUnshared reports, at the end, that nobody else can have kept f: it has ended well, had no
// body that another goroutine reads, was not watched, did not follow its client, and no context was made of it, not even
// to connect, which is done in one that is part of the attempt.
func (f *flight) isUnshared() bool {
	return f.passed && (f.body == nil || f.ahead) && f.leash.stop == nil && f.unfollow == nil && f.cancel == nil &&
		f.attempt.reused && f.tried == nil
}

// tooSlow implements [waiting].
func (f *flight) tooSlow() { f.giveUp(errTooSlow) }

// lasting implements [waiting]: from now on the exchange ends when its client is gone.
// That most exchanges are over by then saves them a part in the tree of contexts.
func (f *flight) lasting() {
	ctx := f.request.Context()
	unfollow := context.AfterFunc(ctx, func() { defer panics.Catch(panics.Exchange, nil); f.giveUp(context.Cause(ctx)) })
	f.life.Lock()
	f.unfollow = unfollow
	f.life.Unlock()
}

// long implements [waiting].
func (f *flight) long() { f.register() }

// giveUp ends the exchange for the reason given, whatever it waits for.
func (f *flight) giveUp(reason error) {
	f.life.Lock()
	if f.reason == nil {
		f.reason = reason
		f.quit.Store(true)
	}
	call, cancel := f.call, f.cancel
	f.life.Unlock()
	if call != nil {
		call.Abort()
	}
	if cancel != nil {
		cancel(reason)
	}
}

// givenUp returns why the exchange was given up, nil if it goes on.
func (f *flight) givenUp() error {
	if !f.quit.Load() && f.request.Context().Err() == nil {
		return nil
	}
	f.life.Lock()
	defer f.life.Unlock()
	if f.reason == nil {
		f.reason = context.Cause(f.request.Context())
		f.quit.Store(true)
	}
	return f.reason
}

// attach has call aborted when the exchange is given up.
func (f *flight) attach(call *http1.Call) {
	f.life.Lock()
	defer f.life.Unlock()
	f.call = call
	if f.reason != nil {
		call.Abort()
	}
}

// releaseBody ends the reading of the request body.
func (f *flight) releaseBody() {
	f.leash.mu.Lock()
	broken := f.leash.begun && f.leash.reason != nil
	f.leash.mu.Unlock()
	if broken {
		f.body.release(0) // there is no answer to be taken in the meantime
		return
	}
	f.body.release(lingering)
}

// Header implements [http.ResponseWriter].
func (f *flight) Header() http.Header { return f.writer.Header() }

// WriteHeader implements [http.ResponseWriter].
func (f *flight) WriteHeader(status int) {
	if status >= http.StatusOK && f.request.ProtoMajor == 1 && !f.body.whole() {
		// The client is answered before it has said everything. What it still
		// sends must never be taken for its next request. But it is read, so that it does
		// not reset the connection before the client has the response.
		f.Header().Set("Connection", "close")
		exchange.Linger(f.request.Context())
	}
	if status >= http.StatusOK && !f.failing {
		f.begin()
		if f.request.ProtoMajor == 2 {
			f.body.answering()
		}
	}
	f.flushed = false
	f.writer.WriteHeader(status)
}

// littleWritten is how much net/http only notes when it is written, in bytes, unless it has
// noted as much before.
const littleWritten = 2 << 10

// Write implements [http.ResponseWriter]. A client that takes nothing for too long is
// given up.
func (f *flight) Write(p []byte) (int, error) {
	f.allowWrite()
	f.allowed = len(p) <= littleWritten
	f.flushed = false
	n, err := f.writer.Write(p)
	f.blameClient(err)
	return n, err
}

// FlushError sends what was written.
func (f *flight) FlushError() error {
	if f.flushed {
		return nil
	}
	if !f.allowed {
		f.allowWrite()
	}
	f.allowed = false
	f.forwarder.answering.Gather()
	err := f.control.Flush()
	f.flushed = err == nil
	if f.request.ProtoMajor == 2 {
		// An HTTP/2 stream is reset by its deadline even if nothing is sent.
		_ = f.control.SetWriteDeadline(time.Time{})
		f.writable = time.Time{}
	}
	return err
}

// allowWrite sets the deadline of one write, unless that was done just now. An exchange
// that was given up gets none, except for an answer that says so.
func (f *flight) allowWrite() {
	now := time.Now()
	if now.Sub(f.writable) < f.forwarder.clientIdle/16 && !f.failing {
		return
	}
	f.writable = now
	_ = f.control.SetWriteDeadline(now.Add(f.forwarder.clientIdle))
	// After the deadline was set: whoever gives the exchange up later moves it.
	if !f.failing && f.givenUp() != nil {
		_ = f.control.SetWriteDeadline(past)
	}
}

// Hijack implements [http.Hijacker] for WebSocket.
func (f *flight) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	f.leash.mu.Lock()
	defer f.leash.mu.Unlock()
	if f.leash.reason != nil {
		return nil, nil, f.leash.reason
	}
	conn, buffered, err := f.control.Hijack()
	if err != nil {
		return nil, nil, err
	}
	f.exchange.Upgraded = true
	f.leash.tunnel = newTunnel(conn, f.register)
	return f.leash.tunnel, buffered, nil
}
