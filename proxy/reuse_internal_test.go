package proxy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"snowgate/request/exchange"
)

// The memory of an exchange serves another one only if nobody can have kept the exchange.
func TestReuse(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*flight)
		want   bool
	}{
		"nothing special":           {func(*flight) {}, true},
		"no whole answer":           {func(f *flight) { f.passed = false }, false},
		"a body":                    {func(f *flight) { f.body = f.newBody(http.NoBody) }, false},
		"the client was followed":   {func(f *flight) { f.lasting() }, false},
		"a context was made of it":  {func(f *flight) { f.context() }, false},
		"a connection was made":     {func(f *flight) { f.attempt.reused = false }, false},
		"another one was tried":     {func(f *flight) { f.tried = []*replica{nil} }, false},
		"the token was watched":     {func(f *flight) { f.leash.stop = func() {} }, false},
		"given up at the very end":  {func(f *flight) { f.giveUp(errors.New("too late")) }, true},
		"it has waited for a while": {func(f *flight) { f.long() }, true},
	} {
		f := NewForwarder(Options{})
		w, x := httptest.NewRecorder(), new(exchange.Exchange)
		one := &flight{
			forwarder: f, writer: w, control: *http.NewResponseController(w), request: httptest.NewRequest(http.MethodGet, "/", strings.NewReader("")),
			exchange: x, route: new(terms), passed: true, attempt: attempt{reused: true},
		}
		one.patience = f.patiences.lend(time.Minute, one)
		test.change(one)
		one.end()
		if reused := one.forwarder == nil; reused != test.want {
			t.Errorf("%s: used again: %t, want %t", name, reused, test.want)
		}
		if x.Unshared != test.want {
			t.Errorf("%s: the exchange is unshared: %t, want %t", name, x.Unshared, test.want)
		}
	}
}
