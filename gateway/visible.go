package gateway

import (
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible writes what it is given to out, with characters that a terminal or an editor obeys
// instead of showing them as their escapes: controls above ASCII, line and paragraph separators, and
// format characters, such as those that turn the direction of text (Unicode classes Cc, Zl, Zp and
// Cf). A caller could otherwise have a line of the log look like another. In JSON these characters
// only occur in strings, where the escapes mean the same. Those of ASCII are escaped before.
type visible struct{ out io.Writer }

// Write implements [io.Writer].
func (v visible) Write(p []byte) (int, error) {
	if isASCII(p) {
		return v.out.Write(p)
	}
	if _, err := v.out.Write(escaped(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func isASCII(p []byte) bool {
	for _, c := range p {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// escaped returns p with each such character as \u and its UTF-16 code in hexadecimal.
func escaped(p []byte) []byte {
	shown := make([]byte, 0, len(p)+len(p)/8)
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		switch {
		case r < utf8.RuneSelf || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			shown = append(shown, p[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			shown = fmt.Appendf(shown, `\u%04x\u%04x`, high, low)
		default:
			shown = fmt.Appendf(shown, `\u%04x`, r)
		}
		p = p[size:]
	}
	return shown
}
