package proxy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"snowgate/internal/request/exchange"
	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
)

// The memory of a round trip serves another one only if nobody can have kept it.
func TestReuse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*roundTrip)
		want   bool
	}{
		"nothing special":   {func(*roundTrip) {}, true},
		"no whole response": {func(r *roundTrip) { r.client.passed = false }, false},
		"a body": {func(r *roundTrip) {
			r.body = newClientBody(r.in, time.Minute, 0, r.timer, &r.client)
		}, false},
		"the client was followed":   {func(r *roundTrip) { r.lasting() }, false},
		"a context was made of it":  {func(r *roundTrip) { r.lifetime.Context() }, false},
		"a connection was made":     {func(r *roundTrip) { r.tries.current.Reused = false }, false},
		"another one was tried":     {func(r *roundTrip) { r.tries.tried = []*upstream.Replica{nil} }, false},
		"the token was watched":     {func(r *roundTrip) { r.watch.stop = func() {} }, false},
		"given up at the very end":  {func(r *roundTrip) { r.lifetime.giveUp(errors.New("too late")) }, true},
		"it has waited for a while": {func(r *roundTrip) { r.long() }, true},
	} {
		x := new(exchange.Exchange)
		one := NewForwarder(Options{}).common.start(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), x, &entry{Policy: &route.Policy{Timeout: time.Minute}})
		one.client.passed, one.tries.current.Reused = true, true
		test.change(one)
		one.finish()
		if reused := one.common == nil; reused != test.want {
			t.Errorf("%s: used again: %t, want %t", name, reused, test.want)
		}
		if x.Unshared != test.want {
			t.Errorf("%s: the exchange is unshared: %t, want %t", name, x.Unshared, test.want)
		}
	}
}
