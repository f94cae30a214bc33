package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"

	"snowgate/fields"
)

// errTwice says that a request was about to be sent a second time on another
// connection although it must not be, or not there.
var errTwice = errors.New("proxy: the service closed the connection and the request may not be sent to it again")

// attempt is one try to get an answer from one replica.
type attempt struct {
	lease
	connections int                     // that it was to be sent on
	reused      bool                    // the last of them had carried other requests
	cancel      context.CancelCauseFunc // nil: there is nowhere else to go
}

// RoundTrip implements [http.RoundTripper]: it sends the request and waits for
// the header of the answer.
func (f *flight) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	f.tameInterim(trace)
	if trace != nil {
		trace.GotConn = f.gotConnection
	}
	answer, err := f.send(r)
	f.patience.answer()
	f.mu.Lock()
	f.answered = true
	f.mu.Unlock()
	if err == nil && f.ctx.Err() != nil {
		// The header came too late, but before the transport noticed.
		_ = answer.Body.Close()
		return nil, context.Cause(f.ctx)
	}
	return answer, err
}

// send sends r to one replica after the other until one answers.
//
// A replica that cannot be connected to is left for the next one, whatever the
// request is: none of it was sent. A request that may have been sent is sent once
// more only if it is idempotent (RFC 9110 §9.2.2) and has no body, the connection
// broke before a byte of an answer came, and there is another replica; or, if
// there is none, if the connection had been kept from an earlier request, which the
// service may have closed just then.
func (f *flight) send(r *http.Request) (*http.Response, error) {
	path := f.forwarded()
	var failure error
	for range maxTries {
		one, err := f.pool.lease(f.ctx, f.pool.now(), f.tried)
		if err != nil {
			if errors.Is(err, errTried) {
				err = failure
			}
			return nil, err
		}
		f.attempt = attempt{lease: one}
		f.exchange.Upstream = one.target.name
		aim(r.URL, one.target, path)
		r.Host = f.host(one.target)
		answer, err := f.ask(r)
		f.report(answer, err)
		if err == nil {
			return answer, nil
		}
		failure = err
		if !f.goOn(r, err) {
			return nil, err
		}
		f.giveBack()
		f.tried = append(f.tried, one.replica)
		if f.body != nil {
			r.Body = f.body // unread; the transport has closed what ReverseProxy put around it
		}
	}
	return nil, failure
}

// ask sends r to the replica of the attempt.
func (f *flight) ask(r *http.Request) (*http.Response, error) {
	if f.attempt.others {
		ctx, cancel := context.WithCancelCause(r.Context())
		f.attempt.cancel = cancel
		if trace := httptrace.ContextClientTrace(ctx); trace != nil {
			trace.GotFirstResponseByte = func() { f.heard.Store(true) }
		}
		r = r.WithContext(ctx)
	}
	if f.attempt.target.protocol == h2c {
		f.forwardTrailer(r)
	}
	return f.attempt.replica.transport.RoundTrip(r)
}

// forwardTrailer has the trailer fields that the client announced sent behind the
// body, but for those that only the gateway says. HTTP/1.1 services are sent none:
// many of them take a trailer for more of the header.
func (f *flight) forwardTrailer(r *http.Request) {
	if f.body == nil || len(f.request.Trailer) == 0 {
		return
	}
	announced := make(http.Header, len(f.request.Trailer))
	for name := range f.request.Trailer {
		if fields.KindOf(name) == fields.Ordinary {
			announced[name] = nil
		}
	}
	removeHopByHop(announced)
	r.Trailer = announced
	f.body.atEnd(func() {
		for name := range announced {
			announced[name] = f.request.Trailer[name]
		}
	})
}

// gotConnection is called with every connection on which an attempt is about to be
// sent. From the second one on it is [http.Transport] that tries again, after a
// connection that was kept turned out to be closed.
func (f *flight) gotConnection(info httptrace.GotConnInfo) {
	a := &f.attempt
	a.connections++
	a.reused = info.Reused
	if a.connections == 1 || !f.replayable() || a.target.protocol == h2c || isHTTP2(info) {
		return // what has no body but is not replayed had not been written
	}
	if !f.resent && !a.others && idempotent(f.request.Method) {
		f.resent = true
		return
	}
	if a.cancel != nil {
		a.cancel(errTwice)
	} else {
		f.cancel(errTwice)
	}
	_ = info.Conn.Close() // before anything is written to it
}

// isHTTP2 tells that requests on the connection are streams. The transport sends
// one again only if the service has said that it had not looked at it.
func isHTTP2(info httptrace.GotConnInfo) bool {
	secure, ok := info.Conn.(*tls.Conn)
	return ok && secure.ConnectionState().NegotiatedProtocol == "h2"
}

// replayable reports whether [http.Transport] would send the request again
// although the service may have seen it.
func (f *flight) replayable() bool {
	if f.body != nil {
		return false
	}
	switch f.request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	_, key := f.request.Header["Idempotency-Key"]
	_, keyX := f.request.Header["X-Idempotency-Key"]
	return key || keyX
}

// idempotent reports whether it makes no difference if a request with that method
// is carried out twice (RFC 9110 §9.2.2).
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// goOn reports whether the request may be sent to another replica after err.
func (f *flight) goOn(r *http.Request, err error) bool {
	if f.ctx.Err() != nil || r.Context().Err() != nil {
		return false
	}
	if f.attempt.connections == 0 && isDial(err) {
		// It may have come back at another address.
		if _, err := f.attempt.replica.upstream.await(f.ctx); err != nil {
			return false
		}
		return true
	}
	if f.resent || f.body != nil || !f.attempt.others || !idempotent(f.request.Method) || f.heard.Load() || isTimeout(err) {
		return false
	}
	f.resent = true
	return true
}

// report tells the replica of the attempt how it did.
func (f *flight) report(answer *http.Response, err error) {
	a := &f.attempt
	now := f.pool.now()
	switch reason := f.blameOf(answer, err); reason {
	case good:
		a.replica.health.succeeded(now, a.probe)
	case nobody:
		a.replica.health.abandoned(a.probe)
	default:
		a.replica.failures.Add(1)
		a.replica.health.failed(now, a.probe, a.alone, reason)
	}
}

// What an attempt says about its replica, beside the reasons of failures.
const (
	good   = ""
	nobody = "-" // its client's doing, or nobody's
)

// blameOf returns what the attempt says about its replica.
func (f *flight) blameOf(answer *http.Response, err error) string {
	switch {
	case err == nil && f.ctx.Err() == nil:
		switch answer.StatusCode {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return "it answered " + answer.Status
		}
		return good
	case errors.Is(context.Cause(f.ctx), errTooSlow), f.ctx.Err() == nil && isTimeout(err):
		return "it did not answer in time"
	case f.ctx.Err() != nil, f.body.failure() != nil, f.attempt.reused:
		return nobody
	case isDial(err):
		return "it cannot be reached"
	default:
		return "it gave no valid answer"
	}
}

// giveBack ends the attempt.
func (f *flight) giveBack() {
	if f.attempt.replica == nil {
		return
	}
	f.attempt.replica.inFlight.Add(-1)
	f.attempt.replica = nil
	if f.attempt.cancel != nil {
		f.attempt.cancel(nil)
	}
}
