package transport

import (
	"context"
	"net/http"

	"snowgate/proxy/http1"
)

// plain is the [Transport] for HTTP/1.1 without TLS, which most services behind a gateway speak.
type plain struct{ *http1.Transport }

func newPlain(address string, dial Dialer) Transport {
	return plain{&http1.Transport{
		Address: address, DialContext: dial,
		MaxIdle: idlePerUpstream, IdleTimeout: idleTimeout,
		MaxHeader: maxResponseHeader, ContinueTimeout: continueTimeout,
	}}
}

// Send makes the attempt on a kept connection, or on a new one.
func (p plain) Send(a *Attempt) (Response, error) {
	if a.Call == nil {
		a.Call = new(http1.Call)
	}
	p.Begin(a.Call)
	a.Lifetime.Attach(a.Call)
	a.Gather.Gather()
	err := a.Call.Send(a.dialing(a.Client), a.Request, a.Fresh)
	a.Reused, a.Heard, a.Stale = a.Call.Reused, a.Call.Heard, a.Call.Reused
	if err != nil {
		return Response{}, err
	}
	return responseOf(a.Call), nil
}

func (p plain) Probe(ctx context.Context, _ *Destination, r *http1.Request) (Response, error) {
	call, err := p.Do(ctx, r)
	if err != nil {
		return Response{}, err
	}
	return responseOf(call), nil
}

func responseOf(call *http1.Call) Response {
	a := Response{Status: call.Status, Major: 1, Header: call.Header, Length: call.Length, Body: call}
	if a.Status == http.StatusSwitchingProtocols {
		a.Tunnel = call.Tunnel()
	}
	return a
}
