package proxy

import (
	"context"
	"net/http"

	"snowgate/proxy/http1"
)

// plain is a [transport] for HTTP/1.1 without TLS, which is what most services behind
// a gateway speak.
type plain struct{ *http1.Transport }

func newPlain(address string, dial dialer) transport {
	return plain{&http1.Transport{
		Address: address, DialContext: dial,
		MaxIdle: idlePerUpstream, IdleTimeout: idleTimeout,
		MaxHeader: maxAnswerHeader, ContinueTimeout: continueTimeout,
	}}
}

func (p plain) send(f *flight) (answer, error) {
	got, err := p.try(f, false)
	if err != nil && f.attempt.reused && !f.attempt.others && isSafe(f.request.Method) && f.mayResend(err) {
		// The service may have closed the connection just then, and there is no
		// other replica.
		f.resent = true
		return p.try(f, true)
	}
	return got, err
}

// try sends the request once: on a new connection, or on one that was kept.
func (p plain) try(f *flight, fresh bool) (answer, error) {
	call := &f.first
	if f.call != nil {
		call = new(http1.Call)
	}
	p.Begin(call)
	f.attach(call)
	f.forwarder.asking.Gather()
	err := call.Send(f.attempt.within(f.request.Context()), &f.outgoing, fresh)
	f.attempt.reused, f.attempt.heard = call.Reused, call.Heard
	if err != nil {
		return answer{}, err
	}
	return answerOf(call), nil
}

func (p plain) probe(ctx context.Context, _ *target, r *http1.Request) (answer, error) {
	call, err := p.Do(ctx, r)
	if err != nil {
		return answer{}, err
	}
	return answerOf(call), nil
}

func answerOf(call *http1.Call) answer {
	a := answer{status: call.Status, major: 1, header: call.Header, length: call.Length, body: call}
	if a.status == http.StatusSwitchingProtocols {
		a.tunnel = call.Tunnel()
	}
	return a
}
