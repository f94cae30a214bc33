package tokens

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"snowgate/internal/base62"
)

// tagText returns the tag of the 59 characters in front of it: the first 64 bits
// of HMAC-SHA-256 in base62. HMAC (RFC 2104) is written out over arrays of fixed
// size because crypto/hmac allocates a hash for each key.
func tagText(key *Key, head *[tagOffset]byte) (text [tagLength]byte) {
	var inner [sha256.BlockSize + tagOffset]byte
	var outer [sha256.BlockSize + sha256.Size]byte
	for i := range sha256.BlockSize {
		inner[i], outer[i] = 0x36, 0x5c
	}
	for i, b := range key {
		inner[i] ^= b
		outer[i] ^= b
	}
	copy(inner[sha256.BlockSize:], head[:])
	sum := sha256.Sum256(inner[:])
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	base62.Put64(text[:], binary.BigEndian.Uint64(sum[:8]))
	return text
}

// sameTag compares in constant time.
func sameTag(a, b [tagLength]byte) bool {
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
