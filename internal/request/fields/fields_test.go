package fields

import (
	"strings"
	"testing"
)

// foldSlowly is a simple implementation of fold.
func foldSlowly(name string) string {
	folded := strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		default:
			return -1
		}
	}, name)
	return folded[:min(len(folded), maxFolded)]
}

// FuzzFold checks that every spelling of an identity field counts as that field, whatever stands
// between its letters.
func FuzzFold(f *testing.F) {
	for _, seed := range []string{"X-Snowgate-Client", "x_request.id", "X--Forwarded--For", "Traceparent", "Accept", "", "-_-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var buf [maxFolded]byte
		folded := foldSlowly(name)
		if got := string(fold(name, &buf)); got != folded {
			t.Fatalf("fold(%q) = %q, want %q", name, got, folded)
		}
		own := strings.HasPrefix(folded, "xsnowgate")
		for _, one := range []string{"xrequestid", "xforwardedfor", "xforwardedhost", "xforwardedproto", "traceparent"} {
			own = own || folded == one
		}
		if own && (KindOf(name) != Identity || Editable(name)) {
			t.Errorf("%q is of kind %d, editable %v", name, KindOf(name), Editable(name))
		}
	})
}

func TestSame(t *testing.T) {
	for _, pair := range [][2]string{{"X-Env", "x_env"}, {"XEnv", "-X.E~N-v"}, {"", "--"}} {
		if !Same(pair[0], pair[1]) || !Same(pair[1], pair[0]) {
			t.Errorf("%q are not the same", pair)
		}
	}
	for _, pair := range [][2]string{{"X-Env", "X-En"}, {"X-Env", "X-Env1"}, {"A", ""}, {"A", "B"}} {
		if Same(pair[0], pair[1]) || Same(pair[1], pair[0]) {
			t.Errorf("%q are the same", pair)
		}
	}
}

func TestEditable(t *testing.T) {
	for _, name := range []string{"X-Api-Key", "authorization", "Cookie", "Server", "Accept-Encoding", "X-Forwarded-Prefix", "X_Own"} {
		if !Editable(name) {
			t.Errorf("%q is not editable", name)
		}
	}
	for _, name := range []string{
		"X-Snowgate-Client", "x_snowgate_scope", "X-Snowgate-Anything", "X-Request-Id", "X-Forwarded-For", "X_Forwarded_Host", "traceparent",
		"Connection", "Keep-Alive", "TE", "Trailer", "Transfer-Encoding", "transfer_encoding", "Upgrade", "Proxy-Authorization",
		"Proxy-Connection", "Host", "Content-Length", "Expect", "Proxy", "X-HTTP-Method-Override", "X-Original-Url",
		"author_ization", "", "a b", "a:", "ä", "a\r\nb",
	} {
		if Editable(name) {
			t.Errorf("%q is editable", name)
		}
	}
}
