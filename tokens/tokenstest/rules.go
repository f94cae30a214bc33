package tokenstest

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"snowgate/tokens"
)

// NewRuleStoreFunc returns an empty rule store for a test, and a function that reads the clock of
// the store.
type NewRuleStoreFunc func(t *testing.T) (store tokens.RuleStore, now func() time.Time)

// TestRuleStore checks that a store keeps the contract of [tokens.RuleStore].
func TestRuleStore(t *testing.T, newStore NewRuleStoreFunc) {
	t.Run("an empty store has no rules", func(t *testing.T) {
		store, _ := newStore(t)
		wantRules(t, store, tokens.RuleSet{})
	})
	t.Run("what was added is loaded", func(t *testing.T) { testRulesRoundTrip(t, newStore) })
	t.Run("the same rule twice is one", func(t *testing.T) { testRuleTwice(t, newStore) })
	t.Run("generations only grow", func(t *testing.T) { testGenerations(t, newStore) })
	t.Run("bad rules are refused", func(t *testing.T) { testBadRules(t, newStore) })
	t.Run("what was lost is restored", func(t *testing.T) { testRestore(t, newStore) })
	t.Run("restoring lowers nothing", func(t *testing.T) { testRestoreLowersNothing(t, newStore) })
	t.Run("ended rules go", func(t *testing.T) { testEndedRules(t, newStore) })
}

const longest = 2 * time.Hour

func testRulesRoundTrip(t *testing.T, newStore NewRuleStoreFunc) {
	store, now := newStore(t)
	restore(t, store, tokens.RuleSet{Longest: longest})
	at := time.UnixMilli(now().UnixMilli()).Add(-time.Hour)
	var want []tokens.Rule
	for _, r := range []tokens.Rule{
		tokens.WorkerRule(1023, at.Add(-time.Hour), at),
		tokens.BeforeRule(at),
		tokens.ClientRule("orders.worker~1_-"),
	} {
		r.By, r.Why = "admin", "a \"leak\"\n— é"
		before := now()
		stored, revision := addRule(t, store, r)
		if set := loadRules(t, store); set.Revision != revision {
			t.Errorf("LoadRules has revision %d, AddRule returned %d", set.Revision, revision)
		}
		last := r.Until
		if r.Kind == tokens.RuleClient {
			last = stored.Created
			if stored.Generation != revision {
				t.Errorf("the generation is %d, want the revision %d", stored.Generation, revision)
			}
			r.Generation = revision
		}
		if stored.Created.Before(before.Add(-time.Second)) || stored.Created.After(now().Add(time.Second)) {
			t.Errorf("Created is %s, want the store's clock, %s", stored.Created, before)
		}
		if least := ruleEnd(last, longest); stored.End.Before(least.Add(-time.Millisecond)) || stored.End.After(least.Add(time.Second)) {
			t.Errorf("End of %s is %s, want %s", r.ID, stored.End, least)
		}
		r.Created, r.End = stored.Created, stored.End
		want = append(want, r)
	}
	wantRules(t, store, tokens.RuleSet{Longest: longest, Rules: want})
}

func testRuleTwice(t *testing.T, newStore NewRuleStoreFunc) {
	store, now := newStore(t)
	at := now().Add(-time.Minute)
	first, before := addRule(t, store, tokens.BeforeRule(at))
	again, after := addRule(t, store, tokens.BeforeRule(at))
	if first.ID != again.ID || !first.Created.Equal(again.Created) || after < before {
		t.Errorf("AddRule again = %+v, %d, want %+v kept", again, after, first)
	}
	wantRules(t, store, tokens.RuleSet{Rules: []tokens.Rule{again}})
}

func testGenerations(t *testing.T, newStore NewRuleStoreFunc) {
	const writers = 8
	store, _ := newStore(t)
	var wg sync.WaitGroup
	got := make([]uint64, writers)
	for i := range writers {
		wg.Go(func() {
			r, _, err := store.AddRule(t.Context(), tokens.ClientRule("orders-worker"))
			if err != nil {
				t.Errorf("AddRule = %v, want nil", err)
			}
			got[i] = r.Generation
		})
	}
	wg.Wait()
	slices.Sort(got)
	if len(slices.Compact(slices.Clone(got))) != writers || got[0] == 0 {
		t.Errorf("generations are %d, want them different and above 0", got)
	}
	set := loadRules(t, store)
	if len(set.Rules) != 1 || set.Rules[0].Generation != got[writers-1] {
		t.Errorf("LoadRules = %+v, want the greatest generation, %d", set.Rules, got[writers-1])
	}
}

func testBadRules(t *testing.T, newStore NewRuleStoreFunc) {
	store, now := newStore(t)
	later := now().Add(time.Minute)
	moved := tokens.BeforeRule(now().Add(-time.Hour))
	moved.Until = moved.Until.Add(time.Second)
	for name, test := range map[string]struct {
		rule tokens.Rule
		want error
	}{
		"no kind":             {tokens.Rule{ID: "x"}, tokens.ErrRule},
		"no client":           {tokens.ClientRule(""), tokens.ErrRule},
		"nothing in between":  {tokens.WorkerRule(1, time.UnixMilli(1000), time.UnixMilli(1000)), tokens.ErrRule},
		"a negative worker":   {tokens.WorkerRule(-1, now().Add(-time.Hour), now()), tokens.ErrRule},
		"another rule's id":   {moved, tokens.ErrRule},
		"before later":        {tokens.BeforeRule(later), tokens.ErrRuleInFuture},
		"a worker till later": {tokens.WorkerRule(1, now(), later), tokens.ErrRuleInFuture},
	} {
		if _, _, err := store.AddRule(t.Context(), test.rule); !errors.Is(err, test.want) || errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("%s: AddRule = %v, want %v", name, err, test.want)
		}
	}
	wantRules(t, store, tokens.RuleSet{})
}

func testRestore(t *testing.T, newStore NewRuleStoreFunc) {
	store, now := newStore(t)
	client := tokens.ClientRule("orders-worker")
	client.Generation = 41
	worker := tokens.WorkerRule(3, now().Add(-time.Hour), now().Add(-time.Minute))
	worker.By, worker.Why = "admin", "stolen"
	set := tokens.RuleSet{Revision: 57, Longest: longest, Rules: []tokens.Rule{client, worker}}
	for i := range set.Rules {
		set.Rules[i].Created = time.UnixMilli(now().UnixMilli())
		set.Rules[i].End = ruleEnd(now(), longest)
	}
	for range 2 { // again changes nothing
		restore(t, store, set)
		wantRules(t, store, set)
	}
	if got := loadRules(t, store).Revision; got <= 57 {
		t.Errorf("the revision is %d, want it above the 57 that is restored: something changed", got)
	}
	if r, _ := addRule(t, store, tokens.ClientRule("orders-worker")); r.Generation <= 57 {
		t.Errorf("the next generation is %d, want it above everything restored", r.Generation)
	}
}

func testRestoreLowersNothing(t *testing.T, newStore NewRuleStoreFunc) {
	store, _ := newStore(t)
	restore(t, store, tokens.RuleSet{Longest: longest})
	addRule(t, store, tokens.ClientRule("other"))
	kept, _ := addRule(t, store, tokens.ClientRule("orders-worker"))
	older := kept
	older.Generation, older.End = kept.Generation-1, kept.End.Add(-time.Minute)
	before := loadRules(t, store)
	restore(t, store, tokens.RuleSet{Revision: 1, Longest: time.Minute, Rules: []tokens.Rule{older}})
	wantRules(t, store, before)
	if after := loadRules(t, store); after.Revision < before.Revision {
		t.Errorf("the revision went from %d to %d", before.Revision, after.Revision)
	}
}

func testEndedRules(t *testing.T, newStore NewRuleStoreFunc) {
	store, now := newStore(t)
	over, live := tokens.ClientRule("over"), tokens.ClientRule("live")
	over.Generation, live.Generation = 1, 2
	over.Created, live.Created = time.UnixMilli(now().UnixMilli()), time.UnixMilli(now().UnixMilli())
	over.End = time.UnixMilli(now().UnixMilli()).Add(-tokens.RuleGrace - time.Second)
	live.End = time.UnixMilli(now().UnixMilli()).Add(-tokens.RuleGrace + time.Hour)
	restore(t, store, tokens.RuleSet{Revision: 2, Rules: []tokens.Rule{over, live}})
	r, _ := addRule(t, store, tokens.ClientRule("another")) // every write prunes
	wantRules(t, store, tokens.RuleSet{Rules: []tokens.Rule{live, r}})
}

func addRule(t *testing.T, store tokens.RuleStore, r tokens.Rule) (tokens.Rule, uint64) {
	t.Helper()
	stored, revision, err := store.AddRule(t.Context(), r)
	if err != nil {
		t.Fatalf("AddRule(%s) = %v, want nil", r.ID, err)
	}
	return stored, revision
}

func restore(t *testing.T, store tokens.RuleStore, set tokens.RuleSet) {
	t.Helper()
	if err := store.RestoreRules(t.Context(), set); err != nil {
		t.Fatalf("RestoreRules = %v, want nil", err)
	}
}

func loadRules(t *testing.T, store tokens.RuleStore) tokens.RuleSet {
	t.Helper()
	set, err := store.LoadRules(t.Context())
	if err != nil {
		t.Fatalf("LoadRules = %v, want nil", err)
	}
	return set
}

// wantRules compares all but the revision, and By and Why of rules for clients, which a store may
// drop.
func wantRules(t *testing.T, store tokens.RuleStore, want tokens.RuleSet) {
	t.Helper()
	got := loadRules(t, store)
	got.Revision, want.Revision = 0, 0
	for _, set := range []*tokens.RuleSet{&got, &want} {
		set.Rules = slices.Clone(set.Rules)
		slices.SortFunc(set.Rules, func(a, b tokens.Rule) int { return cmp.Compare(a.ID, b.ID) })
		for i := range set.Rules {
			if r := &set.Rules[i]; r.Kind == tokens.RuleClient {
				r.By, r.Why, r.Created = "", "", time.Time{}
			}
		}
	}
	if len(got.Rules) == 0 && len(want.Rules) == 0 {
		got.Rules, want.Rules = nil, nil
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("LoadRules differs (-want +got):\n%s", diff)
	}
}

// ruleEnd returns the [tokens.Rule.End] of a rule whose last token was minted before the given
// instant: Until, or the instant of writing for a RuleClient. longest is the longest lifetime that
// any gateway ever permitted.
func ruleEnd(last time.Time, longest time.Duration) time.Time {
	end := last.Add(longest + tokens.RuleGrace)
	return time.UnixMilli(end.Add(time.Millisecond - time.Nanosecond).UnixMilli())
}
