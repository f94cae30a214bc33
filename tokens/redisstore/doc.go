// Package redisstore keeps tokens in Redis: standalone, behind Sentinel, or in a
// cluster, 6.2 or later.
//
// # Keys
//
// Every operation uses one key, or several of one hash tag, so a cluster needs no
// agreement between shards:
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
// A token is revoked by deleting it, everything else by one field of one hash,
// however many tokens it concerns. A [Feed] carries both to all gateways: by
// messages, which are fast and may get lost, and by a question for the revision,
// which bounds how old the knowledge is that a decision rests on. See
// docs/adr/0009-one-revision-and-hints.md.
//
// Scripts work while Redis is full, and are refused by replicas.
//
// # Trouble
//
// Every operation ends in bounded time (see [Options].Timeout), whatever Redis does, and every
// failure matches tokens.ErrUnavailable: only a primary that answers "no such key" makes a token
// unknown. When two commands in a row get no response, a breaker opens and commands fail at once,
// until a probe in the background gets through. go-redis by itself would hold a call for ten
// seconds on a server that is frozen, and take up to a second to notice that one is back.
//
// Not promised: writes that Redis acknowledged and then lost, by a failover or a
// restart without an append-only file. Living gateways give back the rules that
// they have read. [Options.WaitReplicas] makes revocations wait for replicas.
package redisstore
