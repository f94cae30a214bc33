package tokens_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// validated issues a token and returns it as Validate does.
func (g *gate) validated(t testing.TB, gr tokens.Claims) tokens.Token {
	t.Helper()
	text, _ := g.issue(t, gr)
	token, err := g.Validate(t.Context(), text)
	if err != nil {
		t.Fatalf("Validate = %v, want the token", err)
	}
	return token
}

// TestTokensShareTheirGrant: cached tokens share their attributes if they differ only in id and
// times, and not otherwise.
func TestTokensShareTheirGrant(t *testing.T) {
	g := newGate(t, func(c *tokens.Config) { c.Clients = nil })
	token := g.validated(t, grant)
	for name, test := range map[string]struct {
		change func(*tokens.Claims)
		shared bool
	}{
		"the same":           {func(*tokens.Claims) {}, true},
		"another lifetime":   {func(gr *tokens.Claims) { gr.TTL /= 2 }, true},
		"another client":     {func(gr *tokens.Claims) { gr.Client = "other" }, false},
		"another scope":      {func(gr *tokens.Claims) { gr.Scope = "orders.read" }, false},
		"another generation": {func(gr *tokens.Claims) { gr.Generation = 7 }, false},
		"another audience":   {func(gr *tokens.Claims) { gr.Audience = []string{grant.Audience[0], "https://b.example"} }, false},
		"an audience that reads like two": {func(gr *tokens.Claims) {
			gr.Audience = []string{grant.Audience[0] + " https://b.example"}
		}, false},
	} {
		gr := grant
		test.change(&gr)
		other := g.validated(t, gr)
		if got := &other.Audience[0] == &token.Audience[0]; got != test.shared {
			t.Errorf("%s: the grant is shared: %t, want %t", name, got, test.shared)
		}
		if other.Client != gr.Client || other.Scope != gr.Scope || other.Generation != gr.Generation || !slices.Equal(other.Audience, gr.Audience) {
			t.Errorf("%s: the token is %+v, want what was granted", name, other)
		}
	}
}

// TestGrantGoesWithItsTokens: the cache drops attributes with the last of their tokens.
func TestGrantGoesWithItsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		token := g.validated(t, grant)
		held := weak.Make(&token.Audience[0])
		runtime.GC()
		if held.Value() == nil {
			t.Error("the grant of a cached token is gone")
		}
		time.Sleep(4 * cacheTTL)
		synctest.Wait()
		runtime.GC()
		if held.Value() != nil {
			t.Error("the grant is there, and no token has it")
		}
	})
}

// counting is a policy that counts what it is asked.
type counting struct {
	*policy
	asked atomic.Int64
}

func (c *counting) Entitled(client string, generation uint64) (scope.List, bool) {
	c.asked.Add(1)
	return c.policy.Entitled(client, generation)
}

// TestVerdictIsThatOfTheGrant: the policy is asked once for all tokens with the same attributes,
// and again after a change.
func TestVerdictIsThatOfTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &counting{policy: &policy{scopes: map[string]scope.List{grant.Client: grant.Scope}}}
		g := newGate(t, func(c *tokens.Config) { c.Clients = p })
		var texts []string
		for range 3 {
			text, _ := g.issue(t, grant)
			texts = append(texts, text)
		}
		less, more := scope.Of("orders.write"), scope.Of("orders.read", "orders.write", "billing")
		for asked, test := range []struct {
			scopes *scope.List
			want   scope.List
			reason string
		}{
			{&grant.Scope, grant.Scope, "ok"}, {&less, less, "ok"}, {nil, "", "client"}, {&more, grant.Scope, "ok"},
		} {
			p.set(grant.Client, test.scopes)
			for range 2 {
				for _, text := range texts {
					token, err := g.Validate(t.Context(), text)
					if tokens.Reason(err) != test.reason || token.Scope != test.want {
						t.Errorf("Validate = %q, %v, want %q, %s", token.Scope, err, test.want, test.reason)
					}
				}
			}
			if got := p.asked.Load(); got != int64(asked+1) {
				t.Errorf("the policy was asked %d times under %d versions", got, asked+1)
			}
		}
	})
}

// lender is a store that returns the same record without copying it.
type lender struct {
	tokens.Store
	record tokens.Record
}

func (l *lender) Save(_ context.Context, r tokens.Record, _ time.Duration) error {
	l.record = r
	return nil
}

func (l *lender) Load(context.Context, idgen.ID) (tokens.Record, error) { return l.record, nil }

// The number of allocations of a decision without a cache, without the store. It must be exact, so
// a change that saves one updates it.
func TestDecisionWithoutACacheAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection allocates too
	s := tokens.NewService(tokens.Config{
		Store: new(lender), Keys: tokens.FixedKeyring(gateKey), IDs: &bubbleIDs{worker: 7}, MintTime: mintTime,
		Clients: &policy{scopes: map[string]scope.List{grant.Client: grant.Scope}},
	})
	defer s.Close()
	bearer, _, err := s.Issue(t.Context(), grant)
	if err != nil {
		t.Fatal(err)
	}
	text := bearer.Reveal()
	// The look-up and the grant.
	const want = 2
	got := testing.AllocsPerRun(2000, func() {
		if _, err := s.Validate(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	})
	if got != want {
		t.Errorf("%v allocations, want %v", got, want)
	}
}
