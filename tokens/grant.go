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
type grant struct {
	client     string
	scope      scope.List
	audience   []string
	generation uint64

	verdict atomic.Pointer[verdict] // what the policy last made of it

	number uint32 // among the grants of the young layer, if it is there; guarded by the cache's mu
}

func newGrant(t *Token) *grant {
	return &grant{client: t.Client, scope: t.Scope, audience: t.Audience, generation: t.Generation}
}

// is reports whether g is the grant of t.
func (g *grant) is(t *Token) bool {
	return g.client == t.Client && g.scope == t.Scope && g.generation == t.Generation && slices.Equal(g.audience, t.Audience)
}

// grantKey is what a grant is found by.
type grantKey struct {
	client     string
	scope      scope.List
	audience   string // all of them; others may read the same
	generation uint64
}

// grant returns the grant of t, which belongs to the caller alone. Tokens in the cache that
// have the same share it: many tokens of few clients.
func (c *cache) grant(t *Token) *grant {
	if c.size == 0 {
		return newGrant(t) // nobody to share it with
	}
	key := grantKey{t.Client, t.Scope, strings.Join(t.Audience, " "), t.Generation}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.young.found[key]; g != nil && g.is(t) {
		return g
	}
	g := c.old.found[key]
	if g == nil || !g.is(t) {
		t.share()
		g = newGrant(t)
		key.client, key.scope = g.client, g.scope // kept once
	}
	c.find(key, g)
	return g
}

// find has g found by key until nobody has read it from the store for a while. It needs mu.
func (c *cache) find(key grantKey, g *grant) {
	if len(c.young.found) >= c.half() {
		c.turn()
	}
	if c.young.found == nil {
		c.young.found = make(map[grantKey]*grant)
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

// verdict is what a client may use of a grant, under one version of the policy.
type verdict struct {
	version uint64
	whole   bool // all of it
	ok      bool // else: less, which may be empty
	less    scope.List
}

// under returns the scope that policy leaves the client of g, and false if it does
// not let it use any of its tokens. It allocates only when the policy has changed since
// the last call.
func (c *cache) under(policy ClientPolicy, g *grant) (left scope.List, ok bool) {
	version := policy.Version() // before the question: what changes meanwhile is asked again
	v := g.verdict.Load()
	if v == nil || v.version != version {
		v = c.judged(policy, g, version)
		g.verdict.Store(v)
	}
	if v.whole {
		return g.scope, true
	}
	return v.less, v.ok
}

// judged asks policy. Grants that may be used as they are share the answer.
func (c *cache) judged(policy ClientPolicy, g *grant, version uint64) *verdict {
	left, ok := reduced(g, policy)
	if !ok || left != g.scope {
		return &verdict{version: version, ok: ok, less: left}
	}
	v := c.whole.Load()
	if v == nil || v.version != version {
		v = &verdict{version: version, whole: true}
		c.whole.Store(v)
	}
	return v
}

// reduced returns what its client still has of the scope of g, and false if it is not
// entitled to anything.
func reduced(g *grant, policy ClientPolicy) (left scope.List, ok bool) {
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
