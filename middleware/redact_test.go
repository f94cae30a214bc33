package middleware

import (
	"strings"
	"testing"
)

// FuzzQuickLook compares the quick look with the slow one: it may send a text to
// the slow one in vain, but never spare one that holds a secret.
func FuzzQuickLook(f *testing.F) {
	for _, text := range []string{
		"", "/orders/42", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36",
		"/sgt_0123", "sg", "s", "/a?access_token=x", "/x/sgs_secret", "%73gt_1", "sgt%5f1", "xsgt_1", "s_sgt_",
		strings.Repeat("aB3", 14), strings.Repeat("aB3", 15), "/" + strings.Repeat("aB3", 15) + "/", strings.Repeat("aB_", 30),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if slow := hideParameter(hideWords(text)); slow != text && !mayHoldToken(text) {
			t.Errorf("the quick look spares %q, in which something is to be hidden: %q", text, slow)
		}
	})
}
