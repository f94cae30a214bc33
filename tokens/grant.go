package tokens

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"snowgate/scope"
)

// grant is what the tokens have in common that a client was issued for the same
// scope and audience: all of a [Token] but its id and its times.
type grant struct {
	client     string
	scope      scope.List
	audience   []string
	generation uint64

	verdict atomic.Pointer[verdict] // what the policy last made of it
}

func newGrant(t *Token) *grant {
	return &grant{client: t.Client, scope: t.Scope, audience: t.Audience, generation: t.Generation}
}

// is reports whether g is the grant of t.
func (g *grant) is(t *Token) bool {
	return g.client == t.Client && g.scope == t.Scope && g.generation == t.Generation && slices.Equal(g.audience, t.Audience)
}

// grants finds the grants of the tokens in the cache, so that tokens which have the same
// share it: many tokens of few clients. One of which no token was read from the store for a
// while is let go.
type grants struct {
	while time.Duration
	most  int // of them; roughly

	mu         sync.Mutex
	young, old map[grantKey]*grant // read since the last turn, or only before
	timer      *time.Timer         // of the next turn; nil: there is nothing to let go
	closed     bool
}

// grantKey is what a grant is found by.
type grantKey struct {
	client     string
	scope      scope.List
	audience   string // all of them; others may read the same
	generation uint64
}

// of returns the grant of t, which belongs to the caller alone.
func (gs *grants) of(t *Token) *grant {
	key := grantKey{t.Client, t.Scope, strings.Join(t.Audience, " "), t.Generation}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.young[key]; g != nil && g.is(t) {
		return g
	}
	g := gs.old[key]
	if g == nil || !g.is(t) {
		t.share()
		g = newGrant(t)
		key.client, key.scope = g.client, g.scope // kept once
	}
	gs.keep(key, g)
	return g
}

// keep notes that g was read. It needs mu.
func (gs *grants) keep(key grantKey, g *grant) {
	if len(gs.young) >= gs.most {
		gs.turn()
	}
	if gs.young == nil {
		gs.young = make(map[grantKey]*grant)
	}
	gs.young[key] = g
	if gs.timer == nil && !gs.closed {
		gs.timer = time.AfterFunc(gs.while, gs.age)
	}
}

// turn lets go of those that were not read since the last one. It needs mu.
func (gs *grants) turn() { gs.young, gs.old = nil, gs.young }

// age is a turn, and has another one follow while there is anything.
func (gs *grants) age() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.turn()
	if gs.timer = nil; len(gs.old) > 0 && !gs.closed {
		gs.timer = time.AfterFunc(gs.while, gs.age)
	}
}

func (gs *grants) close() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.closed = true
	if gs.timer != nil {
		gs.timer.Stop()
		gs.timer = nil
	}
}

// grant returns the grant of t, which belongs to the caller alone.
func (c *cache) grant(t *Token) *grant {
	if c.entries == nil {
		return newGrant(t) // nobody to share it with
	}
	return c.grants.of(t)
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
	left, ok := reduced(g.scope, g.client, policy)
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

// reduced returns what client still has of granted, and false if it is not
// entitled to anything.
func reduced(granted scope.List, client string, policy ClientPolicy) (left scope.List, ok bool) {
	scopes, ok := policy.Entitled(client)
	if !ok {
		return "", false
	}
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
