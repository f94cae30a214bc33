package proxy

import (
	"context"
	"net/http"
	"time"

	"snowgate/internal/request/exchange"
	"snowgate/proxy/route"
	"snowgate/proxy/transport"
	"snowgate/proxy/upstream"
)

// roundTrip is one request on its way to a service, and the response on its way back. It belongs to
// the goroutine that serves the request. Its lifetime, token watch, timer and interim responses are
// used by other goroutines as well, and have locks of their own.
type roundTrip struct {
	common   *forwarding
	in       *http.Request // from the client
	exchange *exchange.Exchange
	policy   *route.Policy
	balancer *upstream.Balancer
	out      outgoing    // to the service
	body     *clientBody // of in; nil: it has none
	tries    tries
	client   clientResponse
	lifetime lifetime
	watch    tokenWatch
	timer    *exchangeTimer
}

// newRoundTrip returns a roundTrip whose fields are zero.
func (f *forwarding) newRoundTrip() *roundTrip {
	if t, ok := f.roundTrips.Get().(*roundTrip); ok {
		return t
	}
	return new(roundTrip)
}

// reuse keeps the memory of t for another round trip. Nobody else may hold t.
func (f *forwarding) reuse(t *roundTrip) {
	*t = roundTrip{}
	f.roundTrips.Put(t)
}

// start prepares the forwarding of r.
func (f *forwarding) start(w http.ResponseWriter, r *http.Request, x *exchange.Exchange, at *entry) *roundTrip {
	t := f.newRoundTrip()
	t.common, t.in, t.exchange, t.policy, t.balancer = f, r, x, at.Policy, &at.balancer
	t.lifetime.client = r.Context() //nolint:fatcontext // of a new round trip
	t.client = clientResponse{
		common: f, writer: w, control: *http.NewResponseController(w), in: r, exchange: x,
		lifetime: &t.lifetime, watch: &t.watch,
	}
	t.watch.connect(f.watch, x, at.Policy, &t.lifetime, &t.client.control)
	t.timer = f.timers.lend(at.Timeout, t)
	t.takeBody()
	return t
}

// takeBody takes the body of the request over from the server, and the deadlines of the connection.
func (t *roundTrip) takeBody() {
	r, control := t.in, &t.client.control
	// Deadlines of the server are for whole requests, and would cut streams. Where there is
	// no body, the server has taken that for reading away itself, to look for the client.
	hasBody := r.Body != nil && r.Body != http.NoBody
	if hasBody || r.ProtoMajor == 2 {
		_ = control.SetReadDeadline(time.Time{})
	}
	if r.ProtoMajor == 2 {
		_ = control.SetWriteDeadline(time.Time{})
	}
	if !hasBody || r.ContentLength == 0 {
		return
	}
	t.body = newClientBody(r, t.common.clientIdle, t.policy.MaxBody, t.timer, &t.client)
	t.client.body, t.watch.body = t.body, t.body
	if r.ProtoMajor == 1 {
		// Else the server may swallow what is left of the body as soon as the response begins.
		// HTTP/2 is full duplex by itself.
		_ = control.EnableFullDuplex()
	}
}

// serve forwards the request and streams the response.
func (t *roundTrip) serve() {
	returned := false
	defer func() {
		if !returned { // a panic: finish would wait for what goes on
			t.lifetime.giveUp(context.Canceled)
		}
		t.finish()
	}()
	t.forward()
	returned = true
}

func (t *roundTrip) forward() {
	t.out.compose(t.in, t.exchange, t.policy, t.body)
	t.out.Interim = t.client.interim
	got, err := t.ask()
	if err != nil {
		t.fail(err)
		return
	}
	defer func() { _ = got.Body.Close() }()
	switch err := t.accept(&got); {
	case err != nil:
		t.fail(err)
	case got.Status == http.StatusSwitchingProtocols:
		t.switchProtocols(got)
	default:
		t.client.pass(&got, t.policy)
		t.client.passed = true
	}
}

// ask sends the request and waits for the header of the response.
func (t *roundTrip) ask() (transport.Response, error) {
	got, err := t.send()
	t.timer.responded()
	t.client.interims.end()
	if given := t.lifetime.givenUp(); err == nil && given != nil {
		// The header came after the deadline, but before the timer fired.
		_ = got.Body.Close()
		return transport.Response{}, given
	}
	return got, err
}

// finish releases everything that the round trip has used.
func (t *roundTrip) finish() {
	t.body.finish(t.watch.broken())
	t.timer.end()
	if reason := t.watch.end(); reason != nil && t.exchange.Upgraded {
		t.exchange.Cause = t.common.refusal(reason, t.policy)
	}
	t.tries.giveBack()
	t.lifetime.end()
	if t.body == nil || t.out.ahead { // else its last Read may come after the end
		t.timer.giveBack()
	}
	t.out.giveBack()
	if t.isUnshared() {
		t.exchange.Unshared = true
		t.common.reuse(t)
	}
}

// isUnshared reports, at the end, that nobody else can have kept t: the whole response was passed on,
// no other goroutine has read a body, the token was not watched, nobody follows the client, the round
// trip has made no context, and its one attempt used a kept connection, so that no dial holds on to it.
// TestReuse, TestBodiesAreNotMixed and the torture fail when that is wrong.
func (t *roundTrip) isUnshared() bool {
	return t.client.passed && (t.body == nil || t.out.ahead) && !t.watch.isWatched() && !t.lifetime.isShared() &&
		t.tries.current.Reused && t.tries.tried == nil
}

// tooSlow implements [timerOwner].
func (t *roundTrip) tooSlow() { t.lifetime.giveUp(errTooSlow) }

// lasting implements [timerOwner].
func (t *roundTrip) lasting() { t.lifetime.follow() }

// long implements [timerOwner].
func (t *roundTrip) long() { t.watch.register() }
