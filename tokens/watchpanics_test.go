package tokens_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/internal/panics"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// countPanics returns a function that checks that want panics were counted in part, and that the
// stack of their place, through frame, was told once.
func countPanics(t *testing.T, part panics.Part) (wantPanics func(want uint64, frame string)) {
	t.Helper()
	panics.Forget()
	before := panics.Count(part)
	var mu sync.Mutex
	var stacks []string
	panics.Notify(func(p *panics.Panic) {
		mu.Lock()
		defer mu.Unlock()
		stacks = append(stacks, p.Stack)
	})
	return func(want uint64, frame string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if got := panics.Count(part) - before; got != want {
			t.Errorf("%d panics counted in %s, want %d", got, part, want)
		}
		if len(stacks) != 1 || !strings.Contains(stacks[0], frame) {
			t.Errorf("the stacks that were told: %q, want one through %s", stacks, frame)
		}
	}
}

// TestPanicOfAReread: a token whose read panics is read again later, and the readers continue.
func TestPanicOfAReread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wantPanics := countPanics(t, panics.Tokens)
		g, c := newGate(t, nil), newCuts()
		text, token := g.issue(t, grant)
		g.open(t, text, tokens.Requirement{}, c.of("revoked"))
		other, _ := g.issue(t, grant)
		g.open(t, other, tokens.Requirement{}, c.of("good"))
		g.lagging.panics.Store(true)
		if err := g.store.Delete(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		g.PushesLost(true) // has all be read
		synctest.Wait()
		c.want(t, "revoked", "")
		wantPanics(2, "(*lagging).Load")
		g.lagging.panics.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		c.want(t, "revoked", "revoked")
		c.want(t, "good", "")
		g.PushesLost(false)
	})
}

// TestPanicOfACut: if ending one stream panics, the other streams of the same token end all the
// same.
func TestPanicOfACut(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *gate, tokens.Token){
		"its expiry": func(t *testing.T, _ *gate, token tokens.Token) { time.Sleep(time.Until(token.ExpiresAt)) },
		"a revocation elsewhere": func(t *testing.T, g *gate, token tokens.Token) {
			if err := g.store.Delete(t.Context(), token.ID); err != nil {
				t.Fatal(err)
			}
			g.Dropped(token.ID)
		},
		"a rule": func(t *testing.T, g *gate, token tokens.Token) {
			if _, err := g.rules.Add(t.Context(), tokens.ClientRule(token.Client)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wantPanics := countPanics(t, panics.Exchange)
				g, c := newGate(t, nil), newCuts()
				text, token := g.issue(t, grant)
				ended := 0
				note := func(error) { ended++ }
				g.open(t, text, tokens.Requirement{}, note)
				g.open(t, text, tokens.Requirement{}, func(error) { panic("a fault of the test") })
				g.open(t, text, tokens.Requirement{}, note)
				end(t, g, token)
				synctest.Wait()
				if ended != 2 {
					t.Errorf("%d other streams were cut, want 2", ended)
				}
				wantPanics(1, "TestPanicOfACut")
				// Later tokens are watched as before.
				all := scope.Of("read")
				g.policy.set("billing", &all)
				later, _ := g.issue(t, tokens.Claims{Client: "billing", Scope: all, TTL: time.Minute})
				g.open(t, later, tokens.Requirement{}, c.of("later"))
				time.Sleep(time.Minute)
				synctest.Wait()
				c.want(t, "later", "expired")
			})
		})
	}
}

// moody panics when it is asked for one client.
type moody struct {
	*policy
	client string
	panics bool
}

func (m *moody) Entitled(client string, generation uint64) (scope.List, bool) {
	if m.panics && client == m.client {
		panic("a fault of the test")
	}
	return m.policy.Entitled(client, generation)
}

// TestPanicOfAJudgement: the policy panics for one client. The streams of that client end, and
// those of others are checked. Before, the watches stayed locked for ever.
func TestPanicOfAJudgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wantPanics := countPanics(t, panics.Tokens)
		var clients *moody
		g, c := newGate(t, func(cfg *tokens.Config) {
			clients = &moody{policy: cfg.Clients.(*policy), client: "orders"}
			cfg.Clients = clients
		}), newCuts()
		all := scope.Of("read")
		for _, client := range []string{"orders", "billing", "stock"} {
			g.policy.set(client, &all)
			text, _ := g.issue(t, tokens.Claims{Client: client, Scope: all, TTL: time.Hour})
			var cut func(error)
			if cut = c.of(client); client == "orders" {
				cut = func(err error) {
					if !errors.Is(err, tokens.ErrUnavailable) {
						t.Errorf("the stream was cut: %v, want ErrUnavailable", err)
					}
					c.of(client)(err)
				}
			}
			g.open(t, text, tokens.Requirement{}, cut)
		}
		clients.panics = true
		g.policy.set("billing", nil)
		g.ClientsChanged()
		synctest.Wait()
		c.want(t, "orders", tokens.Reason(tokens.ErrUnavailable))
		c.want(t, "billing", tokens.Reason(tokens.ErrClient))
		c.want(t, "stock", "")
		wantPanics(1, "(*moody).Entitled")
		clients.panics = false
		if n := g.Stats().Watched; n != 1 {
			t.Errorf("%d tokens are watched, want 1", n)
		}
	})
}
