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
// [Service.ValidateFrom] makes the cheap checks first, none of which asks the store: the syntax;
// the tag; whether a gateway can have minted the id, within the longest lifetime of a token; the
// rules that match ids. Then comes the cache, or else one look-up, which concurrent requests with
// the same token share. After it, for each request anew: the digest, compared in constant time; the
// instant of expiry, which is in the record and judged by the clock of [Config]; the rules for
// clients; and what the client may have now.
//
// # Cache
//
// Only a token whose record was found, and whose secret was shown, gets into the
// cache. It stays fresh for [Config].CacheTTL from the moment the store was asked,
// on the monotonic clock. A revocation that lands while the store is asked takes
// the look-up out of the table of those under way, so its result reaches neither
// the cache nor anybody who waits: they ask again. [Service.Gap], which says that
// revocations may have been missed, begins a new epoch; entries and look-ups of
// the old one decide nothing any more.
//
// Attributes that tokens of a client share, and the policy's verdict on them, are kept once for all
// of them. A cached token is a few numbers in a map without pointers, which the garbage collector
// does not scan, however many there are. There are two such maps. Entries that were not read from
// the store for a while, or that are too many, go with the older one.
//
// # Revocation
//
// One token is revoked by deleting its record; [Service.Dropped] tells the other
// gateways. Many are revoked by a [Rule], which is one write: [Rules] holds all of
// them in memory, and they are checked after the cache.
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
// No decision rests on information older than [Service.Bound], neither a cached
// token nor the rules: a gateway whose rules were not confirmed within it cannot
// decide. [Config].FailStatic relaxes this for tokens that are in the cache,
// never for those that a known rule matches.
//
// Streams outlive the decision that opened them. [Service.Watch] cuts them when
// their token expires or is revoked.
//
// # Keys of the tag
//
// A [Keyring] holds every key that a living token may have been signed with.
// Which one applies follows from the mint time in the id and from nothing else:
// the key with the greatest start that is not after it. Keys are added to the
// [KeyStore] at least a minute before they start, and the keyring re-reads the
// store more often than that, so gateways agree without talking to one another.
// [Keyring.Rotate] adds one. A key goes when the longest lifetime ever permitted
// has passed since its successor started.
//
// # Errors
//
// A refused token is [ErrInvalid] with one of the reasons below it. Any reason why the gateway
// cannot decide is [ErrUnavailable]. The two never mix: a store that is down says nothing about a
// token. [LimitedError] stands in for ErrInvalid where too many refused tokens came from one
// address.
package tokens
