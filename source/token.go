package source

import "time"

// Token is an access token. Printing one shows "[redacted]". The zero value is no token.
type Token struct {
	// Expiry is when the token ends. If the server did not say, it is five minutes after the
	// request.
	Expiry time.Time
	// Scope is what the server granted, separated by spaces; empty if it did not say.
	Scope string

	value  string
	usedTo time.Time // a little before Expiry, so that a token does not end on its way
}

// Value returns the text that goes behind "Bearer ".
func (t Token) Value() string { return t.value }

// String returns "[redacted]".
func (t Token) String() string { return "[redacted]" }

// GoString returns "[redacted]".
func (t Token) GoString() string { return "[redacted]" }

// usable reports whether the token may still be handed out.
func (t Token) usable(now time.Time) bool { return t.value != "" && now.Before(t.usedTo) }
