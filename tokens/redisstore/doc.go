// Package redisstore keeps tokens in Redis: standalone, behind Sentinel, or in a
// cluster, 6.2 or later.
//
// # Keys
//
// Every operation uses one key, or several keys with the same hash tag, so in a cluster it needs
// only one shard:
//
//	<prefix>:t:<id>      one token; expires by itself, a second after the token
//	<prefix>:probe       never there; the monitor reads it to see whether it may
//	{<prefix>}:epoch     the zero of id time
//	{<prefix>}:tagkey    the keys of the tag: start in Unix ms → base64
//	{<prefix>}:rev       the revision of everything shared, and the revocation rules (lua/rev.lua)
//	{<prefix>}:push      channel: hints to look again; {<prefix>}:push:… are channels of a Feed's own
//
// # Revocation
//
// A single token is revoked by deleting its record. Any other revocation is one field of one hash,
// however many tokens it revokes. A [Feed] tells all gateways about both in two ways: by messages,
// which are fast and may be lost, and by reading the revision regularly, which limits the age of
// the data that a decision uses. See docs/adr/0009-one-revision-and-hints.md.
//
// Scripts also work while Redis is full. Replicas refuse them.
//
// # Trouble
//
// Every operation ends in limited time (see [Options].Timeout), whatever Redis does, and every
// failure matches tokens.ErrUnavailable. A token is unknown only if a primary replies that the key
// does not exist. When two commands in a row get no reply, a breaker opens and commands fail at
// once, until a probe in the background gets a reply. Without the breaker, go-redis would block a
// call for ten seconds on a server that hangs, and take up to a second to notice that a server is
// back.
//
// There is no protection against the loss of writes that Redis has acknowledged, in a failover or a
// restart without an append-only file. Running gateways write back the rules that they have read.
// [Options.WaitReplicas] makes revocations wait for replicas.
package redisstore
