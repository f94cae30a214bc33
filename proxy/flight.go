package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	"snowgate/exchange"
	"snowgate/tokens"
)

// flight is one request on its way to a service, and its answer on the way
// back. It is at once the ResponseWriter and the Transport of its ReverseProxy,
// so that it sees everything that passes in either direction.
type flight struct {
	forwarder *Forwarder
	writer    http.ResponseWriter
	control   *http.ResponseController // of writer
	request   *http.Request            // from the client
	exchange  *exchange.Exchange
	route     *Route
	token     *tokens.Token // nil: the route is public
	pool      *pool
	attempt   attempt     // the current one, or the last
	tried     []*replica  // before that, in vain
	body      *clientBody // nil: the request has none
	patience  *patience
	cancel    context.CancelCauseFunc
	ctx       context.Context // of the request to the service; lives as long as the flight

	rewritten bool // rewrite was called
	failing   bool // fail was called
	flushed   bool // nothing of the answer waits to be sent
	resent    bool // the request was sent twice

	leash leash

	heard atomic.Bool // a byte of an answer has come; noted only if there are other replicas

	mu       sync.Mutex // guards answered and, until then, the header of writer
	answered bool       // RoundTrip has returned
}

// launch prepares the forwarding of r.
func (f *Forwarder) launch(w http.ResponseWriter, r *http.Request, x *exchange.Exchange, at *place) *flight {
	route := at.Route
	one := &flight{
		forwarder: f, writer: w, control: http.NewResponseController(w),
		exchange: x, route: route, token: x.Token, pool: at.pool,
	}
	one.ctx, one.cancel = context.WithCancelCause(r.Context())
	var long func()
	if one.watched() {
		long = one.register
	}
	one.patience = newPatience(route.Timeout, func() { one.cancel(errTooSlow) }, long)
	one.request = r.WithContext(one.ctx)
	// Deadlines of the server are for whole requests, and would cut streams.
	_ = one.control.SetReadDeadline(time.Time{})
	if r.ProtoMajor == 2 {
		_ = one.control.SetWriteDeadline(time.Time{})
	}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		one.body = one.newBody(r.Body)
		one.request.Body = one.body
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
	defer f.cancel(nil)
	defer f.giveBack()
	defer f.land()
	defer f.releaseBody()
	reverse := httputil.ReverseProxy{
		Rewrite:        f.rewrite,
		Transport:      f,
		ModifyResponse: f.accept,
		ErrorHandler:   f.fail,
		FlushInterval:  headerDelay,
		ErrorLog:       f.forwarder.silent,
		BufferPool:     f.forwarder.buffers,
	}
	reverse.ServeHTTP(f, f.request)
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

// tameInterim puts itself between the transport and ReverseProxy, which sends
// every 1xx answer on as it is and afterwards clears the header of the answer
// proper, with what others had put there.
func (f *flight) tameInterim(trace *httptrace.ClientTrace) {
	if trace == nil || trace.Got1xxResponse == nil {
		return
	}
	send := trace.Got1xxResponse
	trace.Got1xxResponse = func(status int, header textproto.MIMEHeader) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.answered {
			return nil
		}
		removeHopByHop(http.Header(header))
		cleanAnswer(http.Header(header))
		own := f.writer.Header().Clone()
		clear(f.writer.Header())
		err := send(status, header)
		for name, values := range own {
			f.writer.Header()[name] = values
		}
		return err
	}
}

// Header implements [http.ResponseWriter].
func (f *flight) Header() http.Header { return f.writer.Header() }

// WriteHeader implements [http.ResponseWriter].
func (f *flight) WriteHeader(status int) {
	if status >= http.StatusOK && f.request.ProtoMajor == 1 && !f.body.whole() {
		// The client is answered before it has said everything. What it still
		// sends must never be taken for its next request.
		f.Header().Set("Connection", "close")
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

// Write implements [http.ResponseWriter]. What it is given is sent at once. A
// client that takes nothing for too long is given up.
func (f *flight) Write(p []byte) (int, error) {
	f.allowWrite()
	f.flushed = false
	n, err := f.writer.Write(p)
	if err == nil {
		err = f.FlushError()
	}
	f.blameClient(err)
	return n, err
}

// FlushError serves [http.ResponseController]. ReverseProxy calls it never
// while it calls Write.
func (f *flight) FlushError() error {
	if f.flushed {
		return nil
	}
	f.allowWrite()
	err := f.control.Flush()
	f.flushed = err == nil
	if f.request.ProtoMajor == 2 {
		// An HTTP/2 stream is reset by its deadline even if nothing is sent.
		_ = f.control.SetWriteDeadline(time.Time{})
	}
	return err
}

// allowWrite sets the deadline of one write. An exchange that was given up gets
// none, except for an answer that says so.
func (f *flight) allowWrite() {
	_ = f.control.SetWriteDeadline(time.Now().Add(f.forwarder.clientIdle))
	// After the deadline was set: whoever gives the exchange up later moves it.
	if f.ctx.Err() != nil && !f.failing {
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
