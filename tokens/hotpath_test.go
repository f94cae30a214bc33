package tokens_test

import (
	"testing"
	"time"

	"snowgate/internal/scope"
	"snowgate/tokens"
)

// hotPath returns a gate with 10 000 rules, and a token that is in its cache.
func hotPath(t testing.TB) (*gate, string, tokens.Requirement) {
	t.Helper()
	confirmed := time.Now() // as a feed has it at hand, without a lock
	g := newGate(t, func(c *tokens.Config) {
		c.CacheTTL, c.Decisions = time.Hour, nil
		c.Confirmed = func() (time.Time, bool) { return confirmed, true }
	})
	rules := manyRules(10_000)
	for i := range rules {
		rules[i].End = time.Now().Add(time.Hour)
	}
	g.rules.Merge(tokens.RuleSet{Rules: rules})
	// A client that has been revoked before, so that its generation is compared.
	if _, err := g.RevokeClient(t.Context(), grant.Client, "", ""); err != nil {
		t.Fatal(err)
	}
	text, _ := g.issue(t, grant)
	g.want(t, "first use", text, "ok")
	return g, text, tokens.Requirement{Scope: scope.Of("orders.read"), Audience: grant.Audience[0]}
}

func TestHitDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	g, text, required := hotPath(t)
	before := g.store.Calls("")
	allocs := testing.AllocsPerRun(2000, func() {
		token, err := g.Validate(t.Context(), text)
		if err == nil {
			err = required.Check(&token)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a cache hit allocates %v times, want 0", allocs)
	}
	if n := g.store.Calls("") - before; n != 0 {
		t.Errorf("%d calls of the store for cache hits, want 0", n)
	}
}

func TestRefusalsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	g, text, _ := hotPath(t)
	future := forge(t, at(time.Now().Add(time.Hour), 1))
	for name, bad := range map[string]string{"malformed": text[:69] + "!", "forged": damaged(text, 69), "future": future} {
		if allocs := testing.AllocsPerRun(500, func() {
			if _, err := g.Validate(t.Context(), bad); err == nil {
				t.Fatal("accepted")
			}
		}); allocs != 0 {
			t.Errorf("refusing a token that is %s allocates %v times, want 0", name, allocs)
		}
	}
}

// BenchmarkValidateHit measures the cost of a cached token: parse, tag, cache, digest, 10 000
// rules, policy and scope. It takes less than 1 µs and does not allocate.
func BenchmarkValidateHit(b *testing.B) {
	g, text, required := hotPath(b)
	check := func() error {
		token, err := g.Validate(b.Context(), text)
		if err != nil {
			return err
		}
		return required.Check(&token)
	}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := check(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := check(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
