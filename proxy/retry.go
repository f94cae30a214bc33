package proxy

import (
	"errors"
	"net/http"

	"snowgate/proxy/http1"
)

// This file is all that decides about sending a request again.
//
// A replica that cannot be connected to is left for the next one, whatever the request is: none of it
// was sent. A request that may have been sent is sent once more only if it is idempotent (RFC 9110
// §9.2.2) and has no body, the connection broke before a byte of a response came, and there is another
// replica; or, if there is none, if it changes nothing (RFC 9110 §9.2.1) and the connection had been
// kept from an earlier request, which the service may have closed just then.

// tries are the attempts of one round trip.
type tries struct {
	current attempt    // or the last one
	tried   []*replica // before that, in vain
	resent  bool       // the request was sent twice
	begun   bool       // first is in use
	first   http1.Call // of the first attempt, which is the only one of most
}

// maxTries is how many replicas one request is tried on.
const maxTries = 4

// send sends the request to one replica after the other until one responds.
func (t *roundTrip) send() (answer, error) {
	path := forwardedPath(t.exchange, t.policy)
	var failure error
	for range maxTries {
		one, err := t.pool.lease(t.lifetime.context, t.pool.now(), t.tries.tried)
		if err != nil {
			if errors.Is(err, errTried) {
				err = failure
			}
			return answer{}, err
		}
		t.exchange.Upstream = one.target.name
		t.out.Path, t.out.Host = one.target.base+path, hostFor(one.target, t.in, t.policy)
		got, err := t.try(one)
		t.report(got.status, err)
		if err == nil {
			return got, nil
		}
		failure = err
		if !t.goOn(err) {
			return answer{}, err
		}
		t.tries.giveBack()
		t.tries.tried = append(t.tries.tried, one.replica)
	}
	return answer{}, failure
}

// try makes an attempt with a replica, and another one if the connection was closed meanwhile.
func (t *roundTrip) try(one lease) (answer, error) {
	a := &t.tries.current
	*a = attempt{
		lease: one, request: &t.out.Request, body: t.body, lifetime: &t.lifetime, gather: &t.forwarder.asking,
		repeats: repeats{would: t.replayable(), may: !t.tries.resent && !one.others && idempotent(t.in.Method)},
	}
	if !t.tries.begun {
		a.call, t.tries.begun = &t.tries.first, true
	}
	got, err := one.replica.transport.send(a)
	if err != nil && a.stale && !a.others && isSafe(t.in.Method) && t.mayResend(err) {
		t.tries.resent, a.call, a.fresh = true, nil, true
		got, err = one.replica.transport.send(a)
	}
	t.tries.resent = t.tries.resent || a.repeated
	return got, err
}

// giveBack ends the attempt.
func (s *tries) giveBack() {
	if s.current.replica != nil {
		s.current.replica.inFlight.Add(-1)
		s.current.replica = nil
	}
}

// goOn reports whether the request may be sent to another replica after err.
func (t *roundTrip) goOn(err error) bool {
	if t.lifetime.givenUp() != nil {
		return false
	}
	if isDial(err) {
		// The replica may have come back at another address.
		_, err := t.tries.current.replica.upstream.await(t.lifetime.context())
		return err == nil
	}
	if !t.tries.current.others || !t.mayResend(err) {
		return false
	}
	t.tries.resent = true
	return true
}

// mayResend reports whether a request that may have been sent may be sent again after err.
func (t *roundTrip) mayResend(err error) bool {
	return !t.tries.resent && t.body == nil && idempotent(t.in.Method) &&
		!t.tries.current.heard && !isTimeout(err) && t.lifetime.givenUp() == nil
}

// replayable reports whether [http.Transport] would send the request again although the service may
// have seen it.
func (t *roundTrip) replayable() bool {
	if t.body != nil {
		return false
	}
	if isSafe(t.in.Method) {
		return true
	}
	_, key := t.in.Header["Idempotency-Key"]
	_, keyX := t.in.Header["X-Idempotency-Key"]
	return key || keyX
}

// idempotent reports whether it makes no difference if a request with that method is carried out
// twice (RFC 9110 §9.2.2).
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
