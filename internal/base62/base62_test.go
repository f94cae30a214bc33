package base62_test

import (
	"crypto/rand"
	"encoding/binary"
	"math/big"
	"testing"

	"snowgate/internal/base62"
)

// slow is the specification: big integers, digit by digit.
func slow(number []byte, width int) string {
	n, base, digit := new(big.Int).SetBytes(number), big.NewInt(62), new(big.Int)
	text := make([]byte, width)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		text[i] = base62.Digits[digit.Int64()]
	}
	return string(text)
}

// samples are edges and many random numbers.
func samples() [][32]byte {
	numbers := [][32]byte{{}, {31: 1}, {31: 61}, {31: 62}, {0: 0x80}, {7: 61}, {7: 62}, {0: 0x7f}}
	for _, fill := range []byte{0xff, 0x7f} {
		var n [32]byte
		for i := range n {
			n[i] = fill
		}
		numbers = append(numbers, n)
	}
	for range 1000 {
		var n [32]byte
		rand.Read(n[:])
		numbers = append(numbers, n)
	}
	return numbers
}

func TestAgreesWithBigIntegers(t *testing.T) {
	for _, n := range samples() {
		var got [base62.Width256]byte
		base62.Put256(got[:], &n)
		if want := slow(n[:], base62.Width256); string(got[:]) != want {
			t.Errorf("Put256(%x) = %s, want %s", n, got, want)
		}
		v := binary.BigEndian.Uint64(n[:8])
		var short [base62.Width64]byte
		base62.Put64(short[:], v)
		if want := slow(n[:8], base62.Width64); string(short[:]) != want {
			t.Errorf("Put64(%d) = %s, want %s", v, short, want)
		}
		if read, digits, fits := base62.Parse63(string(short[:])); !digits || fits != (v < 1<<63) || fits && read != v {
			t.Errorf("Parse63(%s) = %d, %v, %v, want %d", short, read, digits, fits, v)
		}
		v >>= 1
		base62.Put64(short[:], v)
		var fast [base62.Width64]byte
		if base62.Put63(&fast, v); fast != short {
			t.Errorf("Put63(%d) = %s, want %s", v, fast, short)
		}
	}
}

func TestLimits(t *testing.T) {
	one := big.NewInt(1)
	for _, tt := range []struct {
		bits, width int
		fits        func(string) bool
	}{
		{64, base62.Width64, base62.Fits64},
		{256, base62.Width256, base62.Fits256},
		{63, base62.Width64, func(text string) bool { _, _, fits := base62.Parse63(text); return fits }},
	} {
		limit := new(big.Int).Lsh(one, uint(tt.bits))
		below, at := slow(new(big.Int).Sub(limit, one).Bytes(), tt.width), slow(limit.Bytes(), tt.width)
		if !tt.fits(below) || tt.fits(at) {
			t.Errorf("%d bits: %s fits: %v, %s fits: %v, want true and false", tt.bits, below, tt.fits(below), at, tt.fits(at))
		}
	}
	if _, _, fits := base62.Parse63("zzzzzzzzzzz"); fits { // 62^11 - 1 is more than 2^64
		t.Error("the largest text fits 63 bits")
	}
}

func TestDigits(t *testing.T) {
	if !base62.Valid("") || !base62.Valid(base62.Digits) {
		t.Error("digits are not valid")
	}
	isDigit := func(c int) bool { return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }
	for c := range 256 {
		for i := range base62.Width64 {
			text := []byte("00000000000")
			text[i] = byte(c)
			if _, digits, _ := base62.Parse63(text); digits != isDigit(c) || base62.Valid(string(text)) != isDigit(c) {
				t.Errorf("%q: Parse63 says %v, Valid %v, want %v", text, digits, base62.Valid(string(text)), isDigit(c))
			}
		}
	}
	for _, text := range []string{"", "0000000000", "000000000000"} {
		if _, digits, _ := base62.Parse63(text); digits {
			t.Errorf("Parse63 takes %d characters", len(text))
		}
	}
}
