package tokens_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// cuts records why streams were cut, and when.
type cuts struct {
	mu  sync.Mutex
	why map[string][]error
	at  map[string]time.Time
}

func newCuts() *cuts { return &cuts{why: make(map[string][]error), at: make(map[string]time.Time)} }

// of returns the function that cuts the named stream.
func (c *cuts) of(name string) func(error) {
	return func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.why[name] = append(c.why[name], err)
		c.at[name] = time.Now()
	}
}

// want compares how the named stream has ended so far; "" means that it has not.
func (c *cuts) want(t *testing.T, name, reason string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch why := c.why[name]; {
	case len(why) > 1:
		t.Errorf("%s was cut %d times: %v", name, len(why), why)
	case len(why) == 0 && reason != "":
		t.Errorf("%s is open, want it cut because of %s", name, reason)
	case len(why) == 1 && tokens.Reason(why[0]) != reason:
		t.Errorf("%s was cut: %v, want %q", name, why[0], reason)
	}
}

// open validates a token and watches it.
func (g *gate) open(t testing.TB, text string, required tokens.Requirement, cut func(error)) (stop func()) {
	t.Helper()
	token, err := g.Validate(t.Context(), text)
	if err != nil {
		t.Fatalf("Validate = %v, want the token", err)
	}
	return g.Watch(&token, required, cut)
}

func TestWatchExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		for _, ttl := range []time.Duration{time.Millisecond, time.Second, 10 * time.Second, 11 * time.Second, 2 * time.Hour} {
			gr := grant
			gr.TTL = ttl
			text, token := g.issue(t, gr)
			name := ttl.String()
			g.open(t, text, tokens.Requirement{}, c.of(name))
			g.open(t, text, tokens.Requirement{}, c.of(name+" too")) // one token, two streams
			time.Sleep(time.Until(token.ExpiresAt) - time.Nanosecond)
			synctest.Wait()
			c.want(t, name, "")
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			c.want(t, name, "expired")
			c.want(t, name+" too", "expired")
		}
		if n := g.Stats().Watched; n != 0 {
			t.Errorf("%d tokens are still watched", n)
		}
	})
}

// TestWatchExpiryFollowsTheClock: the clock for the expiry of tokens may differ from the one of
// timers.
func TestWatchExpiryFollowsTheClock(t *testing.T) {
	for _, factor := range []float64{0.5, 0.9, 1.1, 1.5} {
		t.Run(fmt.Sprint(factor), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				clock := func() time.Time {
					return begun.Add(time.Duration(factor * float64(time.Since(begun))))
				}
				g := newGate(t, func(c *tokens.Config) { c.Now = clock })
				text, token := g.issue(t, grant)
				var cut time.Time
				g.open(t, text, tokens.Requirement{}, func(error) { cut = clock() })
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				if late := cut.Sub(token.ExpiresAt); late < 0 || late > 6*time.Second {
					t.Errorf("cut %s after the expiry by a clock that goes %v times as fast", late, factor)
				}
			})
		})
	}
}

func TestWatchRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		other := grant
		other.Client = "other"
		g.policy.set("other", &other.Scope)
		open := func(name string, gr tokens.Claims) (string, tokens.Token) {
			text, token := g.issue(t, gr)
			g.open(t, text, tokens.Requirement{}, c.of(name))
			return text, token
		}
		open("kept", other)
		byText, _ := open("by its text", grant)
		_, byID := open("by its id", grant)
		_, pushed := open("elsewhere, with a push", grant)
		_, lost := open("elsewhere, push lost", grant)
		open("by its client", grant)

		if err := g.Revoke(t.Context(), byText, grant.Client); err != nil {
			t.Fatal(err)
		}
		c.want(t, "by its text", "revoked") // before Revoke returned
		if err := g.RevokeID(t.Context(), byID.ID); err != nil {
			t.Fatal(err)
		}
		c.want(t, "by its id", "revoked")
		for _, token := range []tokens.Token{pushed, lost} {
			if err := g.store.Delete(t.Context(), token.ID); err != nil {
				t.Fatal(err)
			}
		}
		g.Dropped(pushed.ID)
		synctest.Wait()
		c.want(t, "elsewhere, with a push", "revoked")
		c.want(t, "elsewhere, push lost", "")
		g.Gap()
		synctest.Wait()
		c.want(t, "elsewhere, push lost", "revoked")
		c.want(t, "by its client", "")
		if _, err := g.RevokeClient(t.Context(), grant.Client, "", ""); err != nil {
			t.Fatal(err)
		}
		c.want(t, "by its client", "revoked")

		open("after the rule", grant)
		time.Sleep(time.Millisecond)
		if _, err := g.AddRule(t.Context(), tokens.WorkerRule(8, time.Now().Add(-time.Hour), time.Now())); err != nil {
			t.Fatal(err)
		}
		c.want(t, "kept", "")
		c.want(t, "after the rule", "")
		if _, err := g.AddRule(t.Context(), tokens.WorkerRule(7, time.Now().Add(-time.Hour), time.Now())); err != nil {
			t.Fatal(err)
		}
		c.want(t, "kept", "revoked")
		c.want(t, "after the rule", "revoked")
		if n := g.Stats().Watched; n != 0 {
			t.Errorf("%d tokens are still watched", n)
		}
	})
}

// TestForgedPushCutsNothing: a push is only a hint, and the store decides.
func TestForgedPushCutsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		text, token := g.issue(t, grant)
		g.open(t, text, tokens.Requirement{}, c.of("it"))
		loads := g.loads()
		g.Dropped(token.ID)
		g.Dropped(4711)
		synctest.Wait()
		c.want(t, "it", "")
		if n := g.loads() - loads; n != 1 {
			t.Errorf("%d loads, want one for the watched token", n)
		}
	})
}

func TestWatchRulesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		text, _ := g.issue(t, grant)
		g.open(t, text, tokens.Requirement{}, c.of("it"))
		elsewhere := tokens.NewRules(tokens.RulesConfig{Store: g.store})
		if _, err := elsewhere.Add(t.Context(), tokens.ClientRule(grant.Client)); err != nil {
			t.Fatal(err)
		}
		c.want(t, "it", "")
		if err := g.rules.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.want(t, "it", "revoked") // before Refresh returned
	})
}

func TestWatchPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		other := grant
		other.Client = "other"
		g.policy.set("other", &other.Scope)
		text, _ := g.issue(t, grant)
		theirs, _ := g.issue(t, other)
		g.open(t, text, tokens.Requirement{Scope: scope.Of("orders.read")}, c.of("read"))
		g.open(t, text, tokens.Requirement{Scope: scope.Of("orders.write")}, c.of("write"))
		g.open(t, text, tokens.Requirement{}, c.of("any"))
		g.open(t, theirs, tokens.Requirement{Scope: scope.Of("orders.write")}, c.of("other"))
		less := scope.Of("orders.read")
		g.policy.set(grant.Client, &less)
		g.ClientsChanged("nobody")
		c.want(t, "write", "")
		g.ClientsChanged(grant.Client)
		c.want(t, "write", "scope")
		c.want(t, "read", "")
		g.policy.set(grant.Client, nil)
		g.ClientsChanged() // any of them
		c.want(t, "read", "client")
		c.want(t, "any", "client")
		c.want(t, "other", "")
	})
}

// TestWatchTheDead: the token ends between the decision and the registration.
func TestWatchTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		validated := func(gr tokens.Claims) (string, tokens.Token) {
			text, _ := g.issue(t, gr)
			token, err := g.Validate(t.Context(), text)
			if err != nil {
				t.Fatal(err)
			}
			return text, token
		}
		short := grant
		short.TTL = time.Second
		_, expired := validated(short)
		_, ruled := validated(grant)
		text, revoked := validated(grant)
		_, elsewhere := validated(grant)
		if err := g.Revoke(t.Context(), text, grant.Client); err != nil {
			t.Fatal(err)
		}
		if err := g.store.Delete(t.Context(), elsewhere.ID); err != nil {
			t.Fatal(err)
		}
		g.Dropped(elsewhere.ID)
		g.Watch(&revoked, tokens.Requirement{}, c.of("revoked"))
		g.Watch(&elsewhere, tokens.Requirement{}, c.of("elsewhere"))
		synctest.Wait()
		c.want(t, "revoked", "revoked")
		c.want(t, "elsewhere", "revoked")
		time.Sleep(time.Second)
		if _, err := g.RevokeClient(t.Context(), grant.Client, "", ""); err != nil {
			t.Fatal(err)
		}
		g.Watch(&expired, tokens.Requirement{}, c.of("expired"))
		g.Watch(&ruled, tokens.Requirement{}, c.of("ruled"))
		c.want(t, "expired", "expired") // at once
		c.want(t, "ruled", "revoked")
		synctest.Wait()
		if n := g.Stats().Watched; n != 0 {
			t.Errorf("%d tokens are watched, want none", n)
		}
	})
}

func TestWatchStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		text, _ := g.issue(t, grant)
		stop := g.open(t, text, tokens.Requirement{}, c.of("stopped"))
		g.open(t, text, tokens.Requirement{}, c.of("open"))
		for range 2 {
			stop()
		}
		var again func()
		again = g.open(t, text, tokens.Requirement{}, func(error) { again() }) // from within
		if err := g.Revoke(t.Context(), text, grant.Client); err != nil {
			t.Fatal(err)
		}
		c.want(t, "stopped", "")
		c.want(t, "open", "revoked")
		if n := g.Stats().Watched; n != 0 {
			t.Errorf("%d tokens are watched, want none", n)
		}
	})
}

// TestWatchWhilePushesAreLost: the store is read once in each bound, and again after a failure.
func TestWatchWhilePushesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		text, token := g.issue(t, grant)
		kept, _ := g.issue(t, grant)
		g.open(t, text, tokens.Requirement{}, c.of("it"))
		g.open(t, kept, tokens.Requirement{}, c.of("kept"))
		loads := g.loads()
		time.Sleep(time.Minute)
		if n := g.loads() - loads; n != 0 {
			t.Errorf("%d loads in a minute in which pushes arrive, want 0", n)
		}
		g.PushesLost(true)
		g.PushesLost(true)
		time.Sleep(2*cacheTTL + cacheTTL/2)
		if n := g.loads() - loads; n != 2*3 {
			t.Errorf("%d loads in two and a half bounds, want 3 for each of two tokens", n)
		}
		if err := g.store.Delete(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(cacheTTL / 2)
		synctest.Wait()
		c.want(t, "it", "revoked")
		c.want(t, "kept", "")
		g.PushesLost(false)
		loads = g.loads()
		time.Sleep(time.Minute)
		if n := g.loads() - loads; n != 0 {
			t.Errorf("%d loads in a minute in which pushes arrive again, want 0", n)
		}
	})
}

// TestManyStreamsCostNoScan: a hundred thousand streams, each with a token of its own, cause no
// reads of the store as long as nothing happens, and a rule for one client cuts only the streams of
// that client.
func TestManyStreamsCostNoScan(t *testing.T) {
	streams, doomed := 100_000, 1000
	if raceEnabled {
		streams /= 10 // it takes ten times as long
	}
	synctest.Test(t, func(t *testing.T) {
		other := tokens.Claims{Client: "other", Scope: grant.Scope, TTL: grant.TTL}
		g := newGate(t, nil)
		g.policy.scopes[other.Client] = other.Scope
		cut := map[string]int{}
		var mu sync.Mutex
		for i := range streams {
			of := grant
			if i < doomed {
				of = other
			}
			if i%1000 == 0 {
				time.Sleep(time.Millisecond) // no worker makes more ids at once
			}
			text, _ := g.issue(t, of)
			g.open(t, text, tokens.Requirement{}, func(error) {
				mu.Lock()
				defer mu.Unlock()
				cut[of.Client]++
			})
		}
		synctest.Wait()
		loads := g.loads()
		time.Sleep(10 * time.Minute)
		if n := g.loads() - loads; n != 0 {
			t.Errorf("%d loads in ten minutes in which nothing happens, want 0", n)
		}
		if _, err := g.RevokeClient(t.Context(), other.Client, "a test", ""); err != nil {
			t.Fatal(err)
		}
		if len(cut) != 1 || cut[other.Client] != doomed || g.Stats().Watched != streams-doomed {
			t.Errorf("cut were %v, and %d are left; want the %d of one client", cut, g.Stats().Watched, doomed)
		}
		if n := g.loads() - loads; n != 0 {
			t.Errorf("%d loads for a rule, want 0", n)
		}
	})
}

// TestWatchOutlastsAnOutage: streams stay open during an outage of the store, and their tokens are
// read after it, at a limited rate.
func TestWatchOutlastsAnOutage(t *testing.T) {
	const streams = 2000
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		var dead tokens.Token
		for i := range streams {
			text, token := g.issue(t, grant)
			g.open(t, text, tokens.Requirement{}, c.of(fmt.Sprint(i)))
			dead = token
		}
		if err := g.store.Delete(t.Context(), dead.ID); err != nil {
			t.Fatal(err)
		}
		loads := g.loads()
		g.store.Fail(func(string) error { return errors.New("down") })
		g.Gap()
		time.Sleep(9*time.Second + 500*time.Millisecond)
		if n := g.loads() - loads; n < 10 || n > 10*16*16 {
			t.Errorf("%d loads in ten seconds of an outage, want some, and far fewer than %d", n, 10*streams)
		}
		c.want(t, fmt.Sprint(streams-1), "")
		g.store.Fail(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		c.want(t, fmt.Sprint(streams-1), "revoked")
		if n := g.Stats().Watched; n != streams-1 {
			t.Errorf("%d streams are left, want %d", n, streams-1)
		}
	})
}

// TestWatchOneShardDown: tokens of a shard that is down do not delay the others.
func TestWatchOneShardDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, c := newGate(t, nil), newCuts()
		n := 0
		for i := range 900 {
			text, token := g.issue(t, grant)
			g.open(t, text, tokens.Requirement{}, c.of(fmt.Sprint(i)))
			if err := g.store.Delete(t.Context(), token.ID); err != nil {
				t.Fatal(err)
			}
		}
		g.store.Fail(func(op string) error { // every third answer
			if n++; op == "Load" && n%3 == 0 {
				return errors.New("down")
			}
			return nil
		})
		g.Gap()
		time.Sleep(900 * time.Millisecond) // less than until anything is tried again
		synctest.Wait()
		if left := g.Stats().Watched; left > 300 {
			t.Errorf("%d streams are left, want those of one shard in three", left)
		}
	})
}

// BenchmarkWatch measures the cost of one more stream with a token of its own.
func BenchmarkWatch(b *testing.B) {
	g := newGate(b, func(c *tokens.Config) { c.CacheTTL, c.Rules, c.Clients, c.Decisions = 0, nil, nil, nil })
	token := tokens.Token{Client: grant.Client, ExpiresAt: time.Now().Add(time.Hour)}
	cut := func(error) {}
	g.store.Fail(func(string) error { return errors.New("not asked here") })
	b.ReportAllocs()
	for b.Loop() {
		one := token
		one.ID = at(time.Now(), 7) + idgen.ID(g.ids.next.Add(1))
		g.Watch(&one, tokens.Requirement{}, cut)
	}
}
