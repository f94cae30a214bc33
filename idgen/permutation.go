package idgen

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
)

// Permutation hides the time, the worker number and the rate in an id from everyone who does not
// have the key. It maps ids to ids, one to one. Use it for ids shown to outsiders. A hidden id does
// not sort by time. It is not a secret: whoever has seen it can present it again.
//
// A Permutation is a Feistel network of 8 rounds over 64 bits with AES as the round function,
// repeated until the result has 63 bits. It is safe for concurrent use.
type Permutation struct{ block cipher.Block }

const feistelRounds = 8

// NewPermutation returns the permutation for an AES key of 16, 24 or 32 bytes. Other lengths are an
// error.
func NewPermutation(key []byte) (*Permutation, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("idgen: key of the permutation: %w", err)
	}
	return &Permutation{block}, nil
}

// Hide returns the id to show for id. id must not be negative.
func (p *Permutation) Hide(id ID) ID {
	v := uint64(id)
	for {
		if v = p.forward(v); v>>63 == 0 {
			return ID(v)
		}
	}
}

// Reveal is the inverse of Hide. Every non-negative number is the hidden form of some id; the
// caller must check whether that id exists.
func (p *Permutation) Reveal(id ID) ID {
	v := uint64(id)
	for {
		if v = p.backward(v); v>>63 == 0 {
			return ID(v)
		}
	}
}

func (p *Permutation) forward(v uint64) uint64 {
	l, r := uint32(v>>32), uint32(v)
	for round := range uint8(feistelRounds) {
		l, r = r, l^p.round(round, r)
	}
	return uint64(l)<<32 | uint64(r)
}

func (p *Permutation) backward(v uint64) uint64 {
	l, r := uint32(v>>32), uint32(v)
	for round := uint8(feistelRounds); round > 0; round-- {
		l, r = r^p.round(round-1, l), l
	}
	return uint64(l)<<32 | uint64(r)
}

func (p *Permutation) round(round uint8, half uint32) uint32 {
	var b [aes.BlockSize]byte
	b[0] = round
	binary.BigEndian.PutUint32(b[1:], half)
	p.block.Encrypt(b[:], b[:])
	return binary.BigEndian.Uint32(b[:])
}
