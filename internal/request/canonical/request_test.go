package canonical_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"snowgate/internal/request/canonical"
)

func TestFromRequest(t *testing.T) {
	tests := []struct {
		target, host string
		want         string
		err          error
		why          string
	}{
		{"/a/b", "h", "/a/b", nil, "origin-form"},
		{"/a?b=/../c", "h", "/a", nil, "a query takes no part"},
		{"/a??", "h", "/a", nil, "a question mark in the query"},
		{"/?", "h", "/", nil, "an empty query"},
		{"/? /x", "h", "", canonical.ErrSpace, "three words are no request line, wherever the space is"},
		{"/?a=b HTTP/1.1", "h", "", canonical.ErrSpace, "two versions"},
		{"http://h?a b", "h", "", canonical.ErrSpace, "in a URL"},
		{"/?a=%20b+c", "h", "/", nil, "encoded it is in order"},
		{"http://h/a/b?c", "h", "/a/b", nil, "absolute-form routes like origin-form"},
		{"HTTPS://h:8443/a", "h:8443", "/a", nil, "schemes know no case"},
		{"http://h", "h", "/", nil, "no path is the root"},
		{"http://h?a=b", "h", "/", nil, "also with a query"},
		{"http://[::1]:80/a", "[::1]:80", "/a", nil, "an IPv6 address"},
		{"*", "h", "", canonical.ErrForm, "asterisk-form"},
		{"h:443", "h:443", "", canonical.ErrForm, "authority-form"},
		{"ftp://h/a", "h", "", canonical.ErrForm, "another scheme"},
		{"javascript://h/a", "h", "", canonical.ErrForm, "another scheme"},
		{"a/b", "h", "", canonical.ErrForm, "relative"},
		{"", "h", "", canonical.ErrForm, "nothing"},
		{"?a", "h", "", canonical.ErrForm, "a query alone"},
		{"http:/a", "h", "", canonical.ErrForm, "no authority"},
		{"http:a", "h", "", canonical.ErrForm, "opaque"},
		{"//h/a", "h", "", canonical.ErrSegment, "a network-path is an empty segment"},
		{"http://h//a", "h", "", canonical.ErrSegment, "the path of a URL obeys the same rules"},
		{"http://h/%61", "h", "", canonical.ErrNeedless, "the same"},
		{"http:///a", "h", "", canonical.ErrHost, "an empty authority"},
		{"http://u@h/a", "h", "", canonical.ErrUserinfo, "userinfo"},
		{"http://u:p@h/a", "h", "", canonical.ErrUserinfo, "userinfo with password"},
		{"http://@h/a", "h", "", canonical.ErrUserinfo, "empty userinfo"},
		{"/a#b", "h", "", canonical.ErrFragment, "fragment"},
		{"/a?b#c", "h", "", canonical.ErrFragment, "fragment behind a query"},
		{"#", "h", "", canonical.ErrFragment, "nothing but a fragment"},
		{"http://h#@evil/", "h", "", canonical.ErrFragment, "fragment in the authority"},
		{`http://h\@evil/a`, "h", "", canonical.ErrUserinfo, "browsers turn the backslash"},
		{`http://h\evil/a`, "h", "", canonical.ErrHost, "the same"},
		{"/a", "", "", canonical.ErrHost, "no Host"},
		{"/a", ":80", "", canonical.ErrHost, "a port is not a Host"},
	}
	for _, test := range tests {
		r := &http.Request{RequestURI: test.target, Host: test.host}
		got, err := canonical.FromRequest(r)
		if got.Raw != test.want || !errors.Is(err, test.err) {
			t.Errorf("FromRequest(%q of %q) = %q, %v, want %q, %v (%s)",
				test.target, test.host, got.Raw, err, test.want, test.err, test.why)
		}
	}
}

func TestReasonsRepeatNothing(t *testing.T) {
	for _, target := range []string{"/%zzsecret", "/\\secret", "ftp://secret", "http://u:secret@h/"} {
		_, err := canonical.FromRequest(&http.Request{RequestURI: target, Host: "h"})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("FromRequest(%q) = %v, want a constant text", target, err)
		}
	}
}

func TestHost(t *testing.T) {
	tests := []struct{ hostport, want, why string }{
		{"example.com", "example.com", ""},
		{"Example.COM", "example.com", "case is ignored"},
		{"example.com:8080", "example.com", "the port is ignored"},
		{"example.com:", "example.com", "an empty port is none"},
		{"example.com.", "example.com", "a trailing dot is ignored"},
		{"EXAMPLE.com.:443", "example.com", "all of it together"},
		{"192.0.2.1:80", "192.0.2.1", "IPv4"},
		{"[2001:DB8::1]:80", "[2001:db8::1]", "IPv6"},
		{"[2001:db8:0::1]", "[2001:db8::1]", "IPv6 in another spelling"},
		{"my_host", "my_host", "an underscore, as container names have it"},
		{"xn--mnchen-3ya.de", "xn--mnchen-3ya.de", "an internationalized name"},
		{"", "", "empty"},
		{".", "", "the root of the DNS"},
		{":80", "", "only a port"},
		{"a:b", "", "a port that is none"},
		{"a:80:80", "", "two ports"},
		{"a:99999", "", "a port out of range"},
		{"a:+80", "", "a sign"},
		{"::1", "", "IPv6 without brackets"},
		{"[::1", "", "half brackets"},
		{"[::1]x", "", "text behind the brackets"},
		{"[::1%25eth0]", "", "a zone"},
		{"[192.0.2.1]", "", "IPv4 in brackets"},
		{"a b", "", "space"},
		{"a@b", "", "userinfo"},
		{"a/b", "", "a path"},
		{"a%41", "", "percent-encoding"},
		{"a,b", "", "a list"},
		{"ä.de", "", "not ASCII"},
	}
	for _, test := range tests {
		got, err := canonical.Host(test.hostport)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("Host(%q) = %q, %v, want %q (%s)", test.hostport, got, err, test.want, test.why)
		}
	}
}

// TestFromRequestOverHTTP2: requests that net/http refuses only over HTTP/1.1.
func TestFromRequestOverHTTP2(t *testing.T) {
	tests := []struct {
		method, target, host string
		hosts                []string
		err                  error
		why                  string
	}{
		{"GET", "/a", "h", nil, nil, "the ordinary case"},
		{"M-SEARCH", "/a", "h", []string{"h"}, nil, "a Host that says the same"},
		{"G T", "/a", "h", nil, canonical.ErrMethod, "a space in the method"},
		{"GET\x00", "/a", "h", nil, canonical.ErrMethod, "NUL in the method"},
		{"GET /x HTTP/1.1\r\nA:", "/a", "h", nil, canonical.ErrMethod, "a whole request line"},
		{"g\xc3\xa9t", "/a", "h", nil, canonical.ErrMethod, "beyond ASCII"},
		{"GET", "/a", "h", []string{"i"}, canonical.ErrHost, "a Host that says something else (RFC 9113 §8.3.1)"},
		{"GET", "/a", "h", []string{"h", "i"}, canonical.ErrHost, "two of them"},
		{"GET", "http://h/a", "h", nil, canonical.ErrForm, "a URL as the path"},
	}
	for _, test := range tests {
		r := &http.Request{Method: test.method, ProtoMajor: 2, RequestURI: test.target, Host: test.host, Header: http.Header{"Host": test.hosts}}
		if _, err := canonical.FromRequest(r); !errors.Is(err, test.err) {
			t.Errorf("FromRequest(%q %q of %q, Host %q) = %v, want %v (%s)", test.method, test.target, test.host, test.hosts, err, test.err, test.why)
		}
	}
}
