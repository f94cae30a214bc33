package torture_test

import (
	"strings"
	"testing"
)

// TestMixUpIsSeen has the client and the service send the bytes of another exchange, in a whole
// body and in one byte of it. Who compares must see that, and see nothing where nothing is mixed.
func TestMixUpIsSeen(t *testing.T) {
	for _, test := range []struct {
		name  string
		mixUp func(one, other *message)
		whole bool // nothing is mixed up
	}{
		{"nothing", func(_, _ *message) {}, true},
		{"whole body", func(one, other *message) { copy(one.wire[one.head:], other.wire[other.head:]) }, false},
		{"first byte", func(one, other *message) { one.wire[one.head] = other.wire[other.head] }, false},
		{"last byte", func(one, other *message) { one.wire[len(one.wire)-1] = other.wire[len(other.wire)-1] }, false},
		{"moved by a block", func(one, _ *message) { copy(one.wire[one.head:], one.wire[one.head+8:]) }, false},
	} {
		for _, way := range []string{"request", "response"} {
			one, other := newSized(1), newSized(2)
			if way == "request" {
				test.mixUp(&one.request, &other.request)
			} else {
				test.mixUp(&one.response, &other.response)
			}
			faults := absolute(one, holdDirectly(t, one))
			if seen := strings.Contains(strings.Join(faults, "\n"), way+": byte"); seen == test.whole {
				t.Errorf("%s of the %s is mixed up: faults %q", test.name, way, faults)
			}
		}
	}
}

// TestForeignResponseIsSeen has the service send the response to another exchange, which has no
// body to tell.
func TestForeignResponseIsSeen(t *testing.T) {
	one, other := newSized(1), newSized(2)
	for _, e := range []*exchange{one, other} {
		e.status, e.response.coding, e.response.size = 204, none, 0
		e.response.build("HTTP/1.1 204 No Content\r\n")
	}
	one.response.wire = other.response.wire
	if faults := absolute(one, holdDirectly(t, one)); len(faults) == 0 {
		t.Error("the response to another exchange is taken for that of this one")
	}
}

// newSized returns an exchange with bodies of the same length as those of others.
func newSized(id uint64) *exchange {
	e := &exchange{id: id, lane: calm, kind: "plain", method: "POST", target: "/calm/", status: 200, leaves: -1, when: -1, ending: keeps}
	e.request.key, e.response.key = stream(id<<1), stream(id<<1|1)
	e.request.coding, e.request.size, e.response.coding, e.response.size = sized, 1000, sized, 1000
	e.response.fields = []field{{"X-Answer", e.text()}}
	e.request.build("POST /calm/ HTTP/1.1\r\nX-Torture: " + e.mark("a") + "\r\nHost: torture.test\r\n")
	e.response.build("HTTP/1.1 200 OK\r\n")
	return e
}

// holdDirectly holds an exchange with the service, with no proxy between.
func holdDirectly(t *testing.T, e *exchange) *record {
	t.Helper()
	s := &site{t: t, fault: t.Errorf}
	p := &play{e, new(record), "a"}
	s.under.Store(e.mark("a"), p)
	c := &client{side: "a", address: s.listen()}
	c.hold([]*play{p})
	if p.outcome.end != whole || len(p.arrivals) != 1 {
		t.Fatalf("the exchange ended with %q and %d arrivals", p.outcome.end, len(p.arrivals))
	}
	return p.record
}
