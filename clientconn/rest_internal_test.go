package clientconn

import "testing"

// Which version a client speaks is known from its first bytes, however they come.
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
		{[]string{"PR"}, false}, // nobody knows
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
