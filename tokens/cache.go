package tokens

import (
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"snowgate/idgen"
	"snowgate/scope"
)

// entry is a token whose record was found, and whose secret was shown. There are
// many, so each is small: 192 bytes besides what tokens have in common.
type entry struct {
	digest Digest
	tag    [tagLength]byte // that was verified with a secret of that digest
	token  Token           // as it was issued
	asked  time.Duration   // since the cache was opened: just before the store was asked
	epoch  uint64          // of the cache when the store was asked

	// granted is what the policy last made of the token.
	granted atomic.Pointer[granted]
}

// shows reports, in constant time, whether b is the token that e was found for: the same
// secret, whose digest is shown, and the same tag.
func (e *entry) shows(b Bearer, digest Digest) bool {
	return e.digest.Equal(digest) && sameTag(e.tag, b.tag())
}

// granted is what a client may use of a token, under one version of the policy.
type granted struct {
	version uint64
	whole   bool   // all of it
	less    *Token // else: what is left of it; nil: nothing
}

// under returns the token of e as policy lets its client use it, nil if it does
// not. It allocates only when the policy has changed since the last call.
func (c *cache) under(policy ClientPolicy, e *entry) *Token {
	version := policy.Version() // before the question: what changes meanwhile is asked again
	g := e.granted.Load()
	if g == nil || g.version != version {
		g = c.judged(policy, &e.token, version)
		e.granted.Store(g)
	}
	if g.whole {
		return &e.token
	}
	return g.less
}

// judged asks policy. Tokens that may be used as they are share the answer.
func (c *cache) judged(policy ClientPolicy, t *Token, version uint64) *granted {
	less := reduced(t, policy)
	if less != t {
		return &granted{version: version, less: less}
	}
	g := c.whole.Load()
	if g == nil || g.version != version {
		g = &granted{version: version, whole: true}
		c.whole.Store(g)
	}
	return g
}

// reduced returns t with what is left of its scope, nil if its client is not
// entitled to anything.
func reduced(t *Token, policy ClientPolicy) *Token {
	scopes, ok := policy.Entitled(t.Client)
	if !ok {
		return nil
	}
	if scopes.Contains(t.Scope) {
		return t
	}
	var left []string
	for name := range t.Scope.All {
		if scopes.Has(name) {
			left = append(left, name)
		}
	}
	less := *t
	less.Scope = scope.Of(left...)
	return &less
}

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
	epoch   atomic.Uint64
	whole   atomic.Pointer[granted]        // for the latest version of the policy
	entries *otter.Cache[idgen.ID, *entry] // nil: the cache is off
}

// open makes room for size entries that decide for ttl. With ttl 0 there is no
// cache.
func (c *cache) open(size int, ttl, further time.Duration, clock func() time.Time) {
	c.ttl, c.further, c.clock, c.opened = ttl, further, clock, time.Now()
	if ttl <= 0 || size <= 0 {
		c.ttl = 0
		return
	}
	c.entries = otter.Must(&otter.Options[idgen.ID, *entry]{
		MaximumSize: size,
		// Notes of what was used are worked off by who has made the last of them, a few
		// at a time; a goroutine for each few costs more.
		Executor: func(work func()) { work() },
		// Otter's clock is read once and is monotonic from then on. This only
		// makes room: what decides is fresh.
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[idgen.ID, *entry]) time.Duration { return c.keep(e.Value) }),
	})
}

// close ends the goroutine that removes old entries.
func (c *cache) close() {
	if c.entries != nil {
		c.entries.StopAllGoroutines()
	}
}

// get returns the entry of id, nil if there is none. It does not allocate.
func (c *cache) get(id idgen.ID) *entry {
	if c.entries == nil {
		return nil
	}
	e, _ := c.entries.GetIfPresent(id)
	return e
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
	return min(c.ttl+c.further, e.token.ExpiresAt.Sub(c.clock()))
}

// put keeps e, the token of id, unless that has expired.
func (c *cache) put(id idgen.ID, e *entry) {
	if c.entries != nil && c.keep(e) > 0 {
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
