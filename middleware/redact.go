package middleware

import (
	"bytes"
	"net/http"
	"strings"
	"unicode/utf8"

	"snowgate/tokens"
)

const redacted = "[redacted]"

// minSecret is the length under which a word of an Authorization header is not
// searched for in other texts: it would blot out ordinary words.
const minSecret = 8

// secrets are the credentials that a request was sent with.
type secrets []string

// secretsOf appends to found the words of every Authorization and
// Proxy-Authorization line of r that could be a credential. judged tells that the
// first of them names one that was found good. If that is a token of ours, clean hides
// it without being told.
func secretsOf(r *http.Request, judged bool, found secrets) secrets {
	if judged && r.Header["Proxy-Authorization"] == nil && endsWithToken(r.Header["Authorization"]) {
		return found
	}
	for _, name := range [...]string{"Authorization", "Proxy-Authorization"} {
		for _, line := range r.Header[name] {
			for line != "" {
				var word string
				word, line = cutWord(line)
				if len(word) >= minSecret {
					found = append(found, word)
				}
			}
		}
	}
	return found
}

// endsWithToken reports whether the only one of lines ends with what looks like a token of ours.
func endsWithToken(lines []string) bool {
	return len(lines) == 1 && len(lines[0]) > tokens.Length &&
		strings.HasPrefix(lines[0][len(lines[0])-tokens.Length:], tokens.Prefix)
}

// cutWord splits line behind its first word, which may be empty.
func cutWord(line string) (word, rest string) {
	for i := range len(line) {
		if is(line[i], separator) {
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}

// clean returns text without the secrets, without anything else that looks
// like a token or a client secret of ours, and with at most limit bytes.
func (s secrets) clean(text string, limit int) string {
	if len(text) < len("sgt_") { // the least that anything below looks for
		return text
	}
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	if mayHoldToken(text) {
		text = hideParameter(hideWords(text))
	}
	return bound(text, limit)
}

// secretRun is how many base62 digits in a row may be the secret of a token, even
// without anything around it.
const secretRun = 43

// hideWords replaces every word that is, or once was, a token or a client
// secret: also percent-encoded, cut in two by an encoded slash, or without its
// prefix. A word is a run of letters, digits, underscores and encoded bytes.
func hideWords(text string) string {
	var b strings.Builder
	for rest := text; rest != ""; {
		word, raw := nextWord(rest)
		switch {
		case raw == 0:
			b.WriteByte(rest[0])
			raw = 1
		case isSecretWord(word):
			b.WriteString(redacted)
		default:
			b.WriteString(rest[:raw])
		}
		rest = rest[raw:]
	}
	return b.String()
}

// mayHoldToken is a quick look that spares nearly all texts a slow one. What it
// says no to has no secret: neither one of our prefixes, nor an encoded byte, nor
// a parameter, nor as many letters and digits in a row.
func mayHoldToken(text string) bool {
	return strings.IndexByte(text, '%') >= 0 || strings.IndexByte(text, '=') >= 0 ||
		strings.Contains(text, "sg") || mayHoldRun(text)
}

// mayHoldRun reports whether there is a run of [secretRun] letters and digits in text.
// Every such run has one in a place whose number can be divided by its length, so only
// those places are looked at, and what is around them.
func mayHoldRun(text string) bool {
	for i := secretRun - 1; i < len(text); i += secretRun {
		begin, end := i, i
		for begin >= 0 && isAlphanumeric(text[begin]) {
			begin--
		}
		for end < len(text) && isAlphanumeric(text[end]) {
			end++
		}
		if end-begin > secretRun {
			return true
		}
	}
	return false
}

// nextWord returns the word that text begins with, decoded, and its length in
// text; 0 if it begins with something else.
func nextWord(text string) (word []byte, raw int) {
	for raw < len(text) {
		c := text[raw]
		switch {
		case isAlphanumeric(c) || c == '_':
			word = append(word, c)
			raw++
		case c == '%' && raw+2 < len(text) && isHex(text[raw+1]) && isHex(text[raw+2]):
			word = append(word, unhex(text[raw+1])<<4|unhex(text[raw+2]))
			raw += 3
		default:
			return word, raw
		}
	}
	return word, raw
}

// isSecretWord reports whether word has one of our prefixes, or so many base62
// digits in a row, of all three sorts, as a secret has. Digests in hexadecimal
// have one sort of letters and stay legible.
func isSecretWord(word []byte) bool {
	if bytes.Contains(word, []byte("sgt_")) || bytes.Contains(word, []byte("sgs_")) {
		return true
	}
	var run, upper, lower, digits int
	for _, c := range word {
		switch {
		case 'A' <= c && c <= 'Z':
			upper++
		case 'a' <= c && c <= 'z':
			lower++
		case '0' <= c && c <= '9':
			digits++
		default:
			run, upper, lower, digits = 0, 0, 0, 0
			continue
		}
		run++
		if run >= secretRun && upper > 0 && lower > 0 && digits > 0 {
			return true
		}
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// hideParameter replaces the value of access_token= (RFC 6750 §2.3) in a text
// that quotes a query.
func hideParameter(text string) string {
	const name = "access_token="
	before, after, found := strings.Cut(text, name)
	if !found {
		return text
	}
	end := strings.IndexAny(after, "&; \"'")
	if end < 0 {
		end = len(after)
	}
	return before + name + redacted + hideParameter(after[end:])
}

// bound cuts text to at most limit bytes, at the boundary of a character.
func bound(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
