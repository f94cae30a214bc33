// Package tokens implements access tokens: their format, and how they are issued, validated and
// revoked.
//
// # Format
//
// A token is 70 characters of the alphabet 0-9A-Za-z:
//
//	sgt_ 0DXbPqT6mW4 _ 43 characters of secret, 11 characters of tag
//	     id
//
// The id is the public, time-ordered number of [snowgate/idgen]. It may be logged and listed, and a
// token can be revoked by its id, but an id never authenticates. The secret is 256 random bits. The
// tag is the first 64 bits of HMAC-SHA-256 over the 59 characters before it. With the tag, any
// gateway can refuse a forged or damaged token without a look-up; a correct tag alone does not make
// a token valid. All three are base62, most significant digit first and zero-padded, and each has
// exactly one spelling.
//
// # Life
//
// [Service.Issue] takes an id, generates a secret, and saves a [Record] under the id, in one round
// trip to the [Store]. The record holds SHA-256 of the secret, never the secret. Only the returned
// [Bearer] has the full text, and only [Bearer.Reveal] returns it.
//
// [Service.ValidateFrom] makes the cheap checks first, none of which asks the store: the syntax;
// the tag; whether a gateway can have minted the id, within the longest lifetime of a token; the
// rules that match ids. Then comes the cache, or else one look-up, which concurrent requests with
// the same token share. After it, for each request anew: the digest, compared in constant time; the
// instant of expiry, which is in the record and judged by the clock of [Config]; the rules for
// clients; and what the client may have now.
//
// # Cache
//
// The cache holds only tokens whose record was found and whose secret was presented. An entry stays
// fresh for [Config].CacheTTL from the moment the store was asked, on the monotonic clock. A
// revocation that arrives during a look-up removes the look-up from the table of those in flight.
// Its result is then neither cached nor given to the requests that wait for it; they read the store
// again. [Service.Gap] reports that revocations may have been missed. It begins a new epoch, and no
// decision uses entries and look-ups of an earlier epoch.
//
// Attributes that tokens of a client share, and the policy's verdict on them, are kept once for all
// of them. A cached token is a few numbers in a map without pointers, which the garbage collector
// does not scan, however many there are. There are two such maps. Entries that were not read from
// the store for a while, or that are too many, go with the older one.
//
// # Revocation
//
// A single token is revoked by deleting its record; [Service.Dropped] informs the other gateways.
// Many tokens are revoked by a [Rule], which is one write. [Rules] holds all rules in memory, and
// they are checked after the cache.
//
//   - Everything of a client: each rule for a client makes a new generation, and a
//     token belongs to the generation it was issued under. No clock takes part.
//   - What a worker minted between two instants, and everything before an instant:
//     intervals over ids.
//
// A gateway that has not learned of a new generation issues tokens that the other gateways refuse,
// which is the safe error. Rules are merged, never replaced, and given back to a store that has
// lost them. Each has an end, after which nothing it matches can be alive.
//
// No decision uses information older than [Service.Bound], neither a cached token nor the rules. A
// gateway whose rules were not confirmed within that time cannot decide. [Config].FailStatic
// relaxes this for cached tokens, but never for a token that a known rule matches.
//
// A stream can last longer than the decision that permitted it. [Service.Watch] ends streams when
// their token expires or is revoked.
//
// # Keys of the tag
//
// A [Keyring] holds every key that a living token may have been signed with. The mint time in the
// id alone determines the key: it is the last key whose start is not after the mint time. Keys are
// added to the [KeyStore] at least a minute before they start, and each keyring reads the store
// more often than that, so gateways agree without talking to each other. [Keyring.Rotate] adds a
// key. A key is removed when the longest lifetime ever permitted has passed since the start of its
// successor.
//
// # Errors
//
// A refused token is [ErrInvalid] with one of the reasons below it. Any reason why the gateway
// cannot decide is [ErrUnavailable]. The two never mix: a store that is down says nothing about a
// token. [LimitedError] stands in for ErrInvalid where too many refused tokens came from one
// address.
package tokens
