// Package redisclients implements [clients.Store] in Redis. All gateways that use the same Redis
// share the clients.
//
// # Keys
//
// All keys have the same hash tag, so that a script can change them together in a cluster, too:
//
//	{<prefix>}:rev   hash: v, the revision of everything that gateways share; g:<client>, generations of tokens
//	{<prefix>}:c     hash: client id → document, with digests of secrets only
//	{<prefix>}:cs    sorted set: client id → revision of its last change, also of deleted clients
//	{<prefix>}:cu    hash: client id/secret id → when the secret was last used, Unix seconds
//	{<prefix>}:cm    hash: marks of the last deletion and of the last restoration
//
// # Changes
//
// A change is one script in one round trip, so it is atomic. The gateway prepares it from its copy
// of the client, and the script checks that the client has not changed since. Every change has a
// random operation name, which is stored in the document. If the response is lost and go-redis or
// [Store] sends the command again, the script recognises its own change and reports success. If the
// last attempt gets no response either, the error says that Redis is unavailable, although the
// change may have been made. It is then safe to repeat the change: a creation fails with
// clients.ErrExists, any other change with clients.ErrConflict or clients.ErrNotFound.
//
// # Copies
//
// Each gateway holds all clients in its [clients.Registry]. [Store.Refresh] reads the changes since
// the revision of the copy. A failover, or a restart without data, may lose changes. Then the
// gateways keep what they have: for each client the latest revision wins, in Redis or in a copy,
// and the gateways write back what Redis has lost. Deletions are recorded like other changes, so a
// gateway never brings back a client that it knows to be deleted. A deleted client comes back only
// if Redis loses the deletion and a gateway has not seen it. The times at which secrets were last
// used are not written back.
package redisclients
