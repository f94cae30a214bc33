package tokens

import (
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"snowgate/idgen"
)

// entry is what the cache holds of a token whose record was found, and whose secret was
// shown, besides what is in its id. There are many, so each is small, 72 bytes, and for
// the collector's sake one pointer is all that is in it.
type entry struct {
	grant   *grant
	digest  Digest
	tag     [tagLength]byte // that was verified with a secret of that digest
	epoch   uint32          // of the cache when the store was asked
	expires int64           // Unix milliseconds
	asked   time.Duration   // since the cache was opened: just before the store was asked
}

// shows reports, in constant time, whether b is the token that e was found for: the same
// secret, whose digest is shown, and the same tag.
func (e *entry) shows(b Bearer, digest Digest) bool {
	return e.digest.Equal(digest) && sameTag(e.tag, b.tag())
}

// expiry is the first instant at which the token of e is no longer valid.
func (e *entry) expiry() time.Time { return time.UnixMilli(e.expires) }

// cache holds the tokens that were found good, a bounded number of them. The
// zero value holds none.
//
// An entry that is fresh decides without the store. One that is not, because it
// is older than ttl or from an epoch that has ended, is kept for a while for
// fail-static, and is worth no more than that.
type cache struct {
	ttl     time.Duration
	further time.Duration    // fail-static
	clock   func() time.Time // that tokens expire by
	opened  time.Time        // monotonic
	epoch   atomic.Uint32
	whole   atomic.Pointer[verdict]       // for the latest version of the policy
	entries *otter.Cache[idgen.ID, entry] // nil: the cache is off
	grants  grants                        // of the entries
}

// open makes room for size entries that decide for ttl. With ttl 0 there is no
// cache.
func (c *cache) open(size int, ttl, further time.Duration, clock func() time.Time) {
	c.ttl, c.further, c.clock, c.opened = ttl, further, clock, time.Now()
	if ttl <= 0 || size <= 0 {
		c.ttl = 0
		return
	}
	// Entries are values, which otter keeps in its own pieces of memory.
	c.entries = otter.Must(&otter.Options[idgen.ID, entry]{
		MaximumSize: size,
		// Notes of what was used are worked off by who has made the last of them, a few
		// at a time; a goroutine for each few costs more.
		Executor: func(work func()) { work() },
		// Otter's clock is read once and is monotonic from then on. This only
		// makes room: what decides is fresh.
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[idgen.ID, entry]) time.Duration { return c.keep(&e.Value) }),
	})
	c.grants.while, c.grants.most = ttl+further, size
}

// close ends what removes old entries.
func (c *cache) close() {
	if c.entries != nil {
		c.entries.StopAllGoroutines()
		c.grants.close()
	}
}

// get returns the entry of id, if there is one. It does not allocate.
func (c *cache) get(id idgen.ID) (entry, bool) {
	if c.entries == nil {
		return entry{}, false
	}
	return c.entries.GetIfPresent(id)
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
func (c *cache) put(id idgen.ID, e entry) {
	if c.entries != nil && c.keep(&e) > 0 {
		c.entries.Set(id, e)
	}
}

// drop forgets the entry of id.
func (c *cache) drop(id idgen.ID) {
	if c.entries != nil {
		c.entries.Invalidate(id)
	}
}

// len returns about how many entries there are.
func (c *cache) len() int {
	if c.entries == nil {
		return 0
	}
	return c.entries.EstimatedSize()
}
