package clients

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"snowgate/internal/base62"
)

// The format of a client secret: a prefix that secret scanners can find, 256 random bits, and check
// digits against typing errors. All digits are base62, most significant first, zero-padded.
const (
	secretPrefix = "sgs_"
	randomLen    = base62.Width256
	checkLen     = 6 // base62 digits of the CRC-32 of everything before
	checkedLen   = len(secretPrefix) + randomLen

	// SecretLen is the length of a client secret.
	SecretLen = checkedLen + checkLen
)

// ErrSecretFormat is the error for a text that is not a client secret. Errors that match it with
// errors.Is say why, and never contain the text.
var ErrSecretFormat = errors.New("clients: not a client secret")

// Plaintext is the text of a client secret. Printing or encoding it gives [redacted]; only Reveal
// returns the text.
type Plaintext struct{ text string }

// NewSecret makes a client secret from 256 random bits. digest is the form to store.
func NewSecret() (secret Plaintext, digest [sha256.Size]byte) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	secret = formatSecret(random)
	return secret, Digest(secret.text)
}

// formatSecret returns the client secret for the given random bits.
func formatSecret(random [32]byte) Plaintext {
	text := make([]byte, SecretLen)
	copy(text, secretPrefix)
	base62.Put256(text[len(secretPrefix):checkedLen], &random)
	base62.Put64(text[checkedLen:], uint64(crc32.ChecksumIEEE(text[:checkedLen])))
	return Plaintext{string(text)}
}

// Digest returns the SHA-256 of the whole secret text, the form in which secrets are stored and
// compared. It does not allocate for a text of the length of a client secret.
func Digest(secret string) [sha256.Size]byte {
	// A conversion of more than 32 bytes allocates; this copy stays on the stack.
	var buffer [64]byte
	return sha256.Sum256(append(buffer[:0], secret...))
}

// CheckSecret checks the format and the check digits of text. It does not check whether a client
// has this secret. The error matches [ErrSecretFormat].
func CheckSecret(text string) error {
	switch flaw := secretFlaw(text); flaw {
	case "":
		return nil
	case flawLength:
		return fmt.Errorf("%w: %d characters instead of %d", ErrSecretFormat, len(text), SecretLen)
	default:
		return fmt.Errorf("%w: %s", ErrSecretFormat, flaw)
	}
}

const flawLength = "wrong length"

// secretFlaw returns why text is not a client secret, or "" if it is one. It does not allocate, and
// its work depends on text alone.
func secretFlaw(text string) string {
	switch {
	case !strings.HasPrefix(text, secretPrefix):
		return "it does not start with " + secretPrefix
	case len(text) != SecretLen:
		return flawLength
	case !base62.Valid(text[len(secretPrefix):]):
		return "a character outside 0-9A-Za-z"
	case !base62.Fits256(text[len(secretPrefix):checkedLen]):
		return "the number does not fit 256 bits"
	}
	var check [checkLen]byte
	base62.Put64(check[:], uint64(checksum(text[:checkedLen])))
	if string(check[:]) != text[checkedLen:] {
		return "the check digits do not match, it was damaged or mistyped"
	}
	return ""
}

// checksum is crc32.ChecksumIEEE for a string. It does not allocate.
func checksum(text string) uint32 {
	crc := ^uint32(0)
	for i := range len(text) {
		crc = crc32.IEEETable[byte(crc)^text[i]] ^ crc>>8
	}
	return ^crc
}

// Reveal returns the secret text, to be shown once to the caller who created it.
func (p Plaintext) Reveal() string { return p.text }

const redacted = "[redacted]"

// String returns [redacted].
func (p Plaintext) String() string { return redacted }

// Format prints [redacted] for every verb and flag.
func (p Plaintext) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns [redacted]. Encoders of JSON, YAML and structured logs use it.
func (p Plaintext) MarshalText() ([]byte, error) { return []byte(redacted), nil }
