package canonical

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The reasons to refuse a path. Their texts are constant and public: they never quote the request.
var (
	ErrRelative   = errors.New("the path does not start with a slash")
	ErrSegment    = errors.New("the path has an empty segment")
	ErrDotSegment = errors.New("the path has a dot segment")
	ErrByte       = errors.New("the path has a character that must be percent-encoded")
	ErrEscape     = errors.New("the path has a malformed percent-encoding")
	ErrNeedless   = errors.New("the path percent-encodes a character that needs no encoding")
	ErrForbidden  = errors.New("the path has a backslash or a control character")
	ErrUTF8       = errors.New("the path is not UTF-8")
)

// ParsePath parses the path of a request target, without its query. Its error is one of the reasons
// above. It does not allocate if nothing is encoded.
func ParsePath(raw string) (Path, error) {
	if raw == "" || raw[0] != '/' {
		return Path{}, ErrRelative
	}
	path := Path{Raw: raw, Match: raw}
	encoded, err := scan(raw)
	if err != nil {
		return Path{}, err
	}
	if encoded {
		if path.Match, path.EncodedSlash, err = decode(raw); err != nil {
			return Path{}, err
		}
	}
	if err := checkSegments(path.Match, path.EncodedSlash); err != nil {
		return Path{}, err
	}
	return path, nil
}

// ValidPrefix checks that path can be the prefix of a route: a canonical path without
// percent-encoding. Only "/" may end with a slash. A prefix is written decoded, because it is
// compared with [Path.Match]. The error is for the author of the route.
func ValidPrefix(path string) error {
	if strings.ContainsRune(path, '%') {
		return errors.New("the path of a route is written without percent-encoding")
	}
	if len(path) > 1 && strings.HasSuffix(path, "/") {
		return errors.New("the path of a route does not end with a slash")
	}
	_, err := ParsePath(path)
	return err
}

// scan checks the literal bytes of raw, and reports whether raw has a percent-encoding.
func scan(raw string) (encoded bool, err error) {
	for i := range len(raw) {
		switch class := classes[raw[i]]; {
		case raw[i] == '%':
			encoded = true
		case class&control != 0 || raw[i] == '\\':
			return false, ErrForbidden
		case class&pathByte == 0:
			return false, ErrByte
		}
	}
	return encoded, nil
}

// decode undoes the percent-encoding of raw once. Encoded slashes become "%2F".
func decode(raw string) (match string, encodedSlash bool, err error) {
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '%' {
			b.WriteByte(raw[i])
			continue
		}
		c, err := unescape(raw[i:])
		if err != nil {
			return "", false, err
		}
		if c == '/' {
			b.WriteString("%2F")
			encodedSlash = true
		} else {
			b.WriteByte(c)
		}
		i += 2
	}
	match = b.String()
	if !utf8.ValidString(match) {
		return "", false, ErrUTF8
	}
	if strings.ContainsFunc(match, unicode.IsControl) { // including U+0080 to U+009F
		return "", false, ErrForbidden
	}
	return match, encodedSlash, nil
}

// unescape returns the byte that the escape at the start of text encodes.
func unescape(text string) (byte, error) {
	if len(text) < 3 || classes[text[1]]&hexDigit == 0 || classes[text[2]]&hexDigit == 0 {
		return 0, ErrEscape
	}
	c := nibble(text[1])<<4 | nibble(text[2])
	switch {
	case classes[c]&unreserved != 0:
		return 0, ErrNeedless
	case classes[c]&control != 0 || c == '\\':
		return 0, ErrForbidden
	}
	return c, nil
}

func nibble(digit byte) byte {
	if digit <= '9' {
		return digit - '0'
	}
	return digit&^0x20 - 'A' + 10
}

// checkSegments refuses empty segments and dot segments in a decoded path.
func checkSegments(match string, encodedSlash bool) error {
	rest := match[1:]
	for more := true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		if segment != "" && segment[0] != '.' && segment[0] != ';' && !encodedSlash {
			continue // neither empty nor a dot segment, whatever follows
		}
		name, _, parameters := strings.Cut(segment, ";")
		if name == "" && (more || parameters) {
			return ErrSegment
		}
		if encodedSlash {
			// "%2F" in match may also be a decoded "%252F". Treating that as a slash here is on the
			// safe side.
			for part := range strings.SplitSeq(segment, "%2F") {
				if isDots(part) {
					return ErrDotSegment
				}
			}
		}
		if isDots(segment) {
			return ErrDotSegment
		}
	}
	return nil
}

// isDots reports whether segment is "." or "..", with or without parameters.
func isDots(segment string) bool {
	name, _, _ := strings.Cut(segment, ";")
	return name == "." || name == ".."
}

// Character classes, named as in RFC 3986 and RFC 5234.
const (
	unreserved = 1 << iota // ALPHA / DIGIT / "-" / "." / "_" / "~"
	pathByte               // pchar without pct-encoded, and the slash
	hexDigit               // HEXDIG in either case
	control                // C0 and DEL
	hostByte               // allowed in the name of a host
)

var classes = func() (table [256]uint8) {
	const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	mark := func(class uint8, members string) {
		for i := range len(members) {
			table[members[i]] |= class
		}
	}
	mark(unreserved, alnum+"-._~")
	mark(pathByte, alnum+"-._~"+"!$&'()*+,;="+":@"+"/")
	mark(hexDigit, "0123456789ABCDEFabcdef")
	mark(hostByte, alnum+"-._~")
	for c := range 0x20 {
		table[c] |= control
	}
	table[0x7f] |= control
	return table
}()
