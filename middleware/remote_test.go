package middleware

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

var testProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

func TestRemote(t *testing.T) {
	tests := []struct {
		peer  string
		lines []string // of X-Forwarded-For
		want  string
		why   string
	}{
		{"192.0.2.1", []string{"198.51.100.1"}, "192.0.2.1", "an untrusted peer is not believed"},
		{"10.0.0.1", nil, "10.0.0.1", "the proxy says nothing"},
		{"10.0.0.1", []string{"198.51.100.1"}, "198.51.100.1", ""},
		{"10.0.0.1", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1", "what is left of the last untrusted address, the caller may have written"},
		{"10.0.0.1", []string{"203.0.113.9", "198.51.100.1"}, "198.51.100.1", "several lines are one list"},
		{"10.0.0.1", []string{"203.0.113.9, 198.51.100.1, 10.0.0.2 ,fd00::7"}, "198.51.100.1", "over trusted proxies"},
		{"10.0.0.1", []string{"nonsense, 198.51.100.1"}, "198.51.100.1", "nobody needs what is left of it"},
		{"10.0.0.1", []string{"198.51.100.1, nonsense"}, "10.0.0.1", "the proxy does not append addresses"},
		{"10.0.0.1", []string{"198.51.100.1, 10.0.0.2", "unknown, 10.0.0.3"}, "10.0.0.1", "nor does this one"},
		{"10.0.0.1", []string{"198.51.100.1,"}, "10.0.0.1", "an empty entry is no address"},
		{"10.0.0.1", []string{""}, "10.0.0.1", ""},
		{"10.0.0.1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3", "a request that began inside"},
		{"10.0.0.1", []string{"198.51.100.1:4711"}, "198.51.100.1", "with a port"},
		{"10.0.0.1", []string{"2001:db8::1"}, "2001:db8::1", ""},
		{"10.0.0.1", []string{"[2001:db8::1]:4711"}, "2001:db8::1", ""},
		{"10.0.0.1", []string{"[2001:db8::1]"}, "2001:db8::1", ""},
		{"10.0.0.1", []string{"[198.51.100.1]"}, "10.0.0.1", "brackets are for IPv6"},
		{"10.0.0.1", []string{"::ffff:198.51.100.1"}, "198.51.100.1", "the same host"},
		{"10.0.0.1", []string{"::ffff:10.9.9.9"}, "10.9.9.9", ""},
		{"10.0.0.1", []string{"2001:db8::1%eth0"}, "2001:db8::1", "a zone means nothing here"},
		{"10.0.0.1", []string{`"198.51.100.1"`}, "10.0.0.1", ""},
		{"10.0.0.1", []string{"198.51.100.1\t, 10.0.0.2"}, "198.51.100.1", ""},
		{"10.0.0.1", []string{strings.Repeat("10.0.0.2,", 5000) + "10.0.0.2"}, "10.0.0.2", "long lists end"},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["X-Forwarded-For"] = tt.lines
		peer := netip.MustParseAddr(tt.peer)
		got := remote(r, testProxies, peer, isTrusted(testProxies, peer))
		if got.String() != tt.want {
			t.Errorf("remote() of peer %s with %.80q = %s, want %s (%s)", tt.peer, tt.lines, got, tt.want, tt.why)
		}
	}
}

// FuzzRemote: the caller is the peer or an address in the header, and never one to the left of an
// untrusted address.
func FuzzRemote(f *testing.F) {
	for _, list := range []string{"", "198.51.100.1", "10.0.0.2, 198.51.100.1", "198.51.100.1, 10.0.0.2", "[2001:db8::1]:80", ",,", "a%b", "1.2.3.4%eth0", "::1%"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		peer := netip.MustParseAddr("10.0.0.1")
		r := &http.Request{Header: http.Header{"X-Forwarded-For": {list}}}
		got := remote(r, testProxies, peer, true)
		if !got.IsValid() || got.Is4In6() || got.Zone() != "" {
			t.Fatalf("remote() of %q = %v", list, got)
		}
		const caller = "198.51.100.77"
		r.Header.Set("X-Forwarded-For", list+", "+caller+", 10.0.0.2")
		if got := remote(r, testProxies, peer, true); got.String() != caller {
			t.Fatalf("remote() = %v: the caller chose its address with %q", got, list)
		}
		if remote(r, testProxies, netip.MustParseAddr(caller), false).String() != caller {
			t.Fatalf("an untrusted peer is believed")
		}
	})
}
