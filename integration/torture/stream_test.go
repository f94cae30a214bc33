package torture_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// A stream is the content of one body. Every block of eight bytes is made of the key and of its
// place, so each byte tells whose it is and where it belongs.
type stream uint64

func (s stream) block(n int) uint64 {
	x := uint64(s)*0x9e3779b97f4a7c15 + uint64(n)*0xd1342543de82ef95 + 1
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// bytes returns the first n bytes.
func (s stream) bytes(n int) []byte {
	b := make([]byte, 0, n+8)
	for i := 0; len(b) < n; i++ {
		b = binary.LittleEndian.AppendUint64(b, s.block(i))
	}
	return b[:n]
}

// A reading is what was read of a stream so far. It checks every byte as it comes.
type reading struct {
	of    stream
	n     int
	sum   hash.Hash
	block [8]byte
	fault string // the first wrong byte
}

func newReading(of stream) *reading { return &reading{of: of, sum: sha256.New()} }

// Write implements [io.Writer].
func (r *reading) Write(p []byte) (int, error) {
	r.sum.Write(p)
	for i, c := range p {
		at := r.n + i
		if i == 0 || at%8 == 0 {
			binary.LittleEndian.PutUint64(r.block[:], r.of.block(at/8))
		}
		if c != r.block[at%8] && r.fault == "" {
			r.fault = fmt.Sprintf("byte %d is not of this body: %.40q", at, p[i:])
		}
	}
	r.n += len(p)
	return len(p), nil
}

// digest tells length and content.
func (r *reading) digest() string { return fmt.Sprintf("%d bytes %x", r.n, r.sum.Sum(nil)[:8]) }
