package clientconn

import "testing"

// TestVersionOfTheFirstBytes: the first bytes show which version a client speaks, in whatever
// pieces they arrive.
func TestVersionOfTheFirstBytes(t *testing.T) {
	for _, test := range []struct {
		reads []string
		old   bool
	}{
		{[]string{"GET / HTTP/1.1\r\n"}, true},
		{[]string{"P", "O", "ST / HTTP/1.1\r\n"}, true},
		{[]string{"PROPFIND / HTTP/1.1\r\n"}, true},
		{[]string{"PRI"}, false},
		{[]string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET"}, false},
		{[]string{"P", "R", "I", " * HTTP/2.0\r\n"}, false},
		{[]string{"PR"}, false}, // not known yet
		{nil, false},
	} {
		var r rester
		for _, text := range test.reads {
			r.look([]byte(text))
		}
		if r.old != test.old {
			t.Errorf("%q: HTTP/1: %v, want %v", test.reads, r.old, test.old)
		}
	}
}

// TestLargerBuffer: with a larger buffer, nobody knows what is left in it, so nothing is parked.
func TestLargerBuffer(t *testing.T) {
	for _, test := range []struct {
		name   string
		before rester
		first  int
		rests  bool
	}{
		{"the usual one", rester{}, serverBuffer, true},
		{"a larger one", rester{}, 2 * serverBuffer, false},
		{"a larger one, of a server that waits", rester{idle: true, old: true, seen: 1}, 2 * serverBuffer, false},
		{"memory for a body", rester{old: true, seen: 1}, 2 * serverBuffer, true},
	} {
		c := &Conn{leave: func() {}, rester: test.before}
		c.read.wanted = 10
		c.rester.rest = &Rest{left: 1}
		c.restsAt(test.first)
		c.rester.look([]byte("GET"))
		c.rester.idle = true
		if got := c.restsAt(serverBuffer) != never; got != test.rests {
			t.Errorf("%s: it rests: %v, want %v", test.name, got, test.rests)
		}
	}
}
