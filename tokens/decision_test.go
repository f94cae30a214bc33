package tokens_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// at returns an id that was minted by worker at an instant.
func at(minted time.Time, worker int64) idgen.ID {
	return idgen.ID(minted.UnixMilli()<<sequenceBits | worker<<12)
}

// TestRefusalsWithoutIO: tokens with a correct tag that cannot be alive cause no read of the store.
func TestRefusalsWithoutIO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) {
			c.Worker = func(id idgen.ID) (int64, bool) {
				worker, _ := workerOf(id)
				return worker, worker < 1000
			}
		})
		for _, r := range []tokens.Rule{
			tokens.BeforeRule(time.Now().Add(-90 * time.Minute)),
			tokens.WorkerRule(3, time.Now().Add(-20*time.Minute), time.Now().Add(-10*time.Minute)),
		} {
			if _, err := g.AddRule(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Now()
		const longest = 2 * time.Hour // as newGate says
		before := g.store.Calls("")
		for _, test := range []struct {
			name   string
			id     idgen.ID
			reason string
		}{
			{"minted further ahead than ceilings are", at(now.Add(5001*time.Millisecond), 1), "future"},
			{"minted in a thousand years", at(now.Add(8000*time.Hour), 1), "future"},
			{"a worker that the layout cannot have", at(now, 1000), "worker"},
			{"older than any lifetime", at(now.Add(-longest-time.Minute-time.Millisecond), 1), "too_old"},
			{"before the instant", at(now.Add(-90*time.Minute-time.Millisecond), 1), "revoked"},
			{"by the worker in the interval", at(now.Add(-20*time.Minute), 3), "revoked"},
		} {
			g.want(t, test.name, forge(t, test.id), test.reason)
		}
		if n := g.store.Calls("") - before; n != 0 {
			t.Errorf("%d calls of the store, want 0", n)
		}
		for _, test := range []struct {
			name string
			id   idgen.ID
		}{
			{"minted a second ahead", at(now.Add(time.Second), 1)},
			{"by the worker at the end of the interval", at(now.Add(-10*time.Minute), 3)},
			{"by another worker in the interval", at(now.Add(-20*time.Minute), 4)},
			{"after the instant", at(now.Add(-90*time.Minute), 1)},
		} {
			g.want(t, test.name, forge(t, test.id), "unknown") // the store was asked
		}
	})
}

func TestNotTooOldByAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		g.want(t, "as old as can be", forge(t, at(time.Now().Add(-2*time.Hour-time.Minute), 1)), "unknown")
		g.want(t, "a millisecond older", forge(t, at(time.Now().Add(-2*time.Hour-time.Minute-time.Millisecond), 1)), "too_old")
		// Another gateway permits more since the rules were confirmed last.
		g.confirmAt(time.Now().Add(-cacheTTL - time.Nanosecond))
		g.want(t, "without confirmation", forge(t, at(time.Now().Add(-3*time.Hour), 1)), "unavailable")
	})
}

func TestRulesReachCachedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		other := grant
		other.Client = "other"
		g.policy.set("other", &other.Scope)
		mine, token := g.issue(t, grant)
		theirs, _ := g.issue(t, other)
		g.want(t, "mine", mine, "ok")
		g.want(t, "theirs", theirs, "ok")
		loads := g.loads()
		r, err := g.RevokeClient(t.Context(), grant.Client, "admin", "a leak")
		if err != nil || r.By != "admin" || r.Why != "a leak" || r.Generation == 0 {
			t.Fatalf("RevokeClient = %+v, %v, want the rule", r, err)
		}
		g.want(t, "mine, revoked", mine, "revoked")
		g.want(t, "theirs", theirs, "ok")
		if g.loads() != loads {
			t.Errorf("%d loads, want the rule to be checked after the cache", g.loads()-loads)
		}
		if got, err := g.Lookup(t.Context(), token.ID); !errors.Is(err, tokens.ErrRevoked) || got.Client != grant.Client {
			t.Errorf("Lookup = %+v, %v, want the token and ErrRevoked", got, err)
		}
		again, fresh := g.issue(t, grant)
		if fresh.Generation != r.Generation {
			t.Errorf("a new token has generation %d, want %d", fresh.Generation, r.Generation)
		}
		g.want(t, "a token issued afterwards", again, "ok")
		if set := g.Revocations(); len(set.Rules) != 1 || set.Rules[0].ID != r.ID {
			t.Errorf("Revocations = %+v, want the one rule", set)
		}
		time.Sleep(time.Millisecond) // until is exclusive
		if _, err := g.AddRule(t.Context(), tokens.WorkerRule(7, time.Now().Add(-time.Hour), time.Now())); err != nil {
			t.Fatal(err)
		}
		g.want(t, "everything of the worker", theirs, "revoked")
		if _, err := g.AddRule(t.Context(), tokens.BeforeRule(time.Now().Add(time.Hour))); !errors.Is(err, tokens.ErrRuleInFuture) {
			t.Errorf("AddRule with an instant to come = %v, want ErrRuleInFuture", err)
		}
	})
}

// TestGrantGeneration: what is known of a client beside the rules counts too.
func TestGrantGeneration(t *testing.T) {
	g := newGate(t, nil)
	gr := grant
	gr.Generation = 17
	if _, token := g.issue(t, gr); token.Generation != 17 {
		t.Errorf("the token has generation %d, want the grant's 17", token.Generation)
	}
	for range 20 {
		if _, err := g.RevokeClient(t.Context(), grant.Client, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, token := g.issue(t, gr); token.Generation <= 17 {
		t.Errorf("the token has generation %d, want that of the rules", token.Generation)
	}
}

// TestNoTokenOutlivesTheRules: Issue refuses a lifetime after which the token would be refused as
// too old.
func TestNoTokenOutlivesTheRules(t *testing.T) {
	g := newGate(t, nil)
	gr := grant
	gr.TTL = 2 * time.Hour // as newGate says
	g.issue(t, gr)
	gr.TTL += time.Millisecond
	if _, _, err := g.Issue(t.Context(), gr); err == nil || errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Issue for longer than the longest lifetime = %v, want a plain error", err)
	}
}

func TestLookup(t *testing.T) {
	g := newGate(t, nil)
	_, token := g.issue(t, grant)
	got, err := g.Lookup(t.Context(), token.ID)
	if err != nil || got.ID != token.ID || !got.IssuedAt.Equal(token.IssuedAt) || got.Scope != token.Scope {
		t.Errorf("Lookup = %+v, %v, want %+v", got, err, token)
	}
	g.policy.set(grant.Client, nil)
	if got, err := g.Lookup(t.Context(), token.ID); !errors.Is(err, tokens.ErrClient) || got.ID != token.ID {
		t.Errorf("Lookup without its client = %+v, %v, want the token and ErrClient", got, err)
	}
	for _, id := range []idgen.ID{4711, -1} {
		if got, err := g.Lookup(t.Context(), id); !errors.Is(err, tokens.ErrUnknown) || got.ID != 0 {
			t.Errorf("Lookup(%d) = %+v, %v, want ErrUnknown", id, got, err)
		}
	}
	g.store.Fail(func(string) error { return errors.New("down") })
	if _, err := g.Lookup(t.Context(), token.ID); !errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Lookup with the store down = %v, want ErrUnavailable", err)
	}
}

func TestNothingIsDecidedWithoutRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, _ := g.issue(t, grant)
		g.want(t, "confirmed", text, "ok")
		// Not confirmed for as long as the bound: still good. Longer: not.
		g.confirmAt(time.Now().Add(-cacheTTL))
		g.want(t, "at the bound", text, "ok")
		g.confirmAt(time.Now().Add(-cacheTTL - time.Nanosecond))
		g.want(t, "beyond the bound", text, "unavailable")
		if _, _, err := g.Issue(t.Context(), grant); !errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("Issue = %v, want ErrUnavailable: the token might be born revoked", err)
		}
		g.want(t, "forged", damaged(text, 40), "forged") // needs no rules
		if err := g.Revoke(t.Context(), text, grant.Client); err != nil {
			t.Errorf("Revoke = %v, want nil: it needs no rules", err)
		}

		fresh := tokens.NewRules(tokens.RulesConfig{Store: g.store})
		s := tokens.NewService(tokens.Config{
			Store: g.store, Keys: tokens.FixedKeyring(gateKey), IDs: g.ids, MintTime: mintTime, Rules: fresh,
		})
		if _, err := s.Validate(t.Context(), text); !errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("Validate before the rules are loaded = %v, want ErrUnavailable", err)
		}
		if _, _, err := s.Issue(t.Context(), grant); !errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("Issue before the rules are loaded = %v, want ErrUnavailable", err)
		}
	})
}

// TestConfirmationRunsOutDuringALookUp: the time at the end of the decision counts.
func TestConfirmationRunsOutDuringALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, _ := g.issue(t, grant)
		g.lagging.lag.Store(int64(100 * time.Millisecond))
		g.confirmAt(time.Now().Add(-cacheTTL + 50*time.Millisecond))
		g.want(t, "a decision that ends beyond the bound", text, "unavailable")
	})
}

func TestBound(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		0: time.Second, 100 * time.Millisecond: time.Second, time.Second: time.Second, time.Minute: time.Minute,
	} {
		g := newGate(t, func(c *tokens.Config) { c.CacheTTL = ttl })
		if got := g.Bound(); got != want {
			t.Errorf("Bound with CacheTTL %s = %s, want %s", ttl, got, want)
		}
	}
}

func TestClientPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, token := g.issue(t, grant)
		scopes := func() scope.List {
			t.Helper()
			got, err := g.Validate(t.Context(), text)
			if err != nil {
				t.Fatalf("Validate = %v, want the token", err)
			}
			return got.Scope
		}
		if got := scopes(); got != grant.Scope {
			t.Errorf("scope = %q, want %q", got, grant.Scope)
		}
		less, more := scope.Of("orders.write", "billing"), scope.Of("billing", "orders.write", "orders.read")
		g.policy.set(grant.Client, &less)
		if got := scopes(); got != "orders.write" {
			t.Errorf("scope = %q after one was taken away, want what is left", got)
		}
		g.policy.set(grant.Client, &more)
		if got := scopes(); got != grant.Scope {
			t.Errorf("scope = %q after more was given, want what was granted, %q", got, grant.Scope)
		}
		g.policy.set(grant.Client, nil)
		g.want(t, "without its client", text, "client")
		// Unconfirmed data must not cause a 401.
		g.confirmAt(time.Now().Add(-time.Hour))
		g.want(t, "without its client and without confirmation", text, "unavailable")
		g.confirmAt(time.Time{})
		g.policy.set(grant.Client, &grant.Scope)
		if got := scopes(); got != grant.Scope || g.loads() != 1 {
			t.Errorf("scope = %q after %d loads, want all of it again and one load", got, g.loads())
		}
		if token.Scope != grant.Scope {
			t.Errorf("the issued token has changed")
		}
	})
}

// TestFailStatic goes through an outage of the store with fail-static on.
func TestFailStatic(t *testing.T) {
	const further = time.Minute
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.FailStatic = further })
		known, token := g.issue(t, grant)
		short := grant
		short.TTL = 30 * time.Second
		dying, _ := g.issue(t, short)
		doomed, _ := g.issue(t, grant)
		never, _ := g.issue(t, grant)
		for _, text := range []string{known, dying, doomed} {
			g.want(t, "before", text, "ok")
		}
		begun := time.Now()
		g.confirmAt(begun)
		g.store.Fail(func(string) error { return errors.New("down") })

		time.Sleep(cacheTTL - time.Nanosecond)
		g.want(t, "in its normal life", known, "ok")
		if len(g.static) != 0 || g.uses != 0 {
			t.Errorf("fail-static begins too early: %v, %d uses", g.static, g.uses)
		}
		time.Sleep(time.Nanosecond)
		g.want(t, "after its normal life", known, "ok")
		g.want(t, "again", known, "ok")
		if !slices.Equal(g.static, []bool{true}) || g.uses != 2 {
			t.Errorf("fail-static is told %v and used %d times, want it told once and used twice", g.static, g.uses)
		}
		g.want(t, "not in the cache", never, "unavailable")
		if _, _, err := g.Issue(t.Context(), grant); !errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("Issue = %v, want ErrUnavailable", err)
		}
		// Rules that come by another way count.
		worker := tokens.ClientRule("nobody")
		worker.Generation, worker.End = 1, time.Now().Add(time.Hour)
		g.rules.Merge(tokens.RuleSet{Rules: []tokens.Rule{worker}})
		g.want(t, "not matched by the rule", known, "ok")

		time.Sleep(time.Until(begun.Add(30 * time.Second)))
		g.want(t, "expired", dying, "expired") // which needs no store to be known
		g.Dropped(token.ID)
		g.want(t, "known to be dropped", known, "unavailable")
		g.want(t, "another one", doomed, "ok")
		rule := tokens.BeforeRule(time.Now())
		rule.End = time.Now().Add(time.Hour)

		time.Sleep(time.Until(begun.Add(cacheTTL+further)) - time.Nanosecond)
		g.want(t, "at the end", doomed, "ok")
		time.Sleep(time.Nanosecond)
		g.want(t, "after the end", doomed, "unavailable")

		g.store.Fail(nil)
		g.confirmAt(time.Time{})
		g.want(t, "the store is back", known, "ok")
		if !slices.Equal(g.static, []bool{true}) {
			t.Errorf("fail-static is told %v, want it not over within a second of its last use", g.static)
		}
		time.Sleep(cacheTTL)
		g.want(t, "later", known, "ok")
		if !slices.Equal(g.static, []bool{true, false}) {
			t.Errorf("fail-static is told %v, want its end", g.static)
		}
		g.rules.Merge(tokens.RuleSet{Rules: []tokens.Rule{rule}})
		g.want(t, "revoked", doomed, "revoked")
	})
}

// TestFailStaticServesNoRevokedToken: with unconfirmed rules, fail-static accepts no token that was
// revoked by a rule or by deleting its record.
func TestFailStaticServesNoRevokedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.FailStatic = time.Minute })
		ruled, _ := g.issue(t, grant)
		other := grant
		other.Client = "other"
		g.policy.set("other", &other.Scope)
		deleted, token := g.issue(t, other)
		kept, _ := g.issue(t, other)
		fresh, _ := g.issue(t, other)
		for _, text := range []string{ruled, deleted, kept} {
			g.want(t, "before", text, "ok")
		}
		if _, err := g.RevokeClient(t.Context(), grant.Client, "", ""); err != nil {
			t.Fatal(err)
		}
		if err := g.store.Delete(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		g.confirmAt(time.Now())
		time.Sleep(cacheTTL + time.Second) // the feed is down, the store is not
		g.want(t, "matched by a rule", ruled, "revoked")
		g.want(t, "without a record", deleted, "unknown")
		g.store.Fail(func(string) error { return errors.New("down") })
		g.want(t, "without a record, and the store is gone", deleted, "unavailable")
		g.store.Fail(nil)
		g.want(t, "good", kept, "ok")
		g.policy.set("other", nil)
		g.want(t, "without its client, which may be back", kept, "unavailable")
		g.policy.set("other", &other.Scope)
		g.want(t, "never seen", fresh, "unavailable")
		g.want(t, "never seen, again", fresh, "unavailable") // nor was it put into the cache
		if g.uses != 1 {
			t.Errorf("%d uses of fail-static, want 1", g.uses)
		}
		time.Sleep(time.Minute)
		g.want(t, "too long", kept, "unavailable")
	})
}

// TestDroppedWhileTheStoreIsAsked: an entry that was cached at the beginning of a read does not
// count if it was dropped meanwhile.
func TestDroppedWhileTheStoreIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.FailStatic = time.Minute })
		text, token := g.issue(t, grant)
		g.want(t, "before", text, "ok")
		time.Sleep(cacheTTL)
		g.store.Fail(func(string) error { return errors.New("down") })
		g.want(t, "by fail-static", text, "ok")
		g.lagging.lag.Store(int64(100 * time.Millisecond))
		var wg sync.WaitGroup
		wg.Go(func() { g.want(t, "dropped meanwhile", text, "unavailable") })
		time.Sleep(50 * time.Millisecond)
		g.Dropped(token.ID)
		wg.Wait()
	})
}

// TestStrandedDuringALookUp: fail-static is only for tokens that were cached.
func TestStrandedDuringALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.FailStatic = time.Minute })
		text, _ := g.issue(t, grant)
		g.lagging.lag.Store(int64(100 * time.Millisecond))
		g.confirmAt(time.Now().Add(-cacheTTL + 50*time.Millisecond))
		g.want(t, "a decision that ends beyond the bound", text, "unavailable")
	})
}

func TestFailStaticIsOffByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, _ := g.issue(t, grant)
		g.want(t, "before", text, "ok")
		g.store.Fail(func(string) error { return errors.New("down") })
		g.want(t, "cached", text, "ok")
		time.Sleep(cacheTTL)
		g.want(t, "a TTL later", text, "unavailable")
		g.store.Fail(nil)
		g.want(t, "the store is back", text, "ok")
	})
}
