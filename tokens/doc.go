// Package tokens is the life of an access token: how it looks, how it is
// issued, judged and revoked.
//
// # Format
//
// A token is 70 characters of the alphabet 0-9A-Za-z:
//
//	sgt_ 0DXbPqT6mW4 _ 43 characters of secret, 11 characters of tag
//	     id
//
// The id is the public, time-ordered number of [snowgate/idgen]; it may be
// logged, listed and revoked by, and it never authenticates. The secret is 256
// random bits. The tag is the first 64 bits of HMAC-SHA-256 over the 59
// characters before it: it lets any gateway refuse a forged or damaged token
// without a look-up, and is not what makes a token valid. All three are base62,
// most significant digit first and zero-padded, and each has exactly one
// spelling.
//
// # Life
//
// [Service.Issue] takes an id, draws a secret, and saves a [Record] under the
// id: one round trip to the [Store]. The record holds SHA-256 of the secret,
// never the secret; the full text exists in the [Bearer] that is handed out, and
// leaves it only through [Bearer.Reveal].
//
// [Service.Validate] goes from cheap to dear: the syntax, then the tag, neither
// of which allocates or asks anybody; then one look-up, a comparison of digests
// in constant time, and the instant of expiry, which is in the record and judged
// by the clock of [Config]. [Service.Revoke] deletes the record.
//
// # Keys of the tag
//
// A [Keyring] holds every key that a living token may have been signed with.
// Which one applies follows from the mint time in the id and from nothing else:
// the key with the greatest start that is not after it. Keys are added to the
// [KeyStore] at least a minute before they start, and the keyring re-reads the
// store more often than that, so gateways agree without talking to one another.
//
// # Errors
//
// A refused token is [ErrInvalid] with one of the reasons below it. Whatever
// keeps the gateway from deciding is [ErrUnavailable]. The two never mix: a
// store that is down says nothing about a token.
package tokens
