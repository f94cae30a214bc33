package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// Digest is SHA-256 of the 43 characters of the secret of a token. Records hold it in place of the
// secret. It must not be logged; printing a Digest gives "[redacted]".
type Digest [32]byte

// Equal compares in constant time.
func (d Digest) Equal(other Digest) bool {
	return subtle.ConstantTimeCompare(d[:], other[:]) == 1
}

// String returns "[redacted]".
func (d Digest) String() string { return redacted }

// GoString returns "[redacted]".
func (d Digest) GoString() string { return redacted }

// Format writes "[redacted]" whatever the verb and flags are.
func (d Digest) Format(f fmt.State, _ rune) { writeString(f, redacted) }

// MarshalText returns "[redacted]".
func (d Digest) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Key signs the tag of tokens. It has 256 secret bits. Printing a Key gives "[redacted]"; only
// [Key.Reveal] returns it.
type Key [32]byte

// ErrKey is the error for a text that is not a [Key]. It does not contain the text.
var ErrKey = errors.New("tokens: a tag key is 32 bytes in standard base64 with padding (44 characters); make one with: openssl rand -base64 32")

// NewKey returns a random key.
func NewKey() Key {
	var key Key
	rand.Read(key[:]) // never fails, see crypto/rand
	return key
}

// ParseKey decodes 32 bytes in standard base64 with padding (RFC 4648 §4), the form that
// [Key.Reveal] returns. For any other text the error is [ErrKey].
func ParseKey(text string) (Key, error) {
	// The base64 decoder skips line breaks, but a key must have only one spelling.
	if len(text) != base64.StdEncoding.EncodedLen(len(Key{})) {
		return Key{}, ErrKey
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != len(Key{}) {
		return Key{}, ErrKey
	}
	return Key(raw), nil
}

// Reveal returns the key in standard base64. Use it only to store the key in a [KeyStore].
func (k Key) Reveal() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Fingerprint returns 12 hexadecimal digits that identify a key: the first 48 bits of HMAC-SHA-256
// over a fixed text. The key cannot be computed from them. They help less in guessing a key than
// the tag of any token, which has 64 bits.
func (k Key) Fingerprint() string {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte("snowgate tag key fingerprint 1"))
	return hex.EncodeToString(mac.Sum(nil)[:6])
}

// Equal compares in constant time.
func (k Key) Equal(other Key) bool { return subtle.ConstantTimeCompare(k[:], other[:]) == 1 }

// String returns "[redacted]".
func (k Key) String() string { return redacted }

// GoString returns "[redacted]".
func (k Key) GoString() string { return redacted }

// Format writes "[redacted]" whatever the verb and flags are.
func (k Key) Format(f fmt.State, _ rune) { writeString(f, redacted) }

// MarshalText returns "[redacted]".
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }
