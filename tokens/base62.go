package tokens

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// digits is the alphabet of base62. It is in ASCII order, so that texts of the
// same width compare like the numbers they stand for.
const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

const (
	chunkDigits = 10                 // digits that are split off at once
	chunkValue  = 839299365868340224 // 62^chunkDigits, fits in 63 bits
)

// isDigit tells for each byte whether it belongs to the alphabet.
var isDigit = func() (table [256]bool) {
	for i := range len(digits) {
		table[digits[i]] = true
	}
	return table
}()

// The largest texts that stand for a secret (2^256 - 1) and a tag (2^64 - 1).
var (
	maxSecretText = func() string {
		var all [32]byte
		for i := range all {
			all[i] = 0xff
		}
		var text [secretLength]byte
		encode256(text[:], all)
		return string(text[:])
	}()
	maxTagText = func() string {
		var text [tagLength]byte
		encode64(text[:], math.MaxUint64)
		return string(text[:])
	}()
)

// encode64 fills dst with the base62 digits of v, zero-padded.
func encode64(dst []byte, v uint64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = digits[v%62]
		v /= 62
	}
}

// encode256 fills dst with the base62 digits of the big-endian number v,
// zero-padded. It divides by 62^10 at a time.
func encode256(dst []byte, v [32]byte) {
	var limbs [4]uint64 // most significant first
	for i := range limbs {
		limbs[i] = binary.BigEndian.Uint64(v[8*i:])
	}
	for end := len(dst); end > 0; end -= chunkDigits {
		var rest uint64
		for i := range limbs {
			limbs[i], rest = bits.Div64(rest, limbs[i], chunkValue)
		}
		encode64(dst[max(0, end-chunkDigits):end], rest)
	}
}
