package exchange_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"snowgate/internal/request/exchange"
)

type someKey struct{}

// request returns a request of a protocol on a connection with the context c.
func request(c *exchange.Connection, major int) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.ProtoMajor = major
	if c == nil {
		return r
	}
	// The server makes a new context for each request.
	ctx, cancel := context.WithCancel(c)
	defer cancel()
	return r.WithContext(ctx)
}

func TestRequestsOfAConnection(t *testing.T) {
	parent := context.WithValue(t.Context(), someKey{}, "of the parent")
	for name, test := range map[string]struct {
		connection *exchange.Connection
		major      int
		same       bool // the request needs no context of its own
	}{
		"HTTP/1":                {&exchange.Connection{Context: parent}, 1, true},
		"HTTP/2":                {&exchange.Connection{Context: parent}, 2, false},
		"no connection, HTTP/1": {nil, 1, false},
		"no connection, HTTP/2": {nil, 2, false},
	} {
		c, r, x := test.connection, request(test.connection, test.major), &exchange.Exchange{Client: "first"}
		if got := exchange.ConnectionOf(r.Context()); got != c {
			t.Errorf("%s: the connection of the context is %p, want %p", name, got, c)
		}
		carrying := c.Begin(r, x)
		if same := carrying == r; same != test.same {
			t.Errorf("%s: the same request: %t, want %t", name, same, test.same)
		}
		if got := exchange.From(carrying.Context()); got != x {
			t.Errorf("%s: the context carries %+v at %p, want %p", name, *got, got, x)
		}
		if got := carrying.Context().Value(someKey{}); c != nil && got != "of the parent" {
			t.Errorf("%s: the parent's value is %v", name, got)
		}

		// Another request at the same time, if the protocol allows it.
		if test.major == 2 {
			other := &exchange.Exchange{Client: "second"}
			if got := exchange.From(c.Begin(r, other).Context()); got != other {
				t.Errorf("%s: the second request carries %p, want %p", name, got, other)
			}
			if got := exchange.From(carrying.Context()); got != x {
				t.Errorf("%s: then the first carries %p, want %p", name, got, x)
			}
		}

		c.End(r)
		if got := exchange.From(r.Context()); got == x || !reflect.ValueOf(*got).IsZero() {
			t.Errorf("%s: after the end the context carries %+v", name, *got)
		}
	}
}

func TestFromNothing(t *testing.T) {
	first, second := exchange.From(t.Context()), exchange.From(t.Context())
	if first == second || !reflect.ValueOf(*first).IsZero() {
		t.Errorf("without an exchange: %+v at %p, then at %p", *first, first, second)
	}
}
