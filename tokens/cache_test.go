package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

const cacheTTL = 5 * time.Second

var gateKey = tokens.Key{1, 2, 3}

// bubbleIDs makes ids from the clock of the bubble: milliseconds, then 10 bits
// of worker, then 12 of sequence.
type bubbleIDs struct {
	worker int64
	next   atomic.Int64
}

func (g *bubbleIDs) Next(context.Context) (idgen.ID, error) {
	return idgen.ID(time.Now().UnixMilli()<<sequenceBits | g.worker<<12 | g.next.Add(1)&0xfff), nil
}

func workerOf(id idgen.ID) (int64, bool) { return int64(id) >> 12 & 0x3ff, true }

// lagging is a store whose responses are lag old when they arrive.
type lagging struct {
	tokens.Store
	lag    atomic.Int64
	panics atomic.Bool
}

func (l *lagging) Load(ctx context.Context, id idgen.ID) (tokens.Record, error) {
	if l.panics.Load() {
		panic("the store is broken")
	}
	r, err := l.Store.Load(ctx, id)
	lag := time.Duration(l.lag.Load())
	if lag == 0 {
		// Not for speed: where timers that have expired already are received from by several goroutines of
		// a bubble at once, Go 1.26 gives one context of the race detector to all of them, which breaks it.
		return r, err
	}
	select {
	case <-time.After(lag):
		return r, err
	case <-ctx.Done():
		return tokens.Record{}, fmt.Errorf("%w: %w", tokens.ErrUnavailable, ctx.Err())
	}
}

// gate is a service in a bubble.
type gate struct {
	*tokens.Service
	store   *tokenstest.Store
	lagging *lagging
	rules   *tokens.Rules
	policy  *policy
	ids     *bubbleIDs

	mu        sync.Mutex
	confirmed time.Time // zero: always
	static    []bool
	hits      int
	misses    int
	uses      int
	ages      []time.Duration
}

func (g *gate) CacheLookup(hit bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if hit {
		g.hits++
	} else {
		g.misses++
	}
}

func (g *gate) TokenAge(age time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ages = append(g.ages, age)
}

func (g *gate) FailStaticUse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.uses++
}

func (g *gate) lookupConfirmed() (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.confirmed.IsZero() {
		return time.Now(), true
	}
	return g.confirmed, true
}

func (g *gate) confirmAt(at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.confirmed = at
}

// policy is a ClientPolicy.
type policy struct {
	mu      sync.Mutex
	scopes  map[string]scope.List // missing: gone
	version atomic.Uint64
}

func (p *policy) Entitled(client string, generation uint64) (scope.List, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	scopes, ok := p.scopes[client]
	return scopes, ok
}

func (p *policy) Version() uint64 { return p.version.Load() }

// set changes what a client may have; nil means that it is gone.
func (p *policy) set(client string, scopes *scope.List) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if scopes == nil {
		delete(p.scopes, client)
	} else {
		p.scopes[client] = *scopes
	}
	p.version.Add(1)
}

// newGate returns a service on a store of its own. change may alter the
// configuration.
func newGate(t testing.TB, change func(*tokens.Config)) *gate {
	t.Helper()
	g := &gate{store: tokenstest.NewStore(time.Now), ids: &bubbleIDs{worker: 7}}
	g.lagging = &lagging{Store: g.store}
	g.policy = &policy{scopes: map[string]scope.List{grant.Client: grant.Scope}}
	g.rules = tokens.NewRules(tokens.RulesConfig{Store: g.store, Longest: 2 * time.Hour})
	cfg := tokens.Config{
		Store: g.lagging, Keys: tokens.FixedKeyring(gateKey), IDs: g.ids, MintTime: mintTime, Worker: workerOf,
		Rules: g.rules, Confirmed: g.lookupConfirmed, Clients: g.policy,
		Timeout: time.Minute, CacheTTL: cacheTTL,
		OnFailStatic: func(active bool) { g.static = append(g.static, active) },
		Decisions:    g,
	}
	if change != nil {
		change(&cfg)
	}
	g.Service = tokens.NewService(cfg)
	t.Cleanup(g.Close)
	if err := g.rules.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gate) issue(t testing.TB, gr tokens.Claims) (string, tokens.Token) {
	t.Helper()
	bearer, token, err := g.Issue(t.Context(), gr)
	if err != nil {
		t.Fatalf("Issue = %v, want a token", err)
	}
	return bearer.Reveal(), token
}

func (g *gate) loads() int { return g.store.Calls("Load") }

// want validates text and compares the reason.
func (g *gate) want(t testing.TB, what, text, reason string) {
	t.Helper()
	_, err := g.Validate(t.Context(), text)
	if got := tokens.Reason(err); got != reason {
		t.Errorf("%s: Validate = %s (%v), want %s", what, got, err, reason)
	}
}

// forge returns a token with a correct tag and the given id that was never stored, such as somebody
// with the key can make.
func forge(t testing.TB, id idgen.ID) string {
	t.Helper()
	s := tokens.NewService(tokens.Config{
		Store: tokenstest.NewStore(time.Now), Keys: tokens.FixedKeyring(gateKey), MintTime: mintTime,
		IDs: &counter{fixed: []idgen.ID{id}},
	})
	bearer, _, err := s.Issue(t.Context(), grant)
	if err != nil {
		t.Fatal(err)
	}
	return bearer.Reveal()
}

func TestCacheLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, _ := g.issue(t, grant)
		g.lagging.lag.Store(int64(100 * time.Millisecond))
		begun := time.Now()
		g.want(t, "first use", text, "ok")
		g.lagging.lag.Store(0)
		for _, test := range []struct {
			after time.Duration
			loads int
		}{
			{101 * time.Millisecond, 1},
			{cacheTTL - time.Nanosecond, 1}, // counted from when the store was asked, not from its response
			{cacheTTL, 2},
			{2*cacheTTL - time.Nanosecond, 2},
		} {
			time.Sleep(time.Until(begun.Add(test.after)))
			g.want(t, "use after "+test.after.String(), text, "ok")
			if got := g.loads(); got != test.loads {
				t.Errorf("%d loads %s after the first look-up, want %d", got, test.after, test.loads)
			}
		}
		if g.hits != 3 || g.misses != 2 || len(g.ages) != 5 || g.ages[1] < 101*time.Millisecond {
			t.Errorf("%d hits, %d misses, ages %v; want 3, 2 and 5 ages", g.hits, g.misses, g.ages)
		}
	})
}

func TestExpiryIsExactFromTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		short := grant
		short.TTL = 3 * time.Second
		text, token := g.issue(t, short)
		g.want(t, "first use", text, "ok")
		time.Sleep(time.Until(token.ExpiresAt) - time.Millisecond)
		g.want(t, "the last millisecond", text, "ok")
		if g.loads() != 1 {
			t.Errorf("%d loads, want the last one to come from the cache", g.loads())
		}
		time.Sleep(time.Millisecond)
		g.want(t, "the first one after", text, "expired")
	})
}

// TestExpiryFollowsTheClock: cached entries age by the monotonic clock, and tokens expire by the
// configured clock.
func TestExpiryFollowsTheClock(t *testing.T) {
	clock := tokenstest.NewClock(start)
	store := tokenstest.NewStore(clock.Now)
	s := tokens.NewService(tokens.Config{
		Store: store, Keys: tokens.FixedKeyring(gateKey), IDs: &counter{clock: clock}, MintTime: mintTime,
		Now: clock.Now, CacheTTL: time.Hour,
	})
	defer s.Close()
	bearer, token, err := s.Issue(t.Context(), grant)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		rest time.Duration
		want error
	}{{time.Hour, nil}, {time.Millisecond, nil}, {0, tokens.ErrExpired}, {time.Millisecond, nil}} {
		clock.Advance(token.ExpiresAt.Sub(clock.Now()) - test.rest)
		if _, err := s.Validate(t.Context(), bearer.Reveal()); !errors.Is(err, test.want) {
			t.Errorf("Validate %s before the expiry = %v, want %v", test.rest, err, test.want)
		}
	}
	if n := store.Calls("Load"); n != 1 {
		t.Errorf("%d loads, want 1", n)
	}
}

func TestWithoutACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.CacheTTL = 0 })
		text, _ := g.issue(t, grant)
		for range 3 {
			g.want(t, "use", text, "ok")
		}
		if g.loads() != 3 || g.Stats().Cached != 0 {
			t.Errorf("%d loads and %d cached, want each decision to ask", g.loads(), g.Stats().Cached)
		}
		g.lagging.lag.Store(int64(10 * time.Millisecond))
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { g.want(t, "use together", text, "ok") })
		}
		wg.Wait()
		if g.loads() != 4 {
			t.Errorf("%d loads for 100 decisions at once, want 1", g.loads()-3)
		}
	})
}

func TestFirstUsesShareOneLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, _ := g.issue(t, grant)
		g.lagging.lag.Store(int64(100 * time.Millisecond))
		// The first caller gives up, and another one reads for all that wait.
		impatient, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.Validate(impatient, text); !errors.Is(err, tokens.ErrUnavailable) {
				t.Errorf("Validate of the one who left = %v, want ErrUnavailable", err)
			}
		})
		synctest.Wait()
		for range 500 {
			wg.Go(func() { g.want(t, "use", text, "ok") })
		}
		time.Sleep(50 * time.Millisecond)
		if g.loads() != 1 {
			t.Errorf("%d loads for 501 callers, want 1", g.loads())
		}
		leave()
		wg.Wait()
		if g.loads() != 2 {
			t.Errorf("%d loads when the one who read has left, want one more", g.loads())
		}
	})
}

// TestLookUpOfAHastyCaller: the deadline of a caller is not a failure of the store.
func TestLookUpOfAHastyCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.Timeout = 0 })
		text, _ := g.issue(t, grant)
		g.lagging.lag.Store(int64(100 * time.Millisecond))
		hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.Validate(hasty, text); !errors.Is(err, tokens.ErrUnavailable) {
				t.Errorf("Validate of the hasty one = %v, want ErrUnavailable", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { g.want(t, "who has time", text, "ok") })
		wg.Wait()
	})
}

// TestLookUpThatPanics: no caller waits for ever after a panic.
func TestLookUpThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, _ := g.issue(t, grant)
		g.lagging.panics.Store(true)
		func() {
			defer func() { _ = recover() }()
			_, err := g.Validate(t.Context(), text)
			t.Errorf("Validate = %v, want a panic", err)
		}()
		g.lagging.panics.Store(false)
		g.want(t, "afterwards", text, "ok")
	})
}

// TestLookUpEndsWithItsCallers: afterwards no caller waits, no read is running, and nothing is
// cached.
func TestLookUpEndsWithItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.Timeout = 0 })
		text, _ := g.issue(t, grant)
		g.lagging.lag.Store(int64(time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := g.Validate(ctx, text); !errors.Is(err, tokens.ErrUnavailable) {
					t.Errorf("Validate = %v, want ErrUnavailable", err)
				}
			})
		}
		wg.Wait()
		begun := time.Now()
		g.Close() // waits for what runs
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("a look-up ran for %s after the last caller had left", waited)
		}
	})
}

func TestLookUpHasABudgetOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.Timeout = 250 * time.Millisecond })
		text, _ := g.issue(t, grant)
		g.lagging.lag.Store(int64(time.Hour))
		begun := time.Now()
		g.want(t, "a frozen store", text, "unavailable")
		if d := time.Since(begun); d != 250*time.Millisecond {
			t.Errorf("the decision took %s, want the timeout", d)
		}
		g.lagging.lag.Store(0)
		g.want(t, "afterwards", text, "ok")
	})
}

// TestRevocationDuringALookUp: if the token is revoked while the reply of the store is in flight,
// neither the caller nor the cache may use that reply.
func TestRevocationDuringALookUp(t *testing.T) {
	for name, revoke := range map[string]func(g *gate, text string, id idgen.ID) error{
		"by the token": func(g *gate, text string, _ idgen.ID) error {
			return g.Revoke(context.Background(), text, grant.Client)
		},
		"by its id": func(g *gate, _ string, id idgen.ID) error { return g.RevokeID(context.Background(), id) },
		"elsewhere, with a push": func(g *gate, _ string, id idgen.ID) error {
			err := g.store.Delete(context.Background(), id)
			g.Dropped(id)
			return err
		},
		"elsewhere, and a gap": func(g *gate, _ string, id idgen.ID) error {
			err := g.store.Delete(context.Background(), id)
			g.Gap()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, nil)
				text, token := g.issue(t, grant)
				g.lagging.lag.Store(int64(100 * time.Millisecond))
				var wg sync.WaitGroup
				wg.Go(func() { g.want(t, "asked before the revocation", text, "unknown") })
				time.Sleep(50 * time.Millisecond)
				g.lagging.lag.Store(0) // the revocation itself is quick
				if err := revoke(g, text, token.ID); err != nil {
					t.Fatal(err)
				}
				g.want(t, "asked after the revocation", text, "unknown")
				wg.Wait()
				g.want(t, "asked later", text, "unknown")
				if n := g.Stats().Cached; n != 0 {
					t.Errorf("%d tokens are cached, want none", n)
				}
			})
		})
	}
}

// TestGapDuringALookUp: only the gap disturbs the look-up.
func TestGapDuringALookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, token := g.issue(t, grant)
		g.lagging.lag.Store(int64(100 * time.Millisecond))
		var wg sync.WaitGroup
		wg.Go(func() { g.want(t, "asked before the gap", text, "unknown") })
		time.Sleep(50 * time.Millisecond)
		if err := g.store.Delete(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		g.Gap()
		wg.Go(func() { g.want(t, "asked after the gap", text, "unknown") })
		wg.Wait()
		if g.loads() != 2 || g.Stats().Cached != 0 {
			t.Errorf("%d loads and %d cached, want two and none", g.loads(), g.Stats().Cached)
		}
	})
}

func TestRevocationOfACachedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		kept, _ := g.issue(t, grant)
		g.want(t, "kept", kept, "ok")
		for name, revoke := range map[string]func(text string, token tokens.Token) error{
			"by the token": func(text string, _ tokens.Token) error { return g.Revoke(t.Context(), text, grant.Client) },
			"by its id":    func(_ string, token tokens.Token) error { return g.RevokeID(t.Context(), token.ID) },
			"elsewhere": func(_ string, token tokens.Token) error {
				err := g.store.Delete(t.Context(), token.ID)
				g.Dropped(token.ID)
				return err
			},
		} {
			text, token := g.issue(t, grant)
			g.want(t, name, text, "ok")
			if err := revoke(text, token); err != nil {
				t.Fatal(err)
			}
			g.want(t, name, text, "unknown")
		}
		before := g.loads()
		if g.want(t, "kept", kept, "ok"); g.loads() != before {
			t.Errorf("a token was dropped that nothing revoked")
		}
	})
}

// TestRevocationOfATokenWithoutARecord: the record of a cached token was deleted elsewhere and the
// message was lost, or the store lost its data. A revocation ends the token here all the same, cuts
// its streams, and tells the other gateways.
func TestRevocationOfATokenWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, token := g.issue(t, grant)
		g.want(t, "cached", text, "ok")
		cuts := newCuts()
		g.open(t, text, tokens.Requirement{}, cuts.of("stream"))
		g.store.Wipe()
		g.want(t, "without a record", text, "ok") // the premise of this test: the cache decides
		if err := g.Revoke(t.Context(), text, grant.Client); err != nil {
			t.Errorf("Revoke = %v, want nil", err)
		}
		g.want(t, "after the revocation", text, "unknown")
		cuts.want(t, "stream", "revoked")
		if n := g.store.Calls("Delete"); n != 1 {
			t.Errorf("Delete was called %d times, want once: it tells the other gateways", n)
		}

		g.store.Fail(func(op string) error {
			if op == "Delete" {
				return fmt.Errorf("%w: down", tokens.ErrUnavailable)
			}
			return nil
		})
		if err := g.Revoke(t.Context(), text, grant.Client); !errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("Revoke while nobody can be told = %v, want ErrUnavailable", err)
		}
		if err := g.RevokeID(t.Context(), token.ID); !errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("RevokeID while nobody can be told = %v, want ErrUnavailable", err)
		}
	})
}

func TestGapFlushesTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		lost, token := g.issue(t, grant)
		kept, _ := g.issue(t, grant)
		g.want(t, "lost", lost, "ok")
		g.want(t, "kept", kept, "ok")
		if err := g.store.Delete(t.Context(), token.ID); err != nil { // and the push is lost
			t.Fatal(err)
		}
		g.want(t, "within the bound", lost, "ok")
		g.Gap()
		g.want(t, "lost", lost, "unknown")
		g.want(t, "kept", kept, "ok")
	})
}

// TestDeletedByHandDiesWithinTheTTL: a record is deleted without a push and without a gap.
func TestDeletedByHandDiesWithinTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, token := g.issue(t, grant)
		g.want(t, "before", text, "ok")
		time.Sleep(cacheTTL / 2)
		if err := g.store.Delete(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(cacheTTL / 2)
		g.want(t, "a TTL after the look-up", text, "unknown")
	})
}

// TestSecretsShareNoVerdict: two secrets with one id are presented, one of them correct.
func TestSecretsShareNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		text, token := g.issue(t, grant)
		other := forge(t, token.ID)
		check := func(stage string) {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { g.want(t, "the right secret, "+stage, text, "ok") })
				wg.Go(func() { g.want(t, "the wrong secret, "+stage, other, "unavailable") })
			}
			wg.Wait()
		}
		g.lagging.lag.Store(int64(10 * time.Millisecond))
		g.want(t, "the wrong secret first", other, "unavailable")
		if n := g.Stats().Cached; n != 0 {
			t.Errorf("%d tokens are cached on behalf of a wrong secret", n)
		}
		check("looked up")
		check("cached")
	})
}

// TestBadTokensLeaveNothing: malformed, forged and unknown tokens neither fill nor empty the cache.
func TestBadTokensLeaveNothing(t *testing.T) {
	g := newGate(t, func(c *tokens.Config) { c.CacheTTL, c.CacheSize, c.Decisions = time.Hour, 1000, nil })
	var good []string
	for range 100 {
		text, _ := g.issue(t, grant)
		good = append(good, text)
		g.want(t, "good", text, "ok")
	}
	loads := g.loads()
	const bad = 10_000
	for i := range bad {
		id := idgen.ID(time.Now().UnixMilli()<<sequenceBits | 9<<12 | int64(i)&0xfff)
		g.want(t, "unknown", forge(t, id), "unknown")
		g.want(t, "forged", damaged(good[i%len(good)], 17+i%50), "forged")
	}
	if n := g.loads() - loads; n != bad {
		t.Errorf("%d loads for %d unknown tokens", n, bad)
	}
	for _, text := range good {
		g.want(t, "good afterwards", text, "ok")
	}
	if n := g.loads() - loads - bad; n != 0 {
		t.Errorf("%d of %d good tokens were pushed out of the cache", n, len(good))
	}
	if n := g.Stats().Cached; n != len(good) {
		t.Errorf("%d tokens are cached, want %d", n, len(good))
	}
}

func TestCacheIsBounded(t *testing.T) {
	g := newGate(t, func(c *tokens.Config) { c.CacheTTL, c.CacheSize = time.Hour, 100 })
	for range 5000 {
		text, _ := g.issue(t, grant)
		g.want(t, "use", text, "ok")
	}
	if n := g.Stats().Cached; n > 100 {
		t.Errorf("%d tokens are cached, want at most 100", n)
	}
}

// budget is an UnknownLimiter.
type budget struct {
	mu   sync.Mutex
	left map[netip.Addr]int
}

func (b *budget) Failed(addr netip.Addr) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left[addr]--
	return 7 * time.Second, b.left[addr] >= 0
}

// TestUnknownTokensAreLimited: after too many tokens from its address were looked up and refused, a
// refused token gets a LimitedError. A valid token never does, whether it is cached or not.
func TestUnknownTokensAreLimited(t *testing.T) {
	attacker := netip.MustParseAddr("2001:db8::1")
	limits := &budget{left: map[netip.Addr]int{attacker: 4}}
	g := newGate(t, func(c *tokens.Config) { c.Unknown = limits })
	cached, _ := g.issue(t, grant)
	g.want(t, "good", cached, "ok")
	_, stored := g.issue(t, grant)
	if _, err := g.ValidateFrom(t.Context(), forge(t, stored.ID), attacker); !errors.Is(err, tokens.ErrMismatch) {
		t.Errorf("another secret = %v, want ErrMismatch", err) // does not count: the store is at fault
	}
	loads := g.loads()
	limited := 0
	for range 100 {
		id, _ := g.ids.Next(t.Context())
		_, err := g.ValidateFrom(t.Context(), forge(t, id), attacker)
		var tooMany *tokens.LimitedError
		switch {
		case errors.As(err, &tooMany):
			limited++
			if tooMany.RetryAfter != 7*time.Second || errors.Is(err, tokens.ErrInvalid) || errors.Is(err, tokens.ErrUnavailable) || tokens.Reason(err) != "limited" {
				t.Fatalf("ValidateFrom = %v, want a LimitedError of its own kind", err)
			}
		case !errors.Is(err, tokens.ErrUnknown):
			t.Fatalf("ValidateFrom = %v, want ErrUnknown", err)
		}
		fresh, _ := g.issue(t, grant)
		for _, text := range []string{cached, fresh, fresh} {
			if _, err := g.ValidateFrom(t.Context(), text, attacker); err != nil {
				t.Fatalf("a good token from the same address = %v, want it", err)
			}
		}
	}
	if n := g.loads() - loads; n != 200 || limited != 96 {
		t.Errorf("%d look-ups and %d refusals as too many, want 200 and 96", n, limited)
	}
	if limits.left[attacker] != 4-100 {
		t.Errorf("%d failures were counted, want 100", 4-limits.left[attacker])
	}
	g.want(t, "without an address", forge(t, at(time.Now(), 99)), "unknown")
}

// TestRefusedTokensCount: every kind of refusal after a look-up counts. A refusal without a look-up
// does not count, and neither does a failure of the store.
func TestRefusedTokensCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := netip.MustParseAddr("192.0.2.7")
		for name, tt := range map[string]struct {
			spoil func(g *gate, text string) string
			want  string
		}{
			"good":    {func(_ *gate, text string) string { return text }, "ok"},
			"forged":  {func(_ *gate, text string) string { return damaged(text, 60) }, "forged"},
			"future":  {func(*gate, string) string { return forge(t, at(time.Now().Add(time.Hour), 1)) }, "future"},
			"too old": {func(*gate, string) string { return forge(t, at(time.Now().Add(-3*time.Hour), 1)) }, "too_old"},
			"no store": {func(g *gate, text string) string {
				g.store.Fail(func(string) error { return tokens.ErrUnavailable })
				return text
			}, "unavailable"},
			"unknown": {func(*gate, string) string { return forge(t, at(time.Now(), 1)) }, "limited"},
			"expired": {func(_ *gate, text string) string {
				time.Sleep(grant.TTL)
				return text
			}, "limited"},
			"revoked": {func(g *gate, text string) string {
				if _, err := g.RevokeClient(t.Context(), grant.Client, "", ""); err != nil {
					t.Fatal(err)
				}
				return text
			}, "limited"},
			"client": {func(g *gate, text string) string {
				g.policy.set(grant.Client, nil)
				return text
			}, "limited"},
		} {
			g := newGate(t, func(c *tokens.Config) { c.Unknown = &budget{left: map[netip.Addr]int{}} })
			text, _ := g.issue(t, grant)
			_, err := g.ValidateFrom(t.Context(), tt.spoil(g, text), addr)
			if got := tokens.Reason(err); got != tt.want {
				t.Errorf("%s: ValidateFrom = %s (%v), want %s", name, got, err, tt.want)
			}
		}
	})
}

// TestDeadTokensAreAskedAboutOnce: a token without a record is looked up once in five seconds, or
// in CacheTTL if that is less. Without a cache, it is looked up every time.
func TestDeadTokensAreAskedAboutOnce(t *testing.T) {
	for _, tt := range []struct{ ttl, every time.Duration }{
		{time.Hour, 5 * time.Second}, {5 * time.Second, 5 * time.Second}, {2 * time.Second, 2 * time.Second}, {0, time.Second},
	} {
		t.Run(tt.ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, func(c *tokens.Config) { c.CacheTTL = tt.ttl })
				text, token := g.issue(t, grant)
				if err := g.store.Delete(t.Context(), token.ID); err != nil {
					t.Fatal(err)
				}
				loads := g.loads()
				for range 30 {
					for range 10 {
						g.want(t, "dead", text, "unknown")
						if tt.ttl == 0 {
							break
						}
					}
					time.Sleep(time.Second)
				}
				if n, want := g.loads()-loads, int(30*time.Second/tt.every); n != want {
					t.Errorf("%d look-ups of a dead token in 30 s, want %d", n, want)
				}
			})
		})
	}
}

// TestWhatIsNotKnownToBeDead: a token is looked up again after a new epoch, as after an outage of
// the store, after a failure of the store, and if it has another secret with the same id.
func TestWhatIsNotKnownToBeDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, func(c *tokens.Config) { c.CacheTTL = time.Hour })
		id := at(time.Now(), 1)
		g.want(t, "forged under an id to come", forge(t, id), "unknown")
		issuer := tokens.NewService(tokens.Config{
			Store: g.store, Keys: tokens.FixedKeyring(gateKey), MintTime: mintTime, IDs: &counter{fixed: []idgen.ID{id}},
		})
		bearer, _, err := issuer.Issue(t.Context(), grant)
		if err != nil {
			t.Fatal(err)
		}
		g.want(t, "the token that got the id", bearer.Reveal(), "ok")

		text, token := g.issue(t, grant)
		record, err := g.store.Load(t.Context(), token.ID)
		if err != nil {
			t.Fatal(err)
		}
		g.store.Fail(func(string) error { return tokens.ErrUnavailable })
		g.want(t, "a fault", text, "unavailable")
		g.store.Fail(nil)
		g.want(t, "after a fault", text, "ok")

		if err := g.store.Delete(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		g.Dropped(token.ID)
		g.want(t, "lost", text, "unknown")
		if err := g.store.Save(t.Context(), record, time.Hour); err != nil {
			t.Fatal(err)
		}
		g.want(t, "restored", text, "unknown")
		g.Gap()
		g.want(t, "restored, in a new epoch", text, "ok")
	})
}
