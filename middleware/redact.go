package middleware

import (
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"snowgate/tokens"
)

const redacted = "[redacted]"

// minSecret is the least length of a word of an Authorization header that is searched for in other
// texts. Shorter ones would hide ordinary words.
const minSecret = 8

// maxSecrets limits the words of credentials that are searched for one by one. All schemes in use
// have fewer: Basic and Bearer have two, Digest and request signatures about a dozen.
const maxSecrets = 32

// secretHead is how many bytes of a secret are compared. Text that begins with that many of them is
// hidden over the length of the secret.
const secretHead = 64

// secrets are the credentials of a request.
type secrets struct {
	words [maxSecrets]string
	count int
	read  int  // words read, including repeated ones
	more  bool // too many words to search for each
}

// secretsOf returns the words of every Authorization and Proxy-Authorization line of r that could
// be a credential. judged means that the first line has a token that was found good; clean
// recognises such a token by itself.
func secretsOf(r *http.Request, judged bool) (found secrets) {
	if judged && r.Header["Proxy-Authorization"] == nil && endsWithToken(r.Header["Authorization"]) {
		return found
	}
	for _, name := range [...]string{"Authorization", "Proxy-Authorization"} {
		for _, line := range r.Header[name] {
			found.add(line)
		}
	}
	return found
}

// add adds the words of line, each once, until there are too many.
func (s *secrets) add(line string) {
	for line != "" && !s.more {
		var word string
		word, line = cutWord(line)
		if len(word) < minSecret {
			continue
		}
		s.read++
		switch {
		case slices.Contains(s.words[:s.count], word):
			s.more = s.read > 4*maxSecrets
		case s.count == maxSecrets:
			s.more = true
		default:
			s.words[s.count] = word
			s.count++
		}
	}
}

// endsWithToken reports whether lines is one line that ends with something like a token of ours.
func endsWithToken(lines []string) bool {
	return len(lines) == 1 && len(lines[0]) > tokens.Length &&
		strings.HasPrefix(lines[0][len(lines[0])-tokens.Length:], tokens.Prefix)
}

// cutWord splits line after its first word, which may be empty.
func cutWord(line string) (word, rest string) {
	for i := range len(line) {
		if is(line[i], separator) {
			return line[:i], line[i+1:]
		}
	}
	return line, ""
}

// lookAhead is how many bytes after the shown text clean examines, to recognize a token by its end.
// It is longer than a token with every character percent-encoded.
const lookAhead = 256

// clean returns the first limit bytes of text at most, without the secrets and without anything
// else that looks like a token or a client secret of ours. It also hides a secret that only begins
// within the limit. Its cost depends on limit, not on the length of text.
func (s *secrets) clean(text string, limit int) string {
	if len(text) < len("sgt_") { // the shortest text that clean looks for
		return text
	}
	v := veil{text: text, shown: shownOf(text, limit)}
	near := text[:min(len(text), v.shown+lookAhead)]
	if s.more {
		v.hideLong(near)
	} else {
		for _, secret := range s.words[:s.count] {
			v.hideSecret(near, secret)
		}
	}
	if mayHoldToken(near) {
		v.hideWords(near)
		v.hideParameters(near)
	}
	return v.String(limit)
}

// secretRun is the number of consecutive base62 digits that may be the secret of a token, whatever
// surrounds them.
const secretRun = 43

// veil marks the parts of a text to hide. It does not change the text.
type veil struct {
	text   string
	shown  int    // maximum number of bytes of text to show
	hidden []bool // for each of these bytes; nil: none is hidden
}

// hide hides the bytes in [from, to).
func (v *veil) hide(from, to int) {
	to = min(to, v.shown)
	if from >= to {
		return
	}
	if v.hidden == nil {
		v.hidden = make([]bool, v.shown)
	}
	for i := from; i < to; i++ {
		v.hidden[i] = true
	}
}

// hideSecret hides secret wherever it begins in near.
func (v *veil) hideSecret(near, secret string) {
	head := secret[:min(len(secret), secretHead)]
	for from := 0; from < v.shown; {
		i := strings.Index(near[from:], head)
		if i < 0 {
			return
		}
		v.hide(from+i, from+i+len(secret))
		from += i + len(secret)
	}
}

// hideLong hides every word in near that is long enough for a credential.
func (v *veil) hideLong(near string) {
	for from := 0; from < v.shown; {
		word, _ := cutWord(near[from:])
		if len(word) >= minSecret {
			v.hide(from, from+len(word))
		}
		from += len(word) + 1
	}
}

// hideWords hides every word of near that is, or was, a token or a client secret. It also finds
// secrets that are percent-encoded, cut in two by an encoded slash, or without their prefix. A word
// is a run of letters, digits, underscores and encoded bytes.
func (v *veil) hideWords(near string) {
	for from := 0; from < v.shown; {
		length, secret := nextWord(near[from:])
		if secret {
			v.hide(from, from+length)
		}
		from += max(length, 1)
	}
}

// hideParameters hides the values of access_token= (RFC 6750 §2.3), in case near quotes a query.
func (v *veil) hideParameters(near string) {
	const name = "access_token="
	for from := 0; from < v.shown; {
		i := strings.Index(near[from:], name)
		if i < 0 {
			return
		}
		begin := from + i + len(name)
		end := strings.IndexAny(near[begin:], "&; \"'")
		if end < 0 {
			end = len(near) - begin
		}
		v.hide(begin, begin+end)
		from = begin + end
	}
}

// String returns the text to show, at most limit bytes.
func (v *veil) String(limit int) string {
	if v.hidden == nil {
		return mark(v.text[:v.shown], v.shown < len(v.text))
	}
	var b strings.Builder
	i := 0
	for i < v.shown && b.Len() < limit {
		begin := i
		for i < v.shown && v.hidden[i] == v.hidden[begin] {
			i++
		}
		if v.hidden[begin] {
			b.WriteString(redacted)
		} else {
			b.WriteString(v.text[begin:i])
		}
	}
	cleaned := b.String()
	end := shownOf(cleaned, limit)
	return mark(cleaned[:end], end < len(cleaned) || i < len(v.text))
}

// mayHoldToken is a quick test that spares nearly all texts the slow one. A text for which it
// returns false holds no secret: it has none of our prefixes, no encoded byte, no parameter and no
// run of letters and digits of that length.
func mayHoldToken(text string) bool {
	return strings.IndexByte(text, '%') >= 0 || strings.IndexByte(text, '=') >= 0 ||
		strings.Contains(text, "sg") || mayHoldRun(text)
}

// mayHoldRun reports whether text has a run of [secretRun] letters and digits. Each such run covers
// an index that is a multiple of its length, counted from 1. So mayHoldRun checks only these
// indexes and their neighbors.
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

// nextWord returns the length of the word at the start of text, or 0 if there is none. It also
// reports whether the word is secret: it has one of our prefixes, or as many consecutive base62
// digits as a secret, with upper case, lower case and digits. Hexadecimal digests have letters of
// one case and stay readable.
func nextWord(text string) (length int, secret bool) {
	var word wordReader
	for length < len(text) {
		c := text[length]
		switch {
		case isAlphanumeric(c) || c == '_':
			length++
		case c == '%' && length+2 < len(text) && isHex(text[length+1]) && isHex(text[length+2]):
			c = unhex(text[length+1])<<4 | unhex(text[length+2])
			length += 3
		default:
			return length, word.secret
		}
		word.read(c)
	}
	return length, word.secret
}

// wordReader examines a word, byte by byte.
type wordReader struct {
	last   uint32 // the last four bytes
	run    int    // consecutive base62 digits
	sorts  uint8  // which of upper case, lower case and digits the run has
	secret bool
}

// read reads the next byte, decoded.
func (w *wordReader) read(c byte) {
	const (
		upper = 1 << iota
		lower
		digit
		all = upper | lower | digit
	)
	const ofToken, ofClient = 's'<<24 | 'g'<<16 | 't'<<8 | '_', 's'<<24 | 'g'<<16 | 's'<<8 | '_'
	w.last = w.last<<8 | uint32(c)
	w.run++
	switch {
	case 'A' <= c && c <= 'Z':
		w.sorts |= upper
	case 'a' <= c && c <= 'z':
		w.sorts |= lower
	case '0' <= c && c <= '9':
		w.sorts |= digit
	default:
		w.run, w.sorts = 0, 0
	}
	if w.last == ofToken || w.last == ofClient || w.run >= secretRun && w.sorts == all {
		w.secret = true
	}
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

// shownOf returns how many bytes of text to show: at most limit, and only whole characters.
func shownOf(text string, limit int) int {
	if len(text) <= limit {
		return len(text)
	}
	for back := range min(limit, utf8.UTFMax) {
		if utf8.RuneStart(text[limit-back]) {
			return limit - back
		}
	}
	return limit
}

// mark adds an ellipsis to text if it was cut.
func mark(text string, cut bool) string {
	if cut {
		return text + "…"
	}
	return text
}
