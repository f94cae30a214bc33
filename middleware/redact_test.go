package middleware

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// FuzzQuickLook compares the quick test with the slow one. The quick test may send a harmless text
// to the slow one, but must never skip a text with a secret.
func FuzzQuickLook(f *testing.F) {
	for _, text := range []string{
		"", "/orders/42", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36",
		"/sgt_0123", "sg", "s", "/a?access_token=x", "/x/sgs_secret", "%73gt_1", "sgt%5f1", "xsgt_1", "s_sgt_",
		strings.Repeat("aB3", 14), strings.Repeat("aB3", 15), "/" + strings.Repeat("aB3", 15) + "/", strings.Repeat("aB_", 30),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := veil{text: text, shown: len(text)}
		v.hideWords(text)
		v.hideParameters(text)
		if v.hidden != nil && !mayHoldToken(text) {
			t.Errorf("the quick look spares %q, in which something is to be hidden: %q", text, v.String(len(text)))
		}
	})
}

// credentials returns the secrets of a request with these Authorization lines.
func credentials(lines ...string) secrets {
	return secretsOf(&http.Request{Header: http.Header{"Authorization": lines}}, false)
}

func TestClean(t *testing.T) {
	token := "sgt_" + strings.Repeat("aB3", 22)
	long := strings.Repeat("long-credential/", 300)
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("one-of-many-%d", i)
	}
	tests := []struct {
		why, line, text string
		limit           int
		want            string
	}{
		{"nothing to hide", "Basic dXNlcjpzZWNyZXRz", "/orders/42", 99, "/orders/42"},
		{"the limit", "", "0123456789", 4, "0123…"},
		{"the limit within a character", "", "012é456789", 4, "012…"},
		{"a word", "Basic dXNlcjpzZWNyZXRz", "/x/dXNlcjpzZWNyZXRz/y", 99, "/x/[redacted]/y"},
		{"a word that comes again, in both", "Basic first-word first-word", "first-word.first-word", 99, "[redacted].[redacted]"},
		{"a word that is ours", "redacted redacted redacted", "redacted/redacted", 99, "[redacted]/[redacted]"},
		{"a word within another", "first-word a-first-word", "/a-first-word/", 99, "/[redacted]/"},
		{"a word that the limit cuts", "Basic dXNlcjpzZWNyZXRz", "/orders/dXNlcjpzZWNyZXRz", 10, "/orders/[r…"},
		{"a word longer than the limit", long, "/" + long, 20, "/[redacted]…"},
		{"words longer than what is compared", long[:100], "/" + long[:100] + "/", 200, "/[redacted]/"},
		{"a word behind what is shown", "Basic dXNlcjpzZWNyZXRz", "/orders/dXNlcjpzZWNyZXRz", 8, "/orders/…"},
		{"more words than are searched for", strings.Join(many, " "), "/x/one-of-many-99, GET and one-of-many-0", 99, "[redacted], GET and [redacted]"},
		{"more words than are read", strings.Repeat("first-word ", 1000), "/x/second-word a b", 99, "[redacted] a b"},
		{"a token", "", "/x/" + token + "/y", 99, "/x/[redacted]/y"},
		{"a token that the limit cuts", "", "/x/" + token + "/y", 10, "/x/[redact…"},
		{"a token of which the limit leaves one letter", "", "/x/" + token, 4, "/x/[…"},
		{"a token in percent-encoding that the limit cuts", "", "/x/" + encoded(token), 13, "/x/[redacted]…"},
		{"a secret without its prefix that the limit cuts", "", "/x/" + token[4:], 13, "/x/[redacted]…"},
		{"a parameter", "", "/x?access_token=abc&access_token=&access_token=d;e", 99, "/x?access_token=[redacted]&access_token=&access_token=[redacted];e"},
		{"a parameter that the limit cuts", "", "/x?access_token=abc&d", 17, "/x?access_token=[…"},
		{"bytes that are no text", "", strings.Repeat("\x80", 99), 10, strings.Repeat("\x80", 10) + "…"},
	}
	for _, test := range tests {
		hide := credentials(test.line)
		if got := hide.clean(test.text, test.limit); got != test.want {
			t.Errorf("%s: clean(%.40q, %d) = %q, want %q", test.why, test.text, test.limit, got, test.want)
		}
	}
}

// encoded returns text with every byte percent-encoded.
func encoded(text string) string {
	var b strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&b, "%%%02x", text[i])
	}
	return b.String()
}

// FuzzClean: the shown text holds no word of the credentials and no token, and its length is
// limited.
func FuzzClean(f *testing.F) {
	for _, limit := range []uint8{0, 5, 20, 40, 200} {
		f.Add("Basic dXNlcjpzZWNyZXRz", "/x/dXNlcjpzZWNyZXRz/access_token=1/sgt_123", limit)
		f.Add("redacted aredacted [redacted", "/[redacted]redacted", limit)
		f.Add("aaaaaaaa aaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", limit)
		f.Add(strings.Repeat("sgt_1234 ", 9), strings.Repeat("%73gt_1234/", 9), limit)
	}
	f.Fuzz(func(t *testing.T, line, text string, most uint8) {
		limit := int(most) + len("sgt_")
		hide := credentials(line)
		got := hide.clean(text, limit)
		if len(got) > limit+len("…") {
			t.Fatalf("clean(%q, %d) = %q: %d bytes", text, limit, got, len(got))
		}
		for piece := range strings.SplitSeq(withoutCut(got), redacted) {
			for _, word := range hide.words[:hide.count] {
				if strings.Contains(piece, word) {
					t.Fatalf("clean(%q, %d) = %q, which has %q of %q", text, limit, got, word, line)
				}
			}
			if strings.Contains(piece, "sgt_") || strings.Contains(piece, "sgs_") {
				t.Fatalf("clean(%q, %d) = %q, which has a token", text, limit, got)
			}
		}
	})
}

// withoutCut returns text without the part of [redacted] that the limit may have cut.
func withoutCut(text string) string {
	text, cut := strings.CutSuffix(text, "…")
	for i := len(redacted); i > 0 && cut; i-- {
		if strings.HasSuffix(text, redacted[:i]) {
			return text[:len(text)-i]
		}
	}
	return text
}

// TestCleanHidesEveryCut: wherever a credential stands and wherever it is cut, no four consecutive
// letters of it are shown.
func TestCleanHidesEveryCut(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
	for range 2000 {
		secret := make([]byte, 43+random.IntN(12))
		for i := range secret {
			secret[i] = letters[random.IntN(len(letters))]
		}
		other := fmt.Sprintf("%x", random.Uint64())
		text := strings.Repeat("/", random.IntN(120)) + "sgt_" + string(secret) + strings.Repeat("/", random.IntN(30)) + other + "/end"
		limit := 4 + random.IntN(200)
		hide := credentials("Basic " + other)
		got := hide.clean(text, limit)
		for _, one := range []string{string(secret), other} {
			for i := range len(one) - 4 {
				if strings.Contains(got, one[i:i+4]) {
					t.Fatalf("clean(%q, %d) = %q", text, limit, got)
				}
			}
		}
	}
}

// allocated returns the bytes that do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestCleanIsBounded: the cost of an access line does not grow with the caller's text.
func TestCleanIsBounded(t *testing.T) {
	distinct := make([]string, 1700)
	for i := range distinct {
		distinct[i] = fmt.Sprintf("w%07x", i)
	}
	worst := map[string][2]string{
		"a word that the replacement has": {strings.Repeat("redacted ", 1600), strings.Repeat("redacted", 1900)},
		"distinct words":                  {strings.Join(distinct, " "), strings.Join(distinct, "/")},
		"empty parameters":                {"", strings.Repeat("access_token=&", 2140)},
		"encoded bytes":                   {"", strings.Repeat("%41", 10_000)},
		"short words":                     {"aaaaaaaa aaaaaaaaa aaaaaaaaaa", strings.Repeat("a", 30_000)},
		"tokens":                          {"", strings.Repeat("sgt_/", 6_000)},
	}
	for why, sent := range worst {
		bytes := slices.Min([]uint64{allocated(func() { cleanOnce(sent) }), allocated(func() { cleanOnce(sent) }), allocated(func() { cleanOnce(sent) })})
		if bytes > 8*maxLoggedTarget {
			t.Errorf("%s: %d bytes of Authorization and %d of path cost %d bytes of memory, want at most %d",
				why, len(sent[0]), len(sent[1]), bytes, 8*maxLoggedTarget)
		}
	}
}

func cleanOnce(sent [2]string) {
	hide := credentials(sent[0])
	_ = hide.clean(sent[1], maxLoggedTarget)
}
