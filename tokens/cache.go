package tokens

import (
	"sync"
	"sync/atomic"
	"time"

	"snowgate/idgen"
	"snowgate/internal/panics"
)

// entry is what is known of a token whose record was found, and whose secret was shown,
// besides what is in its id.
type entry struct {
	attributes *attributes
	facts
}

// facts are what an entry has of its own, without its grant.
type facts struct {
	digest  Digest
	expires int64           // Unix milliseconds
	asked   time.Duration   // since the cache was opened: just before the store was asked
	epoch   uint32          // of the cache when the store was asked
	tag     [tagLength]byte // that was verified with a secret of that digest
}

// shows reports, in constant time, whether b is the token that f was found for: the same
// secret, whose digest is shown, and the same tag.
func (f *facts) shows(b Bearer, digest Digest) bool {
	return f.digest.Equal(digest) && sameTag(f.tag, b.tag())
}

// expiry is the first instant at which the token of f is no longer valid.
func (f *facts) expiry() time.Time { return time.UnixMilli(f.expires) }

// cache holds the tokens that were found good, a bounded number of them. The
// zero value holds none.
//
// An entry that is fresh decides without the store. One that is not, because it
// is older than ttl or from an epoch that has ended, is kept for a while for
// fail-static, and is worth no more than that.
//
// Every entry is worth its place for as long as any other, however often it is used. So
// there are two layers that take turns, and what is let go is a whole layer.
type cache struct {
	ttl     time.Duration
	further time.Duration    // fail-static
	size    int              // entries at most; 0: the cache is off
	clock   func() time.Time // that tokens expire by
	opened  time.Time        // monotonic
	epoch   atomic.Uint32
	whole   atomic.Pointer[entitlement] // for the latest version of the policy

	mu         sync.RWMutex
	young, old layer       // since the last turn, and the one before
	timer      *time.Timer // of the next turn; nil: there is nothing to let go
	closed     bool
}

// layer is what came into the cache between two turns. There may be a million entries in it,
// which the garbage collector does not look at: there is no pointer in them.
type layer struct {
	entries    map[idgen.ID]kept
	attributes []*attributes                 // of the entries
	found      map[attributesKey]*attributes // those, and of tokens that were only read
}

// kept is an entry, with the number of its grant in the layer.
type kept struct {
	facts
	attributes uint32
}

// open makes room for size entries that decide for ttl. With ttl 0 there is no
// cache.
func (c *cache) open(size int, ttl, further time.Duration, clock func() time.Time) {
	c.ttl, c.further, c.clock, c.opened = max(ttl, 0), further, clock, time.Now()
	if c.size = max(size, 0); c.size == 0 || c.ttl == 0 {
		c.size, c.ttl = 0, 0
	}
}

// close ends what lets go of old entries.
func (c *cache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// get sets e to the entry of id, if there is one. It does not allocate.
func (c *cache) get(id idgen.ID, e *entry) bool {
	if c.size == 0 {
		return false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.young.get(id, e) || c.old.get(id, e)
}

func (l *layer) get(id idgen.ID, e *entry) bool {
	k, ok := l.entries[id]
	if ok {
		e.facts, e.attributes = k.facts, l.attributes[k.attributes]
	}
	return ok
}

// age returns how long before now the store was asked for e.
func (c *cache) age(e *entry, now time.Time) time.Duration { return now.Sub(c.opened) - e.asked }

// fresh tells whether e decides without the store being asked.
func (c *cache) fresh(e *entry, now time.Time) bool {
	return c.age(e, now) < c.ttl && e.epoch == c.epoch.Load()
}

// lasts tells whether e may stand in for a store that cannot be asked.
func (c *cache) lasts(e *entry, now time.Time) bool {
	return c.further > 0 && c.age(e, now) < c.ttl+c.further
}

// keep returns how long e is worth its place from now on.
func (c *cache) keep(e *entry) time.Duration {
	return min(c.ttl+c.further, e.expiry().Sub(c.clock()))
}

// put keeps e, the token of id, unless that has expired.
func (c *cache) put(id idgen.ID, e *entry) {
	if c.size == 0 || c.keep(e) <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.young.entries[id]; ok && c.young.attributes[k.attributes] == e.attributes {
		c.young.entries[id] = kept{e.facts, k.attributes}
		return
	}
	c.remove(id)
	c.makeRoom()
	c.young.put(id, e)
	c.letGo()
}

// put keeps e in l, which is the young one.
func (l *layer) put(id idgen.ID, e *entry) {
	if l.entries == nil {
		l.entries = make(map[idgen.ID]kept)
	}
	g := e.attributes
	if n := int(g.number); n >= len(l.attributes) || l.attributes[n] != g {
		g.number = uint32(len(l.attributes))
		l.attributes = append(l.attributes, g)
	}
	l.entries[id] = kept{e.facts, g.number}
}

// makeRoom makes room in the young layer for one more entry. It needs mu.
func (c *cache) makeRoom() {
	if max(len(c.young.entries), len(c.young.attributes)) >= c.half() {
		c.rotate()
	}
	for len(c.young.entries)+len(c.old.entries) >= c.size {
		c.rotate()
	}
}

// half of the size is for each layer, so that not all is let go at once.
func (c *cache) half() int { return (c.size + 1) / 2 }

// letGo has what is in the cache let go after a while. It needs mu.
func (c *cache) letGo() {
	if c.timer == nil && !c.closed {
		c.timer = time.AfterFunc(c.ttl+c.further, func() { defer panics.Catch(panics.Tokens, nil); c.rotateAgain() })
	}
}

// rotate lets go of what came before the last one. It needs mu.
func (c *cache) rotate() { c.young, c.old = layer{}, c.young }

// rotateAgain is a turn, and has another one follow while there is anything: what has come by then
// is let go after it has stayed for as long as it is worth anything.
func (c *cache) rotateAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate()
	if c.timer = nil; len(c.old.entries)+len(c.old.found) > 0 {
		c.letGo()
	}
}

// drop forgets the entry of id.
func (c *cache) drop(id idgen.ID) {
	if c.size == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(id)
}

// remove is drop for who has mu.
func (c *cache) remove(id idgen.ID) {
	delete(c.young.entries, id)
	delete(c.old.entries, id)
}

// len returns how many entries there are.
func (c *cache) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.young.entries) + len(c.old.entries)
}
