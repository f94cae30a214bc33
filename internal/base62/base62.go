// Package base62 writes and reads numbers in base62: the digits 0-9A-Za-z in ASCII order, most
// significant digit first, zero-padded to a fixed width. Texts of one width therefore sort as the
// numbers that they stand for.
//
// Nothing here allocates or keeps a secret: how long a call takes may depend on the digits.
package base62

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
)

// Digits are the digits in the order of their values.
const Digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Widths that hold every number of so many bits.
const (
	Width64  = 11 // also of 63 bits
	Width256 = 43
)

const (
	chunkDigits = 10                 // digits that Put256 splits off at once
	chunkValue  = 839299365868340224 // 62^chunkDigits, fits in 63 bits

	notDigit = 0xFF // in values; digits are below 64, so only notDigit sets bit 7
)

// Tables; pairs holds the two digits of every number below 62², little endian. It has 4096
// elements so that the compiler needs no bounds checks.
var (
	pairs, values = tables()

	max64, max256 = limits()
)

func limits() (max64, max256 string) {
	var text64 [Width64]byte
	var text256 [Width256]byte
	Put64(text64[:], math.MaxUint64)
	Put256(text256[:], (*[32]byte)(bytes.Repeat([]byte{0xFF}, 32)))
	return string(text64[:]), string(text256[:])
}

func tables() (pairs [4096]uint16, values [256]uint8) {
	for i := range 62 * 62 {
		pairs[i] = uint16(Digits[i/62]) | uint16(Digits[i%62])<<8
	}
	for i := range values {
		values[i] = notDigit
	}
	for i := range len(Digits) {
		values[Digits[i]] = uint8(i)
	}
	return pairs, values
}

// Valid reports whether text consists of digits. The empty text does.
func Valid(text string) bool {
	var bad uint8
	for i := range len(text) {
		bad |= values[text[i]]
	}
	return bad&0x80 == 0
}

// Fits64 reports whether text, which is Width64 digits, stands for a number below 2^64.
func Fits64(text string) bool { return text <= max64 }

// Fits256 reports whether text, which is Width256 digits, stands for a number below 2^256.
func Fits256(text string) bool { return text <= max256 }

// Put64 fills dst with the last len(dst) digits of v.
func Put64(dst []byte, v uint64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = Digits[v%62]
		v /= 62
	}
}

// Put256 fills dst with the last len(dst) digits of the big-endian number v. It divides by 62^10 at
// a time.
func Put256(dst []byte, v *[32]byte) {
	var words [4]uint64 // most significant first
	for i := range words {
		words[i] = binary.BigEndian.Uint64(v[8*i:])
	}
	for end := len(dst); end > 0; end -= chunkDigits {
		var rest uint64
		for i := range words {
			words[i], rest = bits.Div64(rest, words[i], chunkValue)
		}
		Put64(dst[max(0, end-chunkDigits):end], rest)
	}
}

// Put63 fills b with the digits of v, which is below 2^63. It is Put64 at a third of the time: it
// splits v into 3 + 4 + 4 digits first, so that the divisions do not depend on one another.
func Put63(b *[Width64]byte, v uint64) {
	const d2, d4 = 62 * 62, 62 * 62 * 62 * 62
	rest := v / d4
	low := uint32(v - rest*d4)
	top := uint32(rest / d4)
	mid := uint32(rest - uint64(top)*d4)

	b[0] = Digits[top/d2]
	binary.LittleEndian.PutUint16(b[1:], pairs[top%d2])
	binary.LittleEndian.PutUint16(b[3:], pairs[mid/d2%4096])
	binary.LittleEndian.PutUint16(b[5:], pairs[mid%d2])
	binary.LittleEndian.PutUint16(b[7:], pairs[low/d2%4096])
	binary.LittleEndian.PutUint16(b[9:], pairs[low%d2])
}

// Parse63 reads Width64 digits. digits is false if there is another character or number of them,
// and fits is false if the number is 2^63 or more.
func Parse63[T string | []byte](text T) (v uint64, digits, fits bool) {
	const (
		six    = 62 * 62 * 62 * 62 * 62 * 62
		topMax = (1<<63 - 1) / six
	)
	if len(text) != Width64 {
		return 0, false, false
	}
	var top, low uint64
	var bad uint8
	for i := range 5 {
		d := values[text[i]]
		bad |= d
		top = top*62 + uint64(d)
	}
	for i := 5; i < Width64; i++ {
		d := values[text[i]]
		bad |= d
		low = low*62 + uint64(d)
	}
	v = top*six + low
	return v, bad&0x80 == 0, top <= topMax && v <= 1<<63-1
}
