package tokens

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Origin is what the id of a token tells about its origin.
type Origin struct {
	Minted time.Time // with millisecond precision
	Worker int64     // as idgen.Layout.WorkerIndex counts
}

// RulesConfig configures [Rules].
type RulesConfig struct {
	// Store keeps the rules. Required.
	Store RuleStore
	// Longest is the longest lifetime that this gateway permits. It is recorded in
	// the store before the first token is issued.
	Longest time.Duration
	// Now is the clock for the end of rules. Default: time.Now.
	Now func() time.Time
	// OnUnknown is called for each rule of a kind that this version does not know, when the rule
	// takes effect. It may be nil and must not block.
	OnUnknown func(Rule)
}

// Rules holds the revocation rules of a deployment in memory. A check is one atomic load and a
// binary search, without allocation. Rules drops a rule only after it has ended, whatever the store
// has lost.
//
// All methods are safe for concurrent use; use [NewRules].
type Rules struct {
	store   RuleStore
	own     time.Duration
	now     func() time.Time
	unknown func(Rule)
	current atomic.Pointer[ruleIndex]

	mu       sync.Mutex // held while current is replaced
	watchers []func(added []Rule)
}

// NewRules returns rules for cfg.Store. They are empty, and not loaded, until the first Refresh.
func NewRules(cfg RulesConfig) *Rules {
	if cfg.Store == nil {
		panic("tokens: NewRules without a store")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnUnknown == nil {
		cfg.OnUnknown = func(Rule) {}
	}
	r := &Rules{store: cfg.Store, own: cfg.Longest, now: cfg.Now, unknown: cfg.OnUnknown}
	r.current.Store(newRuleIndex(nil, 0, cfg.Longest, false))
	return r
}

// Loaded reports whether the store has been read and has recorded the longest lifetime that this
// gateway permits. Until then no decision is possible.
func (r *Rules) Loaded() bool { return r.current.Load().loaded }

// Revision returns the revision up to which the rules are complete.
func (r *Rules) Revision() uint64 { return r.current.Load().revision }

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.current.Load().rules) }

// Unknown returns the number of rules whose kind this version does not know.
func (r *Rules) Unknown() int { return len(r.current.Load().unknown) }

// Longest returns the longest lifetime of a token that was ever permitted in this deployment. It is
// 0 until the rules are loaded.
func (r *Rules) Longest() time.Duration {
	if x := r.current.Load(); x.loaded {
		return x.longest
	}
	return 0
}

// Set returns all rules, in the order of their IDs.
func (r *Rules) Set() RuleSet { return r.current.Load().set() }

// Generation returns the generation of new tokens of client.
func (r *Rules) Generation(client string) uint64 {
	return r.current.Load().generations[client].generation
}

// CheckOrigin returns [ErrRevoked] if a rule for a worker or an instant matches tokens of that
// origin, and an error that matches [ErrUnavailable] if a rule of an unknown kind may match them.
// It does not allocate.
func (r *Rules) CheckOrigin(o Origin) error {
	x := r.current.Load()
	if x.matches(o) {
		return ErrRevoked
	}
	for i := range x.unknown {
		if x.unknown[i].mayMatch(o) {
			return errUnknownRule
		}
	}
	return nil
}

// errUnknownRule is the error for a token that a rule of an unknown kind may have revoked.
var errUnknownRule = fmt.Errorf("%w: a newer version wrote a revocation rule of a kind that this one does not know, "+
	"and the token may be one of those that it revokes: upgrade this gateway", ErrUnavailable)

// CheckClient returns [ErrRevoked] if all tokens of the client of t were revoked after t was
// issued. It does not allocate.
func (r *Rules) CheckClient(t *Token) error {
	g, ok := r.current.Load().generations[t.Client]
	if !ok || t.Generation >= g.generation {
		return nil
	}
	// After the end of the rule, gateways whose clocks differ may have dropped it, and issue tokens
	// of generation 0 again.
	if r.now().UnixMilli() >= g.end {
		return nil
	}
	return ErrRevoked
}

// Merge adds the content of set: all its rules, the greater of two generations, and the later of
// two revisions. It drops rules that ended longer ago than [RuleGrace]. Merging is commutative and
// idempotent.
func (r *Rules) Merge(set RuleSet) { r.merge(set, false) }

// merge calls the watchers with the new rules before it returns.
func (r *Rules) merge(set RuleSet, loaded bool) {
	added, watchers := r.replace(set, loaded)
	if len(added) == 0 {
		return
	}
	for _, rule := range added {
		if !rule.Known() {
			r.unknown(rule)
		}
	}
	for _, tell := range watchers {
		tell(added)
	}
}

// replace puts the union of the known rules and set into effect.
func (r *Rules) replace(set RuleSet, loaded bool) (added []Rule, watchers []func([]Rule)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.current.Load()
	rules, added := mergeRules(old.rules, set.Rules, r.now())
	next := newRuleIndex(rules, max(old.revision, set.Revision), max(old.longest, set.Longest), old.loaded || loaded)
	r.current.Store(next)
	return added, r.watchers
}

// onAdd registers a function that is called with rules after they have taken effect.
func (r *Rules) onAdd(tell func(added []Rule)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, tell)
}

// Refresh reads the store, merges its rules, and writes back what the store has lost. The error
// matches [ErrUnavailable].
func (r *Rules) Refresh(ctx context.Context) error {
	known := r.current.Load() // loaded before the read, so that a rule that arrives meanwhile does not count as lost
	there, err := r.store.LoadRules(ctx)
	if err != nil {
		there.Revision = 0 // the read was not complete
		r.merge(there, false)
		return err
	}
	r.merge(there, false)
	if lost, incomplete := known.beyond(there, r.now()); incomplete {
		if err := r.store.RestoreRules(ctx, lost); err != nil {
			return err
		}
		if there, err = r.store.LoadRules(ctx); err != nil {
			return err
		}
	}
	r.merge(there, true)
	return nil
}

// Add writes a rule and returns it as it was stored. When the error is nil, the rule has taken
// effect here. Errors are those of [RuleStore.AddRule]; after an [ErrUnavailable] the rule may have
// been written.
func (r *Rules) Add(ctx context.Context, rule Rule) (Rule, error) {
	known := r.Revision()
	stored, revision, err := r.store.AddRule(ctx, rule)
	if err == nil && revision <= known {
		// The store has lost revisions, and living tokens may carry the generation that it has
		// given to the rule. Write the known revision back and add the rule again.
		if err = r.Refresh(ctx); err == nil {
			stored, revision, err = r.store.AddRule(ctx, rule)
		}
	}
	if err != nil {
		return Rule{}, err
	}
	r.learn(stored, revision)
	return stored, nil
}

// learn merges a rule that was just written. It takes over the revision only if that follows the
// known one directly.
func (r *Rules) learn(rule Rule, revision uint64) {
	set := RuleSet{Rules: []Rule{rule}}
	if revision == r.Revision()+1 {
		set.Revision = revision
	}
	r.merge(set, false)
}

// ruleIndex is an immutable set of rules, indexed for checks.
type ruleIndex struct {
	rules    map[string]Rule // by ID
	revision uint64
	longest  time.Duration
	loaded   bool

	before      int64            // everything minted before is revoked; Unix milliseconds
	workers     map[int64][]span // sorted and disjoint
	unknown     []Rule           // of unknown kinds
	generations map[string]clientGeneration
}

// span is an interval [from, until) of Unix milliseconds.
type span struct{ from, until int64 }

// clientGeneration is a rule for a client.
type clientGeneration struct {
	generation uint64
	end        int64 // Unix milliseconds
}

func newRuleIndex(rules map[string]Rule, revision uint64, longest time.Duration, loaded bool) *ruleIndex {
	x := &ruleIndex{
		rules: rules, revision: revision, longest: longest, loaded: loaded,
		before:      math.MinInt64,
		workers:     make(map[int64][]span),
		generations: make(map[string]clientGeneration),
	}
	for _, r := range rules {
		switch r.Kind {
		case RuleClient:
			x.generations[r.Client] = clientGeneration{r.Generation, r.End.UnixMilli()}
		case RuleWorker:
			x.workers[r.Worker] = append(x.workers[r.Worker], span{r.From.UnixMilli(), r.Until.UnixMilli()})
		case RuleBefore:
			x.before = max(x.before, r.Until.UnixMilli())
		default:
			x.unknown = append(x.unknown, r)
		}
	}
	for worker, spans := range x.workers {
		x.workers[worker] = union(spans)
	}
	return x
}

// union merges overlapping spans, and returns them in order. It works in place.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	joined := spans[:0]
	for _, s := range spans {
		if last := len(joined) - 1; last >= 0 && s.from <= joined[last].until {
			joined[last].until = max(joined[last].until, s.until)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// matches reports whether a rule matches, except rules for clients.
func (x *ruleIndex) matches(o Origin) bool {
	minted := o.Minted.UnixMilli()
	if minted < x.before {
		return true
	}
	spans := x.workers[o.Worker]
	// Find the first span that ends after the instant.
	i, _ := slices.BinarySearchFunc(spans, minted, func(s span, minted int64) int {
		return cmp.Compare(s.until, minted+1)
	})
	return i < len(spans) && spans[i].from <= minted
}

// set returns x as a [RuleSet] in the order of IDs.
func (x *ruleIndex) set() RuleSet {
	rules := slices.SortedFunc(maps.Values(x.rules), func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) })
	return RuleSet{Revision: x.revision, Longest: x.longest, Rules: rules}
}

// beyond returns what x has and there lacks, and whether that is anything. Rules that have ended do
// not count.
func (x *ruleIndex) beyond(there RuleSet, now time.Time) (lost RuleSet, incomplete bool) {
	lost = RuleSet{Revision: x.revision, Longest: x.longest}
	theirs := make(map[string]Rule, len(there.Rules))
	for _, r := range there.Rules {
		theirs[r.ID] = r
	}
	for id, mine := range x.rules {
		their, ok := theirs[id]
		if now.Before(mine.End) && (!ok || their.Generation < mine.Generation || their.End.Before(mine.End)) {
			lost.Rules = append(lost.Rules, mine)
		}
	}
	return lost, len(lost.Rules) > 0 || there.Revision < x.revision || there.Longest < x.longest
}

// mergeRules returns the union of old and more without expired rules, and those rules that match
// something that no rule in old matches. Expired rules are dropped first, so that the order of
// merging does not matter.
func mergeRules(old map[string]Rule, more []Rule, now time.Time) (rules map[string]Rule, added []Rule) {
	over := func(r Rule) bool { return !now.Before(r.End.Add(RuleGrace)) }
	rules = make(map[string]Rule, len(old)+len(more))
	for id, r := range old {
		if !over(r) {
			rules[id] = r
		}
	}
	for _, r := range more {
		if over(r) {
			continue
		}
		there, ok := rules[r.ID]
		if !ok || there.Generation < r.Generation {
			added = append(added, r)
		}
		if ok {
			r = combine(there, r)
		}
		rules[r.ID] = r
	}
	return rules, added
}

// combine merges two rules with the same ID. The order does not matter.
func combine(a, b Rule) Rule {
	order := cmp.Or(
		cmp.Compare(b.Generation, a.Generation), // the greater one revokes more tokens
		a.Created.Compare(b.Created),            // the earlier one
		cmp.Compare(b.By, a.By), cmp.Compare(b.Why, a.Why),
	)
	if order > 0 {
		a, b = b, a
	}
	if a.End.Before(b.End) {
		a.End = b.End
	}
	return a
}
