package canonical_test

import (
	"errors"
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"snowgate/internal/request/canonical"
)

func TestParsePathAccepts(t *testing.T) {
	tests := []struct {
		raw, match string
		slash      bool
		why        string
	}{
		{"/", "/", false, "the root"},
		{"/svc", "/svc", false, "one segment"},
		{"/svc/", "/svc/", false, "a trailing slash is not an empty segment"},
		{"/svc/x/y.html", "/svc/x/y.html", false, "dots inside a segment"},
		{"/SVC/x", "/SVC/x", false, "case is kept: another path than /svc/x"},
		{"/...", "/...", false, "three dots are a name"},
		{"/..a/.b/c..", "/..a/.b/c..", false, "names that begin or end with dots"},
		{"/a-b_c~d.e", "/a-b_c~d.e", false, "all unreserved marks"},
		{"/!$&'()*+,;=:@", "/!$&'()*+,;=:@", false, "all other pchar"},
		{"/a;v=1/b;w", "/a;v=1/b;w", false, "parameters on a named segment"},
		{"/a%3Ab", "/a:b", false, "an encoded sub-delimiter compares like itself"},
		{"/a%3ab", "/a:b", false, "hexadecimal digits in lower case"},
		{"/a%20b", "/a b", false, "a space has to be encoded"},
		{"/a%22%3C%3E%5E%60%7B%7C%7D", "/a\"<>^`{|}", false, "and so have these"},
		{"/a%3Fb%23c", "/a?b#c", false, "encoded delimiters are part of the path"},
		{"/%C3%A4/%e2%82%ac", "/ä/€", false, "UTF-8"},
		{"/public/%252e%252e/svc", "/public/%2e%2e/svc", false, "decoded once, so no dots"},
		{"/a%252Fb", "/a%2Fb", false, "an encoded percent is not an encoded slash"},
		{"/svc%2fx", "/svc%2Fx", true, "an encoded slash is reported"},
		{"/svc%2Fx/y", "/svc%2Fx/y", true, "in either case"},
		{"/fetch/https%3A%2F%2Fexample.com%2F", "/fetch/https:%2F%2Fexample.com%2F", true, "a URL as one segment"},
	}
	for _, test := range tests {
		want := canonical.Path{Raw: test.raw, Match: test.match, EncodedSlash: test.slash}
		got, err := canonical.ParsePath(test.raw)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("ParsePath(%q) = %v, -want +got (%s)\n%s", test.raw, err, test.why, diff)
		}
	}
}

func TestParsePathRefuses(t *testing.T) {
	tests := []struct {
		raw  string
		want error
		why  string
	}{
		{"", canonical.ErrRelative, "no path"},
		{"svc", canonical.ErrRelative, "relative"},
		{"*", canonical.ErrRelative, "the asterisk-form"},
		{"%2Fsvc", canonical.ErrRelative, "an encoded slash does not begin a path"},
		{"//svc/x", canonical.ErrSegment, "empty segment in front: a network-path reference"},
		{"/svc//x", canonical.ErrSegment, "in the middle"},
		{"/svc//", canonical.ErrSegment, "at the end, before a trailing slash"},
		{"//", canonical.ErrSegment, "nothing but"},
		{"/;/svc", canonical.ErrSegment, "empty once parameters are stripped"},
		{"/svc/;x=1", canonical.ErrSegment, "the same at the end"},
		{"/%3b/svc", canonical.ErrSegment, "the same, encoded"},
		{"/./svc/x", canonical.ErrDotSegment, "dot"},
		{"/svc/.", canonical.ErrDotSegment, "dot at the end"},
		{"/..", canonical.ErrDotSegment, "above the root"},
		{"/public/../svc/x", canonical.ErrDotSegment, "dot-dot"},
		{"/public/..;/svc/x", canonical.ErrDotSegment, "servers that strip parameters see dot-dot"},
		{"/public/..;a=b/svc/x", canonical.ErrDotSegment, "with any parameter"},
		{"/public/.;/svc/x", canonical.ErrDotSegment, "the same for dot"},
		{"/public/..%3b/svc/x", canonical.ErrDotSegment, "the same, encoded"},
		{"/public/..%3Ba/svc", canonical.ErrDotSegment, "the same, encoded, with a name"},
		{"/public/..%2fsvc/x", canonical.ErrDotSegment, "dot-dot before an encoded slash"},
		{"/public/x%2F..%2fsvc", canonical.ErrDotSegment, "between two of them"},
		{"/public/x%2F..", canonical.ErrDotSegment, "behind one"},
		{"/public/x%2F..;y", canonical.ErrDotSegment, "behind one, with parameters"},
		{"/public/%2e%2e/svc/x", canonical.ErrNeedless, "encoded dots"},
		{"/public/.%2E/svc/x", canonical.ErrNeedless, "half encoded"},
		{"/%73vc/x", canonical.ErrNeedless, "an encoded letter"},
		{"/%53vc", canonical.ErrNeedless, "in upper case"},
		{"/a%2Db", canonical.ErrNeedless, "dash"},
		{"/a%5fb", canonical.ErrNeedless, "underscore"},
		{"/%7Euser", canonical.ErrNeedless, "tilde"},
		{"/%30", canonical.ErrNeedless, "digit"},
		{`/public\..\svc\x`, canonical.ErrForbidden, "backslashes"},
		{"/public%5C..%5csvc", canonical.ErrForbidden, "encoded backslashes"},
		{"/svc%00/x", canonical.ErrForbidden, "NUL"},
		{"/svc%0d%0aX:%20y", canonical.ErrForbidden, "line ends"},
		{"/svc%09", canonical.ErrForbidden, "tab"},
		{"/svc%7F", canonical.ErrForbidden, "DEL"},
		{"/svc%C2%85", canonical.ErrForbidden, "NEL, a control character beyond ASCII"},
		{"/svc\x00", canonical.ErrForbidden, "a raw control character"},
		{"/svc\t", canonical.ErrForbidden, "a raw tab"},
		{"/a b", canonical.ErrByte, "a raw space"},
		{"/a?b", canonical.ErrByte, "a query is not part of a path"},
		{"/a#b", canonical.ErrByte, "nor is a fragment"},
		{"/a[0]", canonical.ErrByte, "brackets are for hosts"},
		{"/ä", canonical.ErrByte, "raw UTF-8"},
		{"/\xe4", canonical.ErrByte, "raw Latin-1"},
		{`/a"b`, canonical.ErrByte, "quote"},
		{"/<a>", canonical.ErrByte, "angle brackets"},
		{"/a^b", canonical.ErrByte, "caret"},
		{"/a`b", canonical.ErrByte, "backtick"},
		{"/{a}", canonical.ErrByte, "braces"},
		{"/a|b", canonical.ErrByte, "bar"},
		{"/a%", canonical.ErrEscape, "cut off"},
		{"/a%2", canonical.ErrEscape, "cut off"},
		{"/a%zz", canonical.ErrEscape, "not hexadecimal"},
		{"/a%2z", canonical.ErrEscape, "half hexadecimal"},
		{"/a%u002f", canonical.ErrEscape, "IIS"},
		{"/a%%32F", canonical.ErrEscape, "nested"},
		{"/%C0%AE%C0%AE/svc", canonical.ErrUTF8, "overlong dots"},
		{"/%E0%80%AF", canonical.ErrUTF8, "overlong slash"},
		{"/%FF", canonical.ErrUTF8, "never in UTF-8"},
		{"/%C3", canonical.ErrUTF8, "cut off"},
		{"/%C3/%A4", canonical.ErrUTF8, "torn apart by a slash"},
		{"/%ED%A0%80", canonical.ErrUTF8, "a surrogate"},
		{"/%F4%90%80%80", canonical.ErrUTF8, "beyond Unicode"},
	}
	for _, test := range tests {
		if got, err := canonical.ParsePath(test.raw); !errors.Is(err, test.want) {
			t.Errorf("ParsePath(%q) = %+v, %v, want error %q (%s)", test.raw, got, err, test.want, test.why)
		}
	}
}

func TestValidPrefix(t *testing.T) {
	tests := []struct {
		path string
		ok   bool
		why  string
	}{
		{"/", true, "everything"},
		{"/a", true, ""},
		{"/a/b:c", true, "any pchar"},
		{"", false, "empty"},
		{"a", false, "relative"},
		{"/a/", false, "a slash at the end says nothing: prefixes end at segments"},
		{"//a", false, "empty segment"},
		{"/a/../b", false, "dot segment"},
		{"/a%3Ab", false, "written decoded"},
		{"/a%2Fb", false, "never an encoded slash"},
		{"/a b", false, "requests could not match it in one way only"},
		{"/ä", false, "the same"},
		{"/a?b", false, "no query"},
	}
	for _, test := range tests {
		if err := canonical.ValidPrefix(test.path); (err == nil) != test.ok {
			t.Errorf("ValidPrefix(%q) = %v, want ok %t (%s)", test.path, err, test.ok, test.why)
		}
	}
}

func TestParsePathAllocatesOnlyToDecode(t *testing.T) {
	got := testing.AllocsPerRun(100, func() { _, _ = canonical.ParsePath("/orders/v1/items;x=1/42") })
	if got != 0 {
		t.Errorf("ParsePath of a path without encoding = %v allocations, want 0", got)
	}
}

// FuzzParsePath checks that an accepted path has one reading, however it is read: decoded by
// net/url, cleaned by package path, or stripped of parameters.
func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{
		"/", "/a/b", "//a", "/a/../b", "/a%2Fb", "/a%2f..%2Fb", "/%2e", "/a;b/c", "/..;/", "/%3b/",
		"/%C3%A4", "/%C0%AE", "/%252e", "/a%5Cb", "/a%00", "/a?b", "/a#b", "/%", "/a b", "/\xff", "/a%252F..%2Fb",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := canonical.ParsePath(raw)
		if err != nil {
			return
		}
		decoded, err := url.PathUnescape(raw)
		if err != nil {
			t.Fatalf("ParsePath(%q) accepts what net/url does not decode: %v", raw, err)
		}
		if !got.EncodedSlash && decoded != got.Match {
			t.Errorf("ParsePath(%q).Match = %q, net/url decodes to %q", raw, got.Match, decoded)
		}
		if got.Raw != raw || got.EncodedSlash != strings.Contains(strings.ToLower(raw), "%2f") {
			t.Errorf("ParsePath(%q) = %+v", raw, got)
		}
		if !utf8.ValidString(decoded) || strings.ContainsFunc(decoded, unicode.IsControl) || strings.Contains(decoded, `\`) {
			t.Errorf("ParsePath(%q) lets %q through", raw, decoded)
		}
		sameSegments(t, raw, got.Match)
		if !got.EncodedSlash {
			sameSegments(t, raw, decoded)
		}
		sameTarget(t, raw)
	})
}

// sameSegments checks that path, with and without parameters, is clean, and that it has the
// segments of raw.
func sameSegments(t *testing.T, raw, decoded string) {
	t.Helper()
	bare := strings.Split(decoded, "/")
	for i, segment := range bare {
		bare[i], _, _ = strings.Cut(segment, ";")
	}
	for _, reading := range []string{decoded, strings.Join(bare, "/")} {
		if clean := path.Clean(reading); clean != "/" && strings.HasSuffix(reading, "/") {
			if clean+"/" != reading {
				t.Errorf("path.Clean(%q) = %q, read from %q", reading, clean, raw)
			}
		} else if clean != reading {
			t.Errorf("path.Clean(%q) = %q, read from %q", reading, clean, raw)
		}
	}
	if strings.Count(raw, "/") != strings.Count(decoded, "/") {
		t.Errorf("%q and %q differ in their number of segments", raw, decoded)
	}
}

// sameTarget checks that net/url parses raw as a path and writes it unchanged.
func sameTarget(t *testing.T, raw string) {
	t.Helper()
	u, err := url.ParseRequestURI(raw)
	if err != nil || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || u.RequestURI() != raw {
		t.Errorf("url.ParseRequestURI(%q) = %#v, %v", raw, u, err)
	}
}
