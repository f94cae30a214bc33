package tokens_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

// naiveRules is the specification: a list of rules, asked one by one.
type naiveRules struct{ rules []tokens.Rule }

// add ignores what is over already.
func (n *naiveRules) add(now time.Time, rules ...tokens.Rule) {
	for _, r := range rules {
		if now.Before(r.End.Add(tokens.RuleGrace)) {
			n.rules = append(n.rules, r)
		}
	}
}

func (n *naiveRules) revoked(id idgen.ID, scheme idgen.Scheme, client string, generation uint64, now time.Time) bool {
	parts, err := scheme.Decompose(id)
	if err != nil {
		panic(err)
	}
	worker := scheme.Layout().WorkerIndex(idgen.Worker{Datacenter: parts.Datacenter, Number: parts.Worker})
	for _, r := range n.rules {
		switch r.Kind {
		case tokens.RuleClient:
			if client == r.Client && generation < r.Generation && now.Before(n.end(r.Client)) {
				return true
			}
		case tokens.RuleWorker:
			if worker == r.Worker && !parts.Time.Before(r.From) && parts.Time.Before(r.Until) {
				return true
			}
		case tokens.RuleBefore:
			if parts.Time.Before(r.Until) {
				return true
			}
		}
	}
	return false
}

// end returns the latest end of the rules for a client.
func (n *naiveRules) end(client string) (end time.Time) {
	for _, r := range n.rules {
		if r.Kind == tokens.RuleClient && r.Client == client && r.End.After(end) {
			end = r.End
		}
	}
	return end
}

// prune drops what a rule set may forget.
func (n *naiveRules) prune(now time.Time) {
	n.rules = slices.DeleteFunc(n.rules, func(r tokens.Rule) bool {
		end := r.End
		if r.Kind == tokens.RuleClient {
			end = n.end(r.Client)
		}
		return !now.Before(end.Add(tokens.RuleGrace))
	})
}

// randomRule returns a rule about one of few workers, clients and milliseconds,
// so that rules meet one another.
func randomRule(r *rand.Rand, origin time.Time) tokens.Rule {
	at := func() time.Time { return origin.Add(time.Duration(r.IntN(50)) * time.Millisecond) }
	var rule tokens.Rule
	switch r.IntN(8) {
	case 0:
		rule = tokens.BeforeRule(origin.Add(time.Duration(r.IntN(12)) * time.Millisecond))
	case 1, 2:
		rule = tokens.ClientRule("c" + strconv.Itoa(r.IntN(4)))
		rule.Generation = 1 + r.Uint64N(20)
	default:
		from, until := at(), at()
		if until.Before(from) {
			from, until = until, from
		}
		rule = tokens.WorkerRule(r.Int64N(6), from, until.Add(time.Millisecond))
	}
	rule.Created = at()
	rule.End = origin.Add(time.Duration(r.IntN(10)) * time.Hour)
	rule.By, rule.Why = strconv.Itoa(r.IntN(3)), strconv.Itoa(r.IntN(3))
	return rule
}

var ruleLayouts = []string{
	"time:41,worker:10,sequence:12",
	"time:41,datacenter:2,worker:5,sequence:12,rollback:3",
	"time:41,datacenter:3,worker:5,rollback:2,sequence:12",
	"time:41,sequence:8,worker:4,datacenter:1",
	"time:45,sequence:18",
}

// TestRulesAgreeWithNaiveModel compares the index with a list of rules for all ids near their
// limits, for several layouts. The rules are merged in any order and more than once, and some end
// meanwhile.
func TestRulesAgreeWithNaiveModel(t *testing.T) {
	for round := range 300 {
		r := rand.New(rand.NewPCG(7, uint64(round)))
		layout, err := idgen.ParseLayout(ruleLayouts[round%len(ruleLayouts)])
		if err != nil {
			t.Fatal(err)
		}
		scheme, err := idgen.NewScheme(layout, start.Truncate(time.Millisecond).Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		origin := start.Truncate(time.Millisecond)
		clock := tokenstest.NewClock(origin)
		rules := newRules(clock, nil)
		model := &naiveRules{}
		for range 12 {
			var batch []tokens.Rule
			for range r.IntN(6) {
				batch = append(batch, randomRule(r, origin))
			}
			if len(model.rules) > 0 { // and some that are known
				batch = append(batch, model.rules[r.IntN(len(model.rules))])
			}
			model.prune(clock.Now())
			model.add(clock.Now(), batch...)
			rules.Merge(tokens.RuleSet{Rules: batch})
			compareRules(t, r, rules, model, scheme, origin, clock.Now())
			if r.IntN(4) == 0 {
				clock.Advance(time.Hour)
				model.prune(clock.Now())
				rules.Merge(tokens.RuleSet{}) // every merge prunes
			}
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
		}
	}
}

func compareRules(t *testing.T, r *rand.Rand, rules *tokens.Rules, model *naiveRules, scheme idgen.Scheme, origin, now time.Time) {
	t.Helper()
	workerOf := tokens.WorkerOf(scheme)
	for ms := -1; ms <= 51; ms++ {
		worker := scheme.Layout().Worker(r.Int64N(min(7, scheme.Layout().Workers())))
		id, err := scheme.Compose(idgen.Parts{
			Time:       origin.Add(time.Duration(ms) * time.Millisecond),
			Datacenter: worker.Datacenter, Worker: worker.Number,
			Rollback: r.Int64N(scheme.Layout().Max(idgen.FieldRollback) + 1),
			Sequence: r.Int64N(scheme.Layout().Max(idgen.FieldSequence) + 1),
		})
		if err != nil {
			t.Fatal(err)
		}
		index, ok := workerOf(id)
		if !ok {
			t.Fatalf("WorkerOf(%v) finds no worker", id)
		}
		token := tokens.Token{ID: id, Client: "c" + strconv.Itoa(r.IntN(5)), Generation: r.Uint64N(22)}
		got := rules.CheckOrigin(tokens.Origin{Minted: scheme.Time(id), Worker: index}) != nil || rules.CheckClient(&token) != nil
		if want := model.revoked(id, scheme, token.Client, token.Generation, now); got != want {
			t.Errorf("revoked(worker %d at %+d ms, %s generation %d) = %t, want %t\nrules: %+v",
				index, ms, token.Client, token.Generation, got, want, model.rules)
		}
	}
}

// TestMergeOrderDoesNotMatter: gateways that learn the same rules in any order and in any portions
// have the same set in the end.
func TestMergeOrderDoesNotMatter(t *testing.T) {
	origin := start.Truncate(time.Millisecond)
	for round := range 200 {
		r := rand.New(rand.NewPCG(8, uint64(round)))
		var all []tokens.Rule
		for range 1 + r.IntN(30) {
			all = append(all, randomRule(r, origin))
		}
		clock := tokenstest.NewClock(origin.Add(time.Duration(r.IntN(10)) * time.Hour))
		var want tokens.RuleSet
		for try := range 4 {
			rules := newRules(clock, nil)
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for rest := all; len(rest) > 0; {
				n := 1 + r.IntN(len(rest))
				rules.Merge(tokens.RuleSet{Revision: uint64(n), Rules: rest[:n]})
				rest = rest[n:]
			}
			rules.Merge(tokens.RuleSet{Revision: 99, Longest: time.Hour, Rules: all[:1]})
			if got := rules.Set(); try == 0 {
				want = got
			} else if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("round %d: another order gives another set (-first +other):\n%s", round, diff)
			}
		}
	}
}

// newRules returns rules on a fake store, or on the given one.
func newRules(clock *tokenstest.Clock, store tokens.RuleStore) *tokens.Rules {
	if store == nil {
		store = tokenstest.NewStore(clock.Now)
	}
	return tokens.NewRules(tokens.RulesConfig{Store: store, Longest: 2 * time.Hour, Now: clock.Now})
}

func TestRulesEdges(t *testing.T) {
	clock := tokenstest.NewClock(start)
	rules := newRules(clock, nil)
	from, until := start.Add(-time.Minute).Truncate(time.Millisecond), start.Truncate(time.Millisecond)
	adjacent := tokens.WorkerRule(3, until, until.Add(time.Millisecond))
	before := tokens.BeforeRule(from.Add(-time.Hour))
	worker := tokens.WorkerRule(3, from, until)
	for _, r := range []*tokens.Rule{&adjacent, &before, &worker} {
		r.End = start.Add(time.Hour)
	}
	rules.Merge(tokens.RuleSet{Rules: []tokens.Rule{adjacent, before, worker}})
	tests := []struct {
		name   string
		minted time.Time
		worker int64
		want   error
	}{
		{"the last millisecond of before", from.Add(-time.Hour - time.Millisecond), 9, tokens.ErrRevoked},
		{"the instant itself is not before it", from.Add(-time.Hour), 9, nil},
		{"just before the interval", from.Add(-time.Millisecond), 3, nil},
		{"its first millisecond", from, 3, tokens.ErrRevoked},
		{"the same of the neighbour", from, 2, nil},
		{"its last millisecond", until.Add(-time.Millisecond), 3, tokens.ErrRevoked},
		{"the adjacent one", until, 3, tokens.ErrRevoked},
		{"after both", until.Add(time.Millisecond), 3, nil},
	}
	for _, test := range tests {
		if err := rules.CheckOrigin(tokens.Origin{Minted: test.minted, Worker: test.worker}); err != test.want {
			t.Errorf("%s: CheckOrigin = %v, want %v", test.name, err, test.want)
		}
	}
}

// TestRuleIDs: the id follows from the content, and fractions of a millisecond
// never make a rule miss a token.
func TestRuleIDs(t *testing.T) {
	at := time.UnixMilli(1786543210123)
	if got, want := tokens.WorkerRule(7, at.Add(time.Microsecond), at.Add(time.Microsecond)).ID, "worker-7-1786543210123-1786543210124"; got != want {
		t.Errorf("WorkerRule has the id %q, want %q", got, want)
	}
	if got, want := tokens.BeforeRule(at.Add(-time.Nanosecond)), tokens.BeforeRule(at); got != want {
		t.Errorf("BeforeRule a nanosecond earlier = %+v, want %+v", got, want)
	}
	if got, want := tokens.ClientRule("a.b").ID, "client-a.b"; got != want {
		t.Errorf("ClientRule has the id %q, want %q", got, want)
	}
}

func TestRuleCheck(t *testing.T) {
	now := time.UnixMilli(1786543210123).Add(300 * time.Microsecond)
	for name, test := range map[string]struct {
		rule tokens.Rule
		want error
	}{
		"now, to the millisecond": {tokens.BeforeRule(now), nil},
		"the next millisecond":    {tokens.BeforeRule(now.Add(time.Millisecond)), tokens.ErrRuleInFuture},
		"a worker until now":      {tokens.WorkerRule(0, now.Add(-time.Hour), now), nil},
		"a client":                {tokens.ClientRule("a"), nil},
		"before 1970":             {tokens.BeforeRule(time.UnixMilli(0)), tokens.ErrRule},
		"an interval backwards":   {tokens.WorkerRule(0, now, now.Add(-time.Hour)), tokens.ErrRule},
		"an unknown kind":         {tokens.Rule{Kind: "all", ID: "all"}, tokens.ErrRule},
	} {
		if err := test.rule.Check(now); !errors.Is(err, test.want) {
			t.Errorf("%s: Check = %v, want %v", name, err, test.want)
		}
	}
}

// TestRulesSurviveAStoreThatForgets: rules that the store has lost are written back, and a
// generation never falls below that of living tokens.
func TestRulesSurviveAStoreThatForgets(t *testing.T) {
	clock := tokenstest.NewClock(start)
	store := tokenstest.NewStore(clock.Now)
	rules := newRules(clock, store)
	refresh(t, rules)
	if store.Calls("RestoreRules") != 1 || rules.Longest() != 2*time.Hour {
		t.Errorf("the longest lifetime was told %d times, want once", store.Calls("RestoreRules"))
	}
	for range 5 {
		if _, err := rules.Add(t.Context(), tokens.ClientRule("a")); err != nil {
			t.Fatal(err)
		}
	}
	known := rules.Generation("a")
	store.Wipe()
	r, err := rules.Add(t.Context(), tokens.ClientRule("a"))
	if err != nil || r.Generation <= known || rules.Generation("a") != r.Generation {
		t.Errorf("Add after the store forgot = generation %d, %v, want it above %d", r.Generation, err, known)
	}
	if _, err := rules.Add(t.Context(), tokens.BeforeRule(start.Add(-time.Hour))); err != nil {
		t.Fatal(err)
	}
	want := rules.Set()
	store.Wipe()
	refresh(t, rules)
	newcomer := newRules(clock, store)
	refresh(t, newcomer)
	got := newcomer.Set()
	got.Revision, want.Revision = 0, 0
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("a newcomer learns less after the write-back (-want +got):\n%s", diff)
	}
	calls := store.Calls("RestoreRules")
	refresh(t, rules)
	refresh(t, newcomer)
	if n := store.Calls("RestoreRules") - calls; n != 0 {
		t.Errorf("%d write-backs although nothing is missing", n)
	}
}

// TestOlderGenerationInTheStore: a store that has returned to an older generation gets the newer
// one.
func TestOlderGenerationInTheStore(t *testing.T) {
	clock := tokenstest.NewClock(start)
	store := tokenstest.NewStore(clock.Now)
	rules := newRules(clock, store)
	refresh(t, rules)
	if _, err := rules.Add(t.Context(), tokens.ClientRule("a")); err != nil {
		t.Fatal(err)
	}
	rollback := store.Snapshot()
	if _, err := rules.Add(t.Context(), tokens.ClientRule("a")); err != nil {
		t.Fatal(err)
	}
	rollback()
	refresh(t, rules)
	newcomer := newRules(clock, store)
	refresh(t, newcomer)
	if got, want := newcomer.Generation("a"), rules.Generation("a"); got != want {
		t.Errorf("a newcomer learns generation %d, want %d", got, want)
	}
}

func refresh(t *testing.T, rules *tokens.Rules) {
	t.Helper()
	if err := rules.Refresh(t.Context()); err != nil {
		t.Fatalf("Refresh = %v, want nil", err)
	}
}

// TestRulesAreLoadedOnlyWhenTold: no decision is possible before the store has recorded the longest
// lifetime that the gateway permits.
func TestRulesAreLoadedOnlyWhenTold(t *testing.T) {
	clock := tokenstest.NewClock(start)
	store := tokenstest.NewStore(clock.Now)
	rules := newRules(clock, store)
	for _, op := range []string{"LoadRules", "RestoreRules"} {
		store.Fail(func(o string) error {
			if o == op {
				return errors.New("down")
			}
			return nil
		})
		if err := rules.Refresh(t.Context()); !errors.Is(err, tokens.ErrUnavailable) || rules.Loaded() || rules.Longest() != 0 {
			t.Errorf("Refresh without %s = %v, loaded %t; want ErrUnavailable", op, err, rules.Loaded())
		}
	}
	store.Fail(nil)
	if refresh(t, rules); !rules.Loaded() {
		t.Errorf("the rules are not loaded after a Refresh")
	}
}

// TestRevisionIsNotGuessed: the revision of a rule that this gateway wrote says nothing about
// earlier rules of other gateways.
func TestRevisionIsNotGuessed(t *testing.T) {
	clock := tokenstest.NewClock(start)
	store := tokenstest.NewStore(clock.Now)
	mine, theirs := newRules(clock, store), newRules(clock, store)
	refresh(t, mine)
	refresh(t, theirs)
	if _, err := theirs.Add(t.Context(), tokens.ClientRule("a")); err != nil {
		t.Fatal(err)
	}
	before := mine.Revision()
	if _, err := mine.Add(t.Context(), tokens.ClientRule("b")); err != nil {
		t.Fatal(err)
	}
	if got := mine.Revision(); got != before {
		t.Errorf("Revision = %d after a rule with a gap before it, want still %d", got, before)
	}
	refresh(t, mine)
	if mine.Generation("a") == 0 || mine.Revision() != before+2 {
		t.Errorf("after Refresh: generation %d, revision %d; want the other's rule", mine.Generation("a"), mine.Revision())
	}
	if _, err := mine.Add(t.Context(), tokens.ClientRule("c")); err != nil || mine.Revision() != before+3 {
		t.Errorf("Revision = %d after the next rule, %v, want %d", mine.Revision(), err, before+3)
	}
}

// brokenRules returns what it can read together with an error.
type brokenRules struct{ tokens.RuleStore }

func (b brokenRules) LoadRules(ctx context.Context) (tokens.RuleSet, error) {
	set, _ := b.RuleStore.LoadRules(ctx)
	return set, tokens.ErrUnavailable
}

func TestReadableRulesCount(t *testing.T) {
	clock := tokenstest.NewClock(start)
	store := tokenstest.NewStore(clock.Now)
	if _, _, err := store.AddRule(t.Context(), tokens.ClientRule("a")); err != nil {
		t.Fatal(err)
	}
	rules := newRules(clock, brokenRules{store})
	if err := rules.Refresh(t.Context()); !errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Refresh = %v, want ErrUnavailable", err)
	}
	if rules.Generation("a") == 0 || rules.Revision() != 0 || rules.Loaded() {
		t.Errorf("generation %d, revision %d, loaded %t; want the rule, and nothing more", rules.Generation("a"), rules.Revision(), rules.Loaded())
	}
}

func manyRules(n int) []tokens.Rule {
	r := rand.New(rand.NewPCG(1, 2))
	rules := make([]tokens.Rule, n)
	for i := range rules {
		switch i % 3 {
		case 0:
			rules[i] = tokens.ClientRule("client-" + strconv.Itoa(i))
			rules[i].Generation = uint64(i)
		default:
			from := start.Add(-time.Duration(1+r.IntN(100_000_000)) * time.Millisecond)
			rules[i] = tokens.WorkerRule(int64(i%512), from, from.Add(2*time.Millisecond))
		}
		rules[i].End = start.Add(time.Hour)
	}
	slices.SortFunc(rules, func(a, b tokens.Rule) int { return cmp.Compare(a.ID, b.ID) })
	return rules
}

// BenchmarkRules bounds what 10 000 rules cost each request.
func BenchmarkRules(b *testing.B) {
	clock := tokenstest.NewClock(start)
	rules := newRules(clock, nil)
	rules.Merge(tokens.RuleSet{Rules: manyRules(10_000)})
	token := tokens.Token{Client: "client-9", Generation: 100_000}
	origin := tokens.Origin{Minted: start.Add(-48 * time.Hour), Worker: 4}
	b.ReportAllocs()
	for b.Loop() {
		if rules.CheckOrigin(origin) != nil || rules.CheckClient(&token) != nil {
			b.Fatal("revoked")
		}
	}
}

// BenchmarkMerge is what one more rule costs beside 10 000.
func BenchmarkMerge(b *testing.B) {
	clock := tokenstest.NewClock(start)
	rules := newRules(clock, nil)
	all := manyRules(10_000)
	rules.Merge(tokens.RuleSet{Rules: all})
	for b.Loop() {
		rules.Merge(tokens.RuleSet{Rules: all[:1]})
	}
}

func TestWorkerOf(t *testing.T) {
	layout, err := idgen.ParseLayout("time:40,datacenter:2,worker:3,sequence:10")
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := idgen.NewScheme(layout, start.Truncate(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	workerOf := tokens.WorkerOf(scheme)
	id := idgen.ID(123<<15 | 2<<13 | 5<<10 | 7)
	if worker, ok := workerOf(id); worker != 2<<3|5 || !ok {
		t.Errorf("WorkerOf(datacenter 2, worker 5) = %d, %t, want 21", worker, ok)
	}
	for name, id := range map[string]idgen.ID{"a bit above the time": 1 << 55, "negative": -1} {
		if worker, ok := workerOf(id); ok {
			t.Errorf("WorkerOf(%s) = %d, want none", name, worker)
		}
	}
}

// TestUnknownRule: a rule of a kind that only a newer version knows keeps the gateway from deciding
// about the tokens that it may match, and about no others. It is reported once.
func TestUnknownRule(t *testing.T) {
	clock := tokenstest.NewClock(start)
	store := tokenstest.NewStore(clock.Now)
	minted := time.UnixMilli(start.UnixMilli())
	one := tokens.UnknownRule("scope-x", "scope", -1, minted.Add(-time.Hour), minted, `{"end":1,…}`)
	two := tokens.UnknownRule("rack-7", "rack", 3, time.UnixMilli(0), minted.Add(time.Hour), `{"end":2,…}`)
	one.End, two.End = start.Add(time.Hour), start.Add(2*time.Hour)
	if err := store.RestoreRules(t.Context(), tokens.RuleSet{Rules: []tokens.Rule{one, two}}); err != nil {
		t.Fatal(err)
	}
	var reported []string
	rules := tokens.NewRules(tokens.RulesConfig{
		Store: store, Longest: time.Hour, Now: clock.Now, OnUnknown: func(r tokens.Rule) { reported = append(reported, r.ID) },
	})
	refresh(t, rules)
	refresh(t, rules)
	if slices.Sort(reported); !slices.Equal(reported, []string{"rack-7", "scope-x"}) || rules.Unknown() != 2 || rules.Len() != 2 {
		t.Errorf("reported %q, %d of %d rules unknown; want both, once", reported, rules.Unknown(), rules.Len())
	}
	for name, test := range map[string]struct {
		origin tokens.Origin
		want   error
	}{
		"within the bounds of the first":  {tokens.Origin{Minted: minted.Add(-time.Millisecond), Worker: 1}, tokens.ErrUnavailable},
		"at its beginning":                {tokens.Origin{Minted: minted.Add(-time.Hour), Worker: 1}, tokens.ErrUnavailable},
		"earlier":                         {tokens.Origin{Minted: minted.Add(-time.Hour - time.Millisecond), Worker: 1}, nil},
		"later":                           {tokens.Origin{Minted: minted, Worker: 1}, nil},
		"later, by the second's worker":   {tokens.Origin{Minted: minted, Worker: 3}, tokens.ErrUnavailable},
		"after both, by the same worker":  {tokens.Origin{Minted: minted.Add(time.Hour), Worker: 3}, nil},
		"later, by another worker than 3": {tokens.Origin{Minted: minted, Worker: 0}, nil},
	} {
		if err := rules.CheckOrigin(test.origin); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: CheckOrigin = %v, want %v", name, err, test.want)
		}
	}
	// A rule of a known kind takes precedence: a revoked token is refused, and the error is not
	// ErrUnavailable.
	if _, err := rules.Add(t.Context(), tokens.BeforeRule(minted)); err != nil {
		t.Fatal(err)
	}
	if err := rules.CheckOrigin(tokens.Origin{Minted: minted.Add(-time.Minute)}); !errors.Is(err, tokens.ErrRevoked) {
		t.Errorf("CheckOrigin = %v, want ErrRevoked", err)
	}
	clock.Advance(time.Hour + tokens.RuleGrace)
	refresh(t, rules)
	if rules.Unknown() != 1 {
		t.Errorf("%d unknown rules are held after the first has ended, want 1", rules.Unknown())
	}
}
