package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"

	"snowgate/idgen"
	"snowgate/internal/base62"
)

// The layout of the text of a token.
const (
	// Length is the number of characters of every token.
	Length = tagOffset + tagLength
	// Prefix starts every token, so that secret scanners can find leaked ones.
	Prefix = "sgt_"

	idOffset     = len(Prefix)
	idLength     = idgen.TextLen
	secretOffset = idOffset + idLength + 1 // after the separator
	secretLength = base62.Width256
	tagOffset    = secretOffset + secretLength
	tagLength    = base62.Width64

	separator = '_'
	redacted  = "[redacted]"
)

// Bearer is the text of a token, secret included, as a caller presents it or as it was just minted.
// Printing, formatting or marshalling a Bearer gives its id and "[redacted]"; only [Bearer.Reveal]
// returns the secret.
//
// A Bearer is immutable and safe for concurrent use. The zero value is no token.
type Bearer struct {
	text string // the whole token; empty in the zero value
	id   idgen.ID
}

// ParseBearer parses a token. Every token has exactly one spelling; for anything else the error is
// [ErrMalformed]. ParseBearer does not verify the tag. It neither allocates nor copies, so the
// Bearer keeps text alive.
func ParseBearer(text string) (Bearer, error) {
	if len(text) != Length || text[:idOffset] != Prefix || text[secretOffset-1] != separator {
		return Bearer{}, ErrMalformed
	}
	if !base62.Valid(text[secretOffset:]) { // idgen checks the id
		return Bearer{}, ErrMalformed
	}
	if !base62.Fits256(text[secretOffset:tagOffset]) || !base62.Fits64(text[tagOffset:]) {
		return Bearer{}, ErrMalformed
	}
	id, err := idgen.Parse(text[idOffset : secretOffset-1])
	if err != nil {
		return Bearer{}, ErrMalformed
	}
	return Bearer{text: text, id: id}, nil
}

// mint returns a new token with the given id, signed with key.
func mint(id idgen.ID, key *Key) Bearer {
	var secret [32]byte
	rand.Read(secret[:]) // never fails, see crypto/rand
	var text [Length]byte
	copy(text[:], Prefix)
	copy(text[idOffset:], id.String())
	text[secretOffset-1] = separator
	base62.Put256(text[secretOffset:tagOffset], &secret)
	tag := tagText(key, (*[tagOffset]byte)(text[:tagOffset]))
	copy(text[tagOffset:], tag[:])
	return Bearer{text: string(text[:]), id: id}
}

// ID returns the public part of the token.
func (b Bearer) ID() idgen.ID { return b.id }

// Reveal returns the whole text of the token, secret included, or "" for the zero value. Use it
// only in the response to the client that requested the token.
func (b Bearer) Reveal() string { return b.text }

// Digest returns SHA-256 of the 43 characters of the secret, which a [Record] holds in place of the
// secret. For the zero value it returns the zero digest. It does not allocate.
func (b Bearer) Digest() Digest {
	if b.text == "" {
		return Digest{}
	}
	var secret [secretLength]byte
	copy(secret[:], b.text[secretOffset:tagOffset])
	return sha256.Sum256(secret[:])
}

// signedBy reports, in constant time, whether the tag was made with key.
// It does not allocate.
func (b Bearer) signedBy(key *Key) bool {
	if b.text == "" {
		return false
	}
	var head [tagOffset]byte
	copy(head[:], b.text)
	return sameTag(tagText(key, &head), b.tag())
}

// tag returns the tag in the text, without verifying it.
func (b Bearer) tag() (tag [tagLength]byte) {
	copy(tag[:], b.text[tagOffset:])
	return tag
}

// String returns the token with everything but its id redacted.
func (b Bearer) String() string {
	if b.text == "" {
		return Prefix + redacted
	}
	return b.text[:secretOffset] + redacted
}

// GoString is [Bearer.String].
func (b Bearer) GoString() string { return b.String() }

// Format writes [Bearer.String] whatever the verb and flags are.
func (b Bearer) Format(f fmt.State, _ rune) { writeString(f, b.String()) }

// MarshalText returns [Bearer.String].
func (b Bearer) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// MarshalJSON returns [Bearer.String] as a JSON string.
func (b Bearer) MarshalJSON() ([]byte, error) { return []byte(`"` + b.String() + `"`), nil }

// writeString writes text to a [fmt.State], whose errors fmt reports itself.
func writeString(w io.Writer, text string) { _, _ = io.WriteString(w, text) }
