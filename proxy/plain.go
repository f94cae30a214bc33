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

// send makes the attempt on a new connection, or on one that was kept.
func (p plain) send(a *attempt) (answer, error) {
	if a.call == nil {
		a.call = new(http1.Call)
	}
	p.Begin(a.call)
	a.lifetime.attach(a.call)
	a.gather.Gather()
	err := a.call.Send(a.dialing(a.lifetime.client), a.request, a.fresh)
	a.reused, a.heard, a.stale = a.call.Reused, a.call.Heard, a.call.Reused
	if err != nil {
		return answer{}, err
	}
	return answerOf(a.call), nil
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
