package idgen

import "strconv"

const (
	digits32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ" // Crockford: no I, L, O, U
	digits16 = "0123456789abcdef"
	len32    = 13
	len16    = 16
	notDigit = 0xFF
)

var values32, values16 [256]uint8

func init() {
	for i := range values32 {
		values32[i], values16[i] = notDigit, notDigit
	}
	for i := range len(digits16) {
		values16[digits16[i]] = uint8(i)
	}
	for i := range len(digits32) {
		values32[digits32[i]] = uint8(i)
		values32[digits32[i]|0x20] = uint8(i) // lower case; leaves digits as they are
	}
	for alias, digit := range map[byte]uint8{'O': 0, 'o': 0, 'I': 1, 'i': 1, 'L': 1, 'l': 1} {
		values32[alias] = digit
	}
}

// Decimal returns the id as a decimal number without padding, the text form of system D. As text,
// decimal ids do not sort by time.
func (id ID) Decimal() string { return strconv.FormatInt(int64(id), 10) }

// ParseDecimal parses the decimal form: digits only, no sign, no leading zero except in "0" itself,
// below 2^63. Errors are of type *ParseError.
func ParseDecimal(text string) (ID, error) {
	if len(text) == 0 || len(text) > 19 {
		return 0, parseError("decimal", text, ErrLength)
	}
	var v uint64
	for i := range len(text) {
		d := text[i] - '0'
		if d > 9 || i == 0 && d == 0 && len(text) > 1 {
			return 0, parseError("decimal", text, ErrAlphabet)
		}
		v = v*10 + uint64(d) // 19 digits fit 64 bits
	}
	if v > 1<<63-1 {
		return 0, parseError("decimal", text, ErrRange)
	}
	return ID(v), nil
}

// Base32 returns the id in Crockford's base32: 13 characters, zero padded, in the sort order of the
// ids. People can type this form. A negative id is formatted as String does.
func (id ID) Base32() string {
	if id < 0 {
		return id.String()
	}
	var b [len32]byte
	for i := range b {
		b[i] = digits32[id>>(5*(len32-1-i))&31]
	}
	return string(b[:])
}

// ParseBase32 parses 13 characters of Crockford's base32. As Crockford defines it, case does not
// matter, O means 0, and I and L mean 1; hyphens are not accepted. So several texts stand for one
// id. Errors are of type *ParseError.
func ParseBase32(text string) (ID, error) { return parseBits("base32", text, &values32, len32, 5) }

// Hex returns 16 lower-case hexadecimal digits, zero padded, in the sort order of the ids. A
// negative id is formatted as String does.
func (id ID) Hex() string {
	if id < 0 {
		return id.String()
	}
	var b [len16]byte
	for i := range b {
		b[i] = digits16[id>>(4*(len16-1-i))&15]
	}
	return string(b[:])
}

// ParseHex parses exactly the texts that Hex returns. Errors are of type *ParseError.
func ParseHex(text string) (ID, error) { return parseBits("hex", text, &values16, len16, 4) }

// parseBits parses a form in which each digit stands for the given number of bits.
func parseBits(form, text string, values *[256]uint8, length, bits int) (ID, error) {
	if len(text) != length {
		return 0, parseError(form, text, ErrLength)
	}
	var v, lost uint64
	for i := range len(text) {
		d := values[text[i]]
		if d == notDigit {
			return 0, parseError(form, text, ErrAlphabet)
		}
		lost |= v >> (64 - bits)
		v = v<<bits | uint64(d)
	}
	if lost != 0 || v > 1<<63-1 {
		return 0, parseError(form, text, ErrRange)
	}
	return ID(v), nil
}
