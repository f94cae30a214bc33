package idgen

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
)

// Permutation hides what an id says (when, where, how many) from those who do
// not have the key: a keyed one-to-one mapping of ids to ids. It is for ids
// shown to outsiders. A hidden id does not sort by time and is not a secret:
// whoever saw it once can present it again.
//
// It is a Feistel network of 8 rounds over 64 bits with AES as the round
// function, walked until the result has 63 bits. A Permutation is safe for
// concurrent use.
type Permutation struct{ block cipher.Block }

const feistelRounds = 8

// NewPermutation takes an AES key of 16, 24 or 32 bytes.
func NewPermutation(key []byte) (*Permutation, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("idgen: key of the permutation: %w", err)
	}
	return &Permutation{block}, nil
}

// Hide maps an id to the one to show. id must not be negative.
func (p *Permutation) Hide(id ID) ID {
	v := uint64(id)
	for {
		if v = p.forward(v); v>>63 == 0 {
			return ID(v)
		}
	}
}

// Reveal is the inverse of Hide. Every non-negative number is the image of some
// id; whether that one exists is for the caller to find out.
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
