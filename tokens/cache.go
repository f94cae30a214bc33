package tokens

import (
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"snowgate/idgen"
	"snowgate/scope"
)

// entry is a token whose record was found, and whose secret was shown.
type entry struct {
	digest Digest
	token  Token     // as it was issued
	asked  time.Time // monotonic: just before the store was asked
	epoch  uint64    // of the cache when the store was asked
	keep   time.Duration

	// granted is what the policy last made of the token.
	granted atomic.Pointer[granted]
}

// granted is a token as its client may use it, under one version of the policy.
type granted struct {
	version uint64
	token   *Token // nil: the client may use none
}

// under returns the token as policy lets its client use it, nil if it does not.
// It allocates only when the policy has changed since the last call.
func (e *entry) under(policy ClientPolicy) *Token {
	version := policy.Version() // before the question: what changes meanwhile is asked again
	if g := e.granted.Load(); g != nil && g.version == version {
		return g.token
	}
	token := reduced(&e.token, policy)
	e.granted.Store(&granted{version, token})
	return token
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
	further time.Duration // fail-static
	epoch   atomic.Uint64
	entries *otter.Cache[idgen.ID, *entry] // nil: the cache is off
}

// open makes room for size entries that decide for ttl. With ttl 0 there is no
// cache.
func (c *cache) open(size int, ttl, further time.Duration) {
	c.ttl, c.further = ttl, further
	if ttl <= 0 || size <= 0 {
		c.ttl = 0
		return
	}
	c.entries = otter.Must(&otter.Options[idgen.ID, *entry]{
		MaximumSize: size,
		// Otter's clock is read once and is monotonic from then on. This only
		// makes room: what decides is fresh.
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[idgen.ID, *entry]) time.Duration { return e.Value.keep }),
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

// fresh tells whether e decides without the store being asked.
func (c *cache) fresh(e *entry, now time.Time) bool {
	return now.Sub(e.asked) < c.ttl && e.epoch == c.epoch.Load()
}

// lasts tells whether e may stand in for a store that cannot be asked.
func (c *cache) lasts(e *entry, now time.Time) bool {
	return c.further > 0 && now.Sub(e.asked) < c.ttl+c.further
}

// put keeps e, the token of id, which has the given rest of its life.
func (c *cache) put(id idgen.ID, e *entry, rest time.Duration) {
	if c.entries == nil || rest <= 0 {
		return
	}
	e.keep = min(c.ttl+c.further, rest)
	c.entries.Set(id, e)
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
