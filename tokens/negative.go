package tokens

import (
	"sync"
	"time"

	"snowgate/idgen"
)

const (
	// goneFor is the maximum time for which a token without a record is refused before the store is
	// asked again.
	goneFor = 5 * time.Second
	// goneSize is the maximum number of such tokens that are remembered: about 2 MiB.
	goneSize = 1 << 14
)

// negativeCache remembers a limited number of tokens that have no record in the store, so that a
// client that repeats such a token costs the store one read in ttl. The zero value remembers none.
// All methods are safe for concurrent use.
//
// A token without a record never becomes valid later: [Service.Issue] returns a token after its
// record is written, and every id is used once. The cache compares the digest as well. So an
// attacker who has a tag key, and forges tokens with future ids, cannot block the real tokens. The
// only exception is a store that loses records and gets them back, for instance from a backup: such
// tokens are refused until ttl has passed, or until the cache begins a new epoch, as after every
// outage.
type negativeCache struct {
	ttl time.Duration // 0: nothing is kept

	mu         sync.RWMutex
	young, old map[idgen.ID]missing // each at most half of the size
}

// missing is a token without a record. It has no pointers, so that the garbage collector need not
// scan it.
type missing struct {
	digest Digest
	asked  time.Duration // when the store was asked, since the cache was opened
	epoch  uint32        // of the cache when the store was asked
}

// has reports whether the token is known to have no record. now and epoch are those of the cache.
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

// put remembers m under id. If there is no room, it forgets the older half.
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
