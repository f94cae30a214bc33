package tokens

import (
	"sync"
	"time"

	"snowgate/idgen"
)

const (
	// goneFor is how long a token without a record is refused without the store being
	// asked again, at most.
	goneFor = 5 * time.Second
	// goneSize is how many of them are known at a time, at most: about 2 MiB.
	goneSize = 1 << 14
)

// negativeCache holds tokens of which the store had no record, a bounded number of them, so that whoever
// shows a dead token again and again costs the store one question in ttl. The zero value holds
// none.
//
// No token that somebody can show comes to life: [Service.Issue] hands it out when its record is
// written, and ids are given once. A token is known here by its secret too, so that who has a tag
// key, and forges tokens under ids to come, keeps nobody from those. What is left is a store that
// loses records and gets them back, as from a backup: ttl bounds for how long they are missed, and
// so does a new epoch of the cache, which begins whenever the store has been away.
type negativeCache struct {
	ttl time.Duration // 0: nothing is kept

	mu         sync.RWMutex
	young, old map[idgen.ID]missing // each at most half of the size
}

// missing is a token without a record. It has no pointers, as in a layer of the cache.
type missing struct {
	digest Digest
	asked  time.Duration // since the cache was opened: just before the store was asked
	epoch  uint32        // of the cache when the store was asked
}

// has reports whether the store need not be asked for the token id with the given digest, at an
// instant and in an epoch of the cache.
func (n *negativeCache) has(id idgen.ID, digest Digest, now time.Duration, epoch uint32) bool {
	if n.ttl <= 0 {
		return false
	}
	n.mu.RLock()
	m, ok := n.young[id]
	if !ok {
		m, ok = n.old[id]
	}
	n.mu.RUnlock()
	return ok && m.epoch == epoch && now-m.asked < n.ttl && m.digest.Equal(digest)
}

// put keeps m, the token id. Where there is no room, the older half goes.
func (n *negativeCache) put(id idgen.ID, m missing) {
	if n.ttl <= 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.young == nil || len(n.young) >= goneSize/2 {
		n.young, n.old = make(map[idgen.ID]missing), n.young
	}
	n.young[id] = m
}
