package tokens

import (
	"sync"
	"sync/atomic"
	"time"

	"snowgate/idgen"
	"snowgate/internal/panics"
)

// entry is a token whose record was found and whose secret was presented: all of the token but its
// id.
type entry struct {
	attributes *attributes
	facts
}

// facts is the part of an entry that no other token shares.
type facts struct {
	digest  Digest
	expires int64           // Unix milliseconds
	asked   time.Duration   // when the store was asked, since the cache was opened
	epoch   uint32          // of the cache when the store was asked
	tag     [tagLength]byte // verified with the secret of digest
}

// shows reports, in constant time, whether b, whose digest is given, is the token of f: it has the
// same secret and the same tag.
func (f *facts) shows(b Bearer, digest Digest) bool {
	return f.digest.Equal(digest) && sameTag(f.tag, b.tag())
}

// expiry returns the first instant at which the token of f is no longer valid.
func (f *facts) expiry() time.Time { return time.UnixMilli(f.expires) }

// cache holds a limited number of valid tokens. The zero value holds none.
//
// A decision by a fresh entry needs no round trip to the store. An entry becomes stale when it is
// older than ttl, or when a new epoch begins. The cache keeps stale entries for a while, for
// fail-static only.
//
// The cache is not ordered by use, because every entry becomes stale at the same age. It has two
// layers instead of a list: new entries go into the young layer, and eviction drops the whole old
// layer (see rotate).
//
// All methods are safe for concurrent use.
type cache struct {
	ttl     time.Duration
	further time.Duration    // fail-static
	size    int              // entries at most; 0: the cache is off
	clock   func() time.Time // the clock for the expiry of tokens
	opened  time.Time        // monotonic
	epoch   atomic.Uint32
	whole   atomic.Pointer[entitlement] // for the latest version of the policy

	mu         sync.RWMutex
	young, old layer       // since the last rotation, and since the one before
	timer      *time.Timer // of the next rotation; nil while both layers are empty
	closed     bool
}

// layer holds the entries that were added between two rotations. Its entries have no pointers, so
// that the garbage collector does not scan them: there may be a million.
type layer struct {
	entries    map[idgen.ID]kept
	attributes []*attributes                 // of the entries, by kept.attributes
	found      map[attributesKey]*attributes // those of the entries, and of tokens that were only read
}

// kept is an entry, with the index of its attributes in the layer.
type kept struct {
	facts
	attributes uint32
}

// open makes the cache ready for size entries that are fresh for ttl. With ttl 0 the cache is off.
func (c *cache) open(size int, ttl, further time.Duration, clock func() time.Time) {
	c.ttl, c.further, c.clock, c.opened = max(ttl, 0), further, clock, time.Now()
	if c.size = max(size, 0); c.size == 0 || c.ttl == 0 {
		c.size, c.ttl = 0, 0
	}
}

// close stops the timer. Entries stay.
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

// fresh reports whether e permits a decision without the store.
func (c *cache) fresh(e *entry, now time.Time) bool {
	return c.age(e, now) < c.ttl && e.epoch == c.epoch.Load()
}

// lasts reports whether e may be served stale while the store is unavailable.
func (c *cache) lasts(e *entry, now time.Time) bool {
	return c.further > 0 && c.age(e, now) < c.ttl+c.further
}

// keep returns how long e will still be useful.
func (c *cache) keep(e *entry) time.Duration {
	return min(c.ttl+c.further, e.expiry().Sub(c.clock()))
}

// put adds e, the token of id, unless the token has expired.
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

// put adds e to l, the young layer.
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

// makeRoom makes room in the young layer for one more entry. The caller holds mu.
func (c *cache) makeRoom() {
	if max(len(c.young.entries), len(c.young.attributes)) >= c.half() {
		c.rotate()
	}
	for len(c.young.entries)+len(c.old.entries) >= c.size {
		c.rotate()
	}
}

// half returns the maximum number of entries in a layer. With two layers, eviction never empties
// the cache.
func (c *cache) half() int { return (c.size + 1) / 2 }

// letGo starts the timer of the next rotation if it is not running. The caller holds mu.
func (c *cache) letGo() {
	if c.timer == nil && !c.closed {
		c.timer = time.AfterFunc(c.ttl+c.further, func() { defer panics.Catch(panics.Tokens, nil); c.rotateAgain() })
	}
}

// rotate drops the old layer and begins a new young one. The caller holds mu.
func (c *cache) rotate() { c.young, c.old = layer{}, c.young }

// rotateAgain is called by the timer. It rotates, and restarts the timer unless the cache is empty.
// So an entry is dropped after one or two periods, when it has become useless.
func (c *cache) rotateAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rotate()
	if c.timer = nil; len(c.old.entries)+len(c.old.found) > 0 {
		c.letGo()
	}
}

// drop removes the entry of id.
func (c *cache) drop(id idgen.ID) {
	if c.size == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(id)
}

// remove is drop for callers that hold mu.
func (c *cache) remove(id idgen.ID) {
	delete(c.young.entries, id)
	delete(c.old.entries, id)
}

// len returns the number of entries.
func (c *cache) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.young.entries) + len(c.old.entries)
}
