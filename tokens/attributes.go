package tokens

import (
	"slices"
	"strings"
	"sync/atomic"
	"unique"

	"snowgate/internal/scope"
)

// attributes holds what tokens of one client with the same scope and audience share: all of a
// [Token] but its id and its times. The cache stores them once for all these tokens, so that its
// entries need no pointers, which the garbage collector would have to follow.
type attributes struct {
	client     string
	scope      scope.List
	audience   []string
	generation uint64

	entitled atomic.Pointer[entitlement] // the last response of the client policy

	number uint32 // index in the young layer, if it is there; guarded by the cache's mu
}

func newAttributes(t *Token) *attributes {
	return &attributes{client: t.Client, scope: t.Scope, audience: t.Audience, generation: t.Generation}
}

// is reports whether t has these attributes.
func (g *attributes) is(t *Token) bool {
	return g.client == t.Client && g.scope == t.Scope && g.generation == t.Generation && slices.Equal(g.audience, t.Audience)
}

// attributesKey is the key by which attributes are found.
type attributesKey struct {
	client     string
	scope      scope.List
	audience   string // joined; two audiences may join to the same text, so is decides
	generation uint64
}

// attributes returns the attributes of t: those that the cache has already, or new ones. No other
// goroutine may use t meanwhile.
func (c *cache) attributes(t *Token) *attributes {
	if c.size == 0 {
		return newAttributes(t) // nothing is shared without a cache
	}
	key := attributesKey{t.Client, t.Scope, strings.Join(t.Audience, " "), t.Generation}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.young.found[key]; g != nil && g.is(t) {
		return g
	}
	g := c.old.found[key]
	if g == nil || !g.is(t) {
		t.share()
		g = newAttributes(t)
		key.client, key.scope = g.client, g.scope // kept once
	}
	c.find(key, g)
	return g
}

// find makes attributes return g for key until no token with g was read from the store for two
// rotations. The caller holds mu.
func (c *cache) find(key attributesKey, g *attributes) {
	if len(c.young.found) >= c.half() {
		c.rotate()
	}
	if c.young.found == nil {
		c.young.found = make(map[attributesKey]*attributes)
	}
	c.young.found[key] = g
	c.letGo()
}

// share replaces the texts of t by canonical copies, which different clients share. No other
// goroutine may use t meanwhile.
func (t *Token) share() {
	t.Scope = unique.Make(t.Scope).Value()
	for i, audience := range t.Audience {
		t.Audience[i] = unique.Make(audience).Value()
	}
}

// entitlement is the part of attributes that the client policy permits under one version of the
// policy.
type entitlement struct {
	version uint64
	whole   bool // the client may use the whole scope
	ok      bool // if not whole: the client may use less, which may be empty
	less    scope.List
}

// under returns the part of the scope of g that policy permits. ok is false if the client may not
// use its tokens at all. The cache keeps the result until the version of the policy changes. under
// allocates only after such a change, or if the policy reduces the scope.
func (c *cache) under(policy ClientPolicy, g *attributes) (left scope.List, ok bool) {
	version := policy.Version() // read before Entitled, so that after a change in between the next call asks again
	v := g.entitled.Load()
	if v == nil || v.version != version {
		v = c.judged(policy, g, version)
		g.entitled.Store(v)
	}
	if v.whole {
		return g.scope, true
	}
	return v.less, v.ok
}

// judged returns what policy permits. Attributes that keep their whole scope share one entitlement.
func (c *cache) judged(policy ClientPolicy, g *attributes, version uint64) *entitlement {
	left, ok := reduced(g, policy)
	if !ok || left != g.scope {
		return &entitlement{version: version, ok: ok, less: left}
	}
	v := c.whole.Load()
	if v == nil || v.version != version {
		v = &entitlement{version: version, whole: true}
		c.whole.Store(v)
	}
	return v
}

// reduced returns the part of the scope of g that its client still has, and false if the client is
// gone or disabled.
func reduced(g *attributes, policy ClientPolicy) (left scope.List, ok bool) {
	scopes, ok := policy.Entitled(g.client, g.generation)
	if !ok {
		return "", false
	}
	granted := g.scope
	if scopes.Contains(granted) {
		return granted, true
	}
	var names []string
	for name := range granted.All {
		if scopes.Has(name) {
			names = append(names, name)
		}
	}
	return scope.Of(names...), true
}
