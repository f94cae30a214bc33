// Package redisclients keeps the clients of the registry in Redis: it is the
// [clients.Store] of all gateways that share one.
//
// # Keys
//
// All keys have one hash tag, so that a script can change them together in a
// cluster too:
//
//	{<prefix>}:rev   hash: v, the revision of everything that gateways share; g:<client>, generations of tokens
//	{<prefix>}:c     hash: client id → document, with digests of secrets only
//	{<prefix>}:cs    sorted set: client id → revision of its last change, also of deleted clients
//	{<prefix>}:cu    hash: client id/secret id → when the secret was last used, Unix seconds
//	{<prefix>}:cm    hash: marks of the last deletion and of the last restoration
//
// # Changes
//
// A change is one script, so it is made in full or not at all, and one round
// trip: what is to be changed is in memory, and the script makes sure that it has
// not changed since. Every change has a random name, which the document keeps: if
// the response gets lost and the command is sent again, by go-redis or by
// [Store] itself, the script finds its own change and says so. If the last
// attempt gets no response either, the error says that Redis cannot be asked; the
// change may have been made. To make it again is safe then: a creation fails with
// clients.ErrExists, any other change with clients.ErrConflict or
// clients.ErrNotFound.
//
// # Copies
//
// Each gateway holds all clients in its [clients.Registry]. [Store.Refresh] reads
// what has changed since the revision that the copy has. If Redis has forgotten
// something, by a failover or a restart without its data, the copies are not cut
// down to it: of each client the latest revision counts, wherever it is, and what
// is missing in Redis is given back. Deletions are remembered like any other
// change, so no client comes back that the gateway knows to be deleted. Only if a
// gateway has missed a deletion, and Redis then forgets it, does that client
// come back. Last uses are not given back.
package redisclients
