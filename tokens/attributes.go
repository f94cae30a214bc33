package tokens

import (
	"slices"
	"strings"
	"sync/atomic"
	"unique"

	"snowgate/internal/scope"
)

// grant is what the tokens have in common that a client was issued for the same
// scope and audience: all of a [Token] but its id and its times.
type attributes struct {
	client     string
	scope      scope.List
	audience   []string
	generation uint64

	entitled atomic.Pointer[entitlement] // what the policy last made of it

	number uint32 // among the grants of the young layer, if it is there; guarded by the cache's mu
}

func newAttributes(t *Token) *attributes {
	return &attributes{client: t.Client, scope: t.Scope, audience: t.Audience, generation: t.Generation}
}

// is reports whether g is the grant of t.
func (g *attributes) is(t *Token) bool {
	return g.client == t.Client && g.scope == t.Scope && g.generation == t.Generation && slices.Equal(g.audience, t.Audience)
}

// attributesKey is what attributes are found by.
type attributesKey struct {
	client     string
	scope      scope.List
	audience   string // all of them; others may read the same
	generation uint64
}

// grant returns the grant of t, which belongs to the caller alone. Tokens in the cache that
// have the same share it: many tokens of few clients.
func (c *cache) attributes(t *Token) *attributes {
	if c.size == 0 {
		return newAttributes(t) // nobody to share it with
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

// find has g found by key until nobody has read it from the store for a while. It needs mu.
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

// share makes grants of different clients keep once the texts that they have in
// common. t belongs to the caller alone.
func (t *Token) share() {
	t.Scope = unique.Make(t.Scope).Value()
	for i, audience := range t.Audience {
		t.Audience[i] = unique.Make(audience).Value()
	}
}

// entitlement is what the client policy leaves of attributes under one version of the policy.
type entitlement struct {
	version uint64
	whole   bool // all of it
	ok      bool // else: less, which may be empty
	less    scope.List
}

// under returns the scope that policy leaves the client of g, and false if it does
// not let it use any of its tokens. It allocates only when the policy has changed since
// the last call.
func (c *cache) under(policy ClientPolicy, g *attributes) (left scope.List, ok bool) {
	version := policy.Version() // before the question: what changes meanwhile is asked again
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

// judged asks policy. Grants that may be used as they are share the answer.
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

// reduced returns what its client still has of the scope of g, and false if it is not
// entitled to anything.
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
