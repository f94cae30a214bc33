package config

import (
	"strings"
	"testing"
)

func TestHSTS(t *testing.T) {
	tests := []struct {
		text, want string
		fault      string // a part of it
		why        string
	}{
		{"max-age=31536000", "max-age=31536000", "", ""},
		{"max-age=0", "max-age=0", "", "take it back"},
		{"max-age=31536000; includeSubDomains; preload", "max-age=31536000; includeSubDomains; preload", "", ""},
		{"preload;includesubdomains;MAX-AGE=63072000", "max-age=63072000; includeSubDomains; preload", "", "any order and case"},
		{"31536000", "", "is no value of", "only a number"},
		{"8760h", "", "is no value of", "a duration"},
		{"max-age", "", "not a number of seconds", ""},
		{"max-age=", "", "not a number of seconds", ""},
		{"max-age=1y", "", "not a number of seconds", ""},
		{"max-age=-1", "", "not a number of seconds", ""},
		{"max-age=+1", "", "not a number of seconds", ""},
		{"max-age=99999999999", "", "not a number of seconds", "some centuries"},
		{"includeSubDomains", "", "is no value of", "no max-age"},
		{"max-age=1;max-age=2", "", "twice", ""},
		{"max-age=1; includeSubDomains=true", "", "is no value of", "the directive has no value"},
		{"max-age=1; includeSubdomain", "", "is no value of", "browsers would ignore it"},
		{"max-age=1;", "", "is no value of", "an empty directive"},
		{"max-age=1, includeSubDomains", "", "not a number of seconds", "a comma"},
		{"max-age=31536000; preload", "", "for which browsers want", ""},
		{"max-age=300; includeSubDomains; preload", "", "for which browsers want", ""},
		{"max-age=1\r\nX: y", "", "not a number of seconds", "another field"},
	}
	for _, test := range tests {
		var got HSTS
		err := got.UnmarshalText([]byte(test.text))
		switch {
		case string(got) != test.want:
			t.Errorf("UnmarshalText(%q) = %q, %v, want %q (%s)", test.text, got, err, test.want, test.why)
		case (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault):
			t.Errorf("UnmarshalText(%q) = %v, want %q (%s)", test.text, err, test.fault, test.why)
		}
	}
}

func TestHSTSNeedsTLS(t *testing.T) {
	_, err := load([]string{"SNOWGATE_HSTS=max-age=1"}, testNow)
	if want := `SNOWGATE_HSTS: "max-age=1" is never sent without TLS: it needs SNOWGATE_TLS_CERT, or SNOWGATE_TRUSTED_PROXIES of which one speaks TLS`; err == nil || err.Error() != want {
		t.Errorf("without TLS: %v, want %s", err, want)
	}
	if _, err := load([]string{"SNOWGATE_HSTS=max-age=1", "SNOWGATE_TRUSTED_PROXIES=10.0.0.1"}, testNow); err != nil {
		t.Errorf("behind a proxy: %v", err)
	}
}

// FuzzHSTS: what is sent is what was read, and one line.
func FuzzHSTS(f *testing.F) {
	for _, seed := range []string{"max-age=0", "max-age=31536000; includeSubDomains; preload", ";;", "max-age=\"1\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var first, second HSTS
		if first.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := second.UnmarshalText([]byte(first)); err != nil || first != second || strings.ContainsAny(string(first), "\r\n\"") {
			t.Fatalf("%q is %q, and that is %q, %v", text, first, second, err)
		}
	})
}
