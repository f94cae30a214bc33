package proxy

import (
	"context"
	"errors"
	"net/http"

	"snowgate/proxy/http1"
)

// attempt is one try to get an answer from one replica.
type attempt struct {
	lease
	sent   bool // there was a connection to send the request on
	reused bool // the last one had carried other requests
	heard  bool // a byte of an answer came back on it
	haste  haste
}

// send sends the request to one replica after the other until one answers.
//
// A replica that cannot be connected to is left for the next one, whatever the
// request is: none of it was sent. A request that may have been sent is sent once
// more only if it is idempotent (RFC 9110 §9.2.2) and has no body, the connection
// broke before a byte of an answer came, and there is another replica; or, if
// there is none, if it changes nothing (RFC 9110 §9.2.1) and the connection had been kept
// from an earlier request, which the service may have closed just then.
func (f *flight) send() (answer, error) {
	path := f.forwarded()
	var failure error
	for range maxTries {
		one, err := f.pool.lease(f.context, f.pool.now(), f.tried)
		if err != nil {
			if errors.Is(err, errTried) {
				err = failure
			}
			return answer{}, err
		}
		f.attempt = attempt{lease: one}
		f.exchange.Upstream = one.target.name
		f.outgoing.Path, f.outgoing.Host = one.target.base+path, f.host(one.target)
		got, err := one.replica.transport.send(f)
		f.report(got.status, err)
		if err == nil {
			return got, nil
		}
		failure = err
		if !f.goOn(err) {
			return answer{}, err
		}
		f.giveBack()
		f.tried = append(f.tried, one.replica)
	}
	return answer{}, failure
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

// isSafe reports whether requests with that method ask for no change (RFC 9110 §9.2.1).
func isSafe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// goOn reports whether the request may be sent to another replica after err.
func (f *flight) goOn(err error) bool {
	if f.givenUp() != nil {
		return false
	}
	if !f.attempt.sent && isDial(err) {
		// It may have come back at another address.
		_, err := f.attempt.replica.upstream.await(f.context())
		return err == nil
	}
	if !f.attempt.others || !f.mayResend(err) {
		return false
	}
	f.resent = true
	return true
}

// mayResend reports whether a request that may have been sent may be sent again after
// err.
func (f *flight) mayResend(err error) bool {
	return !f.resent && f.body == nil && idempotent(f.request.Method) &&
		!f.attempt.heard && !isTimeout(err) && f.givenUp() == nil
}

// report tells the replica of the attempt how it did. status is that of its answer.
func (f *flight) report(status int, err error) {
	a := &f.attempt
	b := f.blameOf(status, err)
	if b == good && !a.probe && !a.replica.health.troubled.Load() { // nothing new, which spares the clock
		if !a.alone {
			a.replica.health.recent.passed(f.pool.fleet.period(a.at))
		}
		return
	}
	f.pool.judge(a.lease, b)
}

// blameOf returns what the attempt says about its replica. What its client can do comes
// first, but for a connection that was not made, in which clients have no part.
func (f *flight) blameOf(status int, err error) blame {
	given := f.givenUp()
	late := errors.Is(given, errTooSlow)
	switch {
	case err == nil && given == nil:
		switch status {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return badStatus
		}
		return good
	case given != nil && !late, f.body.failure() != nil, errors.Is(err, http1.ErrRequest):
		return nobody
	case isDial(err):
		return unreachable
	case late, isTimeout(err):
		return tooSlow
	case f.attempt.reused:
		return nobody
	case brokeOff(err):
		return reset
	default:
		return invalid
	}
}

// giveBack ends the attempt.
func (f *flight) giveBack() {
	if f.attempt.replica != nil {
		f.attempt.replica.inFlight.Add(-1)
		f.attempt.replica = nil
	}
}

// context returns a context that ends when the exchange is given up, with the reason as
// its cause, or when it is over. Most exchanges need none.
func (f *flight) context() context.Context {
	f.life.Lock()
	defer f.life.Unlock()
	if f.ctx == nil {
		f.ctx, f.cancel = context.WithCancelCause(f.request.Context())
		if f.reason != nil {
			f.cancel(f.reason)
		}
	}
	return f.ctx
}
