package middleware

import (
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Classes of bytes, as a table: every request has most of its texts checked byte by byte.
const (
	alphanumeric = 1 << iota // ALPHA or DIGIT of RFC 5234 §B.1
	inToken                  // tchar of RFC 9110 §5.6.2
	inB64Token               // of RFC 6750 §2.1, without the trailing equals signs
	separator                // ends a possible credential in a header line
)

var kinds = func() (kinds [256]uint8) {
	for c := range len(kinds) {
		switch {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
			kinds[c] = alphanumeric | inB64Token
		}
		if httpguts.IsTokenRune(rune(c)) {
			kinds[c] |= inToken
		}
	}
	for _, c := range []byte("-._~+/") {
		kinds[c] |= inB64Token
	}
	for _, c := range []byte(" \t,\"") {
		kinds[c] |= separator
	}
	return kinds
}()

func is(c byte, kind uint8) bool { return kinds[c]&kind != 0 }

// consists reports whether text is not empty and has bytes of one class only.
func consists(text string, kind uint8) bool {
	for i := range len(text) {
		if !is(text[i], kind) {
			return false
		}
	}
	return text != ""
}

func isAlphanumeric(c byte) bool { return is(c, alphanumeric) }

// isToken reports whether text is a token of RFC 9110 §5.6.2.
func isToken(text string) bool { return consists(text, inToken) }

// isB64Token reports whether text is a b64token of RFC 6750 §2.1: 1*( ALPHA / DIGIT / "-" / "." /
// "_" / "~" / "+" / "/" ) *"=".
func isB64Token(text string) bool { return consists(strings.TrimRight(text, "="), inB64Token) }
