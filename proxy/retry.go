package proxy

import (
	"errors"
	"net/http"

	"snowgate/proxy/http1"
	"snowgate/proxy/transport"
	"snowgate/proxy/upstream"
)

// This file decides whether a request is sent again; no other code does.
//
// A replica that cannot be connected to is left for the next one, whatever the request is: none of it
// was sent. A request that may have been sent is sent once more only if it is idempotent (RFC 9110
// §9.2.2) and has no body, the connection broke before a byte of a response came, and there is another
// replica; or, if there is none, if it changes nothing (RFC 9110 §9.2.1) and the connection had been
// kept from an earlier request, which the service may have closed just then.

// tries are the attempts of one round trip.
type tries struct {
	chosen  upstream.Pick       // where the current attempt goes, or the last one went
	current transport.Attempt   // how that goes
	tried   []*upstream.Replica // before that, in vain
	resent  bool                // the request was sent twice
	begun   bool                // first is in use
	first   http1.Call          // of the first attempt, which is the only one of most
}

// maxTries is how many replicas one request is tried on.
const maxTries = 4

// send sends the request to one replica after the other until one responds.
func (t *roundTrip) send() (transport.Response, error) {
	path := forwardedPath(t.exchange, t.policy)
	var failure error
	for range maxTries {
		one, err := t.balancer.Pick(t.lifetime.Context, t.balancer.Now(), t.tries.tried)
		if err != nil {
			if errors.Is(err, upstream.ErrTried) {
				err = failure
			}
			return transport.Response{}, err
		}
		t.exchange.Upstream = one.Target.Name
		t.out.Path, t.out.Host = one.Target.Base+path, hostFor(one.Target, t.in, t.policy)
		got, err := t.try(one)
		t.report(got.Status, err)
		if err == nil {
			return got, nil
		}
		failure = err
		if !t.goOn(err) {
			return transport.Response{}, err
		}
		t.tries.giveBack()
		t.tries.tried = append(t.tries.tried, one.Replica)
	}
	return transport.Response{}, failure
}

// try makes an attempt with a replica, and another one if the connection was closed meanwhile.
func (t *roundTrip) try(one upstream.Pick) (transport.Response, error) {
	a := &t.tries.current
	t.tries.chosen = one
	*a = transport.Attempt{
		To: &one.Target.Destination, Request: &t.out.Request, Trailer: t.body, Others: one.Others,
		Client: t.lifetime.client, Lifetime: &t.lifetime, Gather: &t.common.asking,
		Repeats: transport.Repeats{Would: t.replayable(), May: !t.tries.resent && !one.Others && idempotent(t.in.Method)},
	}
	if !t.tries.begun {
		a.Call, t.tries.begun = &t.tries.first, true
	}
	got, err := one.Replica.Transport.Send(a)
	if err != nil && a.Stale && !a.Others && isSafe(t.in.Method) && t.mayResend(err) {
		t.tries.resent, a.Call, a.Fresh = true, nil, true
		got, err = one.Replica.Transport.Send(a)
	}
	t.tries.resent = t.tries.resent || a.Repeated
	return got, err
}

// giveBack counts the attempt as ended at its replica, if that was not done before.
func (s *tries) giveBack() {
	if s.chosen.Replica != nil {
		s.chosen.Replica.InFlight.Add(-1)
		s.chosen.Replica = nil
	}
}

// goOn reports whether the request may be sent to another replica after err.
func (t *roundTrip) goOn(err error) bool {
	if t.lifetime.givenUp() != nil {
		return false
	}
	if transport.IsDial(err) {
		// The replica may have come back at another address.
		_, err := t.tries.chosen.Replica.Upstream.Await(t.lifetime.Context())
		return err == nil
	}
	if !t.tries.chosen.Others || !t.mayResend(err) {
		return false
	}
	t.tries.resent = true
	return true
}

// mayResend reports whether a request that may have been sent may be sent again after err.
func (t *roundTrip) mayResend(err error) bool {
	return !t.tries.resent && t.body == nil && idempotent(t.in.Method) &&
		!t.tries.current.Heard && !transport.IsTimeout(err) && t.lifetime.givenUp() == nil
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
