package canonical_test

import (
	"net/url"
	"strings"
	"testing"

	"snowgate/internal/request/canonical"
)

func TestValidOrigin(t *testing.T) {
	tests := []struct {
		pattern string
		want    bool
		why     string
	}{
		{"*", true, "any"},
		{"https://app.example", true, ""},
		{"http://localhost:3000", true, "a development server"},
		{"https://192.0.2.1:8443", true, "IPv4"},
		{"http://[::1]:3000", true, "IPv6"},
		{"http://[2001:db8::1]", true, "IPv6 without a port"},
		{"https://xn--mnchen-3ya.de", true, "an internationalized name"},
		{"https://*.example.com", true, "every name below"},
		{"https://*.example.com:8443", true, "at a port"},
		{"http://*.localhost:3000", true, ""},
		{"chrome-extension://abcdefghijklmnop", true, "an extension"},
		{"capacitor://localhost", true, "an app"},
		{"null", false, "sandboxed documents have it, and whoever wants to"},
		{"", false, "empty"},
		{"app.example", false, "no scheme"},
		{"//app.example", false, "no scheme"},
		{"https:app.example", false, "no slashes"},
		{"1https://app.example", false, "a scheme begins with a letter"},
		{"ht tp://app.example", false, ""},
		{"https://", false, "no host"},
		{"https://:8443", false, "no host"},
		{"https://app.example/", false, "a slash"},
		{"https://app.example/x", false, "a path"},
		{"https://app.example?x", false, "a query"},
		{"https://app.example#x", false, "a fragment"},
		{"https://u@app.example", false, "userinfo"},
		{"https://app.example:", false, "an empty port"},
		{"https://app.example:443", false, "the default port"},
		{"http://app.example:80", false, "the default port"},
		{"http://app.example:443", true, "not the default port of http"},
		{"https://app.example:0443", false, "a zero before the port"},
		{"https://app.example:x", false, ""},
		{"https://app.example:99999", false, ""},
		{"https://App.example", false, "capitals"},
		{"HTTPS://app.example", false, "capitals"},
		{"https://app.example.", false, "a trailing dot is another origin, and rarely meant"},
		{"https://münchen.de", false, "browsers send xn--"},
		{"https://[2001:db8:0::1]", false, "not the form of RFC 5952"},
		{"https://*", false, "all hosts is written *"},
		{"https://*.", false, "nothing is left"},
		{"https://*example.com", false, "part of a label: evilexample.com"},
		{"https://app.*.com", false, "in the middle"},
		{"https://example.*", false, "at the end"},
		{"https://*.*.example.com", false, "two"},
		{"*://app.example", false, "any scheme"},
		{"https://app.example:*", false, "any port"},
		{"https://a.example https://b.example", false, "two in one"},
		{"*.", false, "no scheme, nothing left"},
		{"https://.", false, "an empty label"},
		{"https://..", false, "empty labels"},
		{"https://*..", false, "empty labels"},
		{"https://*..example", false, "an empty label"},
		{"https://*.:8443", false, "nothing is left but a port"},
		{"https://.example", false, "an empty label"},
		{"https://app..example", false, "an empty label"},
		{"https://*.192.0.2.1", false, "an address has no names below it"},
		{"https://*.[::1]", false, "an address has no names below it"},
	}
	for _, test := range tests {
		if err := canonical.ValidOrigin(test.pattern); (err == nil) != test.want {
			t.Errorf("ValidOrigin(%q) = %v, want valid: %v (%s)", test.pattern, err, test.want, test.why)
		}
	}
}

// FuzzValidOrigin compares accepted patterns with net/url. No pattern with a wildcard may reach
// beyond one domain.
func FuzzValidOrigin(f *testing.F) {
	for _, seed := range []string{"*", "https://app.example", "https://*.example.com:8443", "http://[::1]:3000", "null", "https://*example.com", "a://b:80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if canonical.ValidOrigin(pattern) != nil || pattern == canonical.AnyOrigin {
			return
		}
		scheme, host, _ := strings.Cut(pattern, "://")
		host, wild := strings.CutPrefix(host, "*.")
		u, err := url.Parse(scheme + "://" + host)
		if err != nil || u.Scheme != scheme || u.Host != host || u.Hostname() == "" || strings.Contains(host, "*") {
			t.Fatalf("ValidOrigin(%q) is true; net/url reads %v, %v", pattern, u, err)
		}
		if wild && !strings.HasPrefix(pattern, scheme+"://*."+host[:1]) {
			t.Fatalf("ValidOrigin(%q) is true", pattern)
		}
		if u.Path+u.RawQuery+u.Fragment != "" || u.User != nil {
			t.Fatalf("ValidOrigin(%q) is true and more than an origin", pattern)
		}
	})
}
