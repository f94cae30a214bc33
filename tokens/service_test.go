package tokens_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC)

// counter is a generator whose ids are instants in milliseconds, shifted left,
// so that mintTime can read them.
type counter struct {
	clock *tokenstest.Clock
	next  atomic.Int64
	fault error
	fixed []idgen.ID // handed out first
	mu    sync.Mutex
}

const sequenceBits = 22

func (c *counter) Next(context.Context) (idgen.ID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return 0, c.fault
	}
	if len(c.fixed) > 0 {
		id := c.fixed[0]
		c.fixed = c.fixed[1:]
		return id, nil
	}
	return idgen.ID(c.clock.Now().UnixMilli()<<sequenceBits | c.next.Add(1)), nil
}

func mintTime(id idgen.ID) time.Time { return time.UnixMilli(int64(id) >> sequenceBits) }

// results is an Observer.
type results struct {
	mu  sync.Mutex
	got []string
}

func (r *results) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, text)
}
func (r *results) Issued(result string)    { r.add("issued " + result) }
func (r *results) Validated(result string) { r.add("validated " + result) }
func (r *results) Revoked(result string)   { r.add("revoked " + result) }

type fixture struct {
	*tokens.Service
	clock      *tokenstest.Clock
	store      *tokenstest.Store
	ids        *counter
	results    *results
	duplicates []idgen.ID
}

func newFixture() *fixture {
	f := &fixture{clock: tokenstest.NewClock(start), results: &results{}}
	f.store = tokenstest.NewStore(f.clock.Now)
	f.ids = &counter{clock: f.clock}
	f.Service = tokens.NewService(tokens.Config{
		Store:       f.store,
		Keys:        tokens.FixedKeyring(tokens.Key{1, 2, 3}),
		IDs:         f.ids,
		MintTime:    mintTime,
		Now:         f.clock.Now,
		Observer:    f.results,
		DuplicateID: func(id idgen.ID) { f.duplicates = append(f.duplicates, id) },
	})
	return f
}

var grant = tokens.Claims{
	Client:   "orders-worker",
	Scope:    scope.Of("orders.read", "orders.write"),
	Audience: []string{"https://orders.example"},
	TTL:      time.Hour,
}

func (f *fixture) issue(t *testing.T) (string, tokens.Token) {
	t.Helper()
	bearer, token, err := f.Issue(t.Context(), grant)
	if err != nil {
		t.Fatalf("Issue = %v, want a token", err)
	}
	return bearer.Reveal(), token
}

func TestIssuedTokenIsValid(t *testing.T) {
	f := newFixture()
	text, issued := f.issue(t)
	want := tokens.Token{
		ID:        issued.ID,
		Client:    grant.Client,
		Scope:     grant.Scope,
		Audience:  grant.Audience,
		IssuedAt:  time.UnixMilli(start.UnixMilli()),
		ExpiresAt: time.UnixMilli(start.Add(time.Hour).UnixMilli()),
	}
	if diff := cmp.Diff(want, issued); diff != "" {
		t.Errorf("Issue differs (-want +got):\n%s", diff)
	}
	got, err := f.Validate(t.Context(), text)
	if err != nil {
		t.Fatalf("Validate = %v, want the token", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Validate differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"issued ok", "validated ok"}, f.results.got); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
	if saves, loads := f.store.Calls("Save"), f.store.Calls("Load"); saves != 1 || loads != 1 {
		t.Errorf("%d saves and %d loads, want one each", saves, loads)
	}
}

func TestGrantIsCopied(t *testing.T) {
	f := newFixture()
	g := grant
	g.Audience = slices.Clone(grant.Audience)
	bearer, token, err := f.Issue(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	g.Audience[0] = "https://elsewhere.example"
	again, err := f.Validate(t.Context(), bearer.Reveal())
	if err != nil || again.Audience[0] != grant.Audience[0] || token.Audience[0] != grant.Audience[0] {
		t.Errorf("the audience follows the caller's slice")
	}
}

func TestExpiryIsExact(t *testing.T) {
	f := newFixture()
	text, token := f.issue(t)
	f.clock.Advance(token.ExpiresAt.Sub(f.clock.Now()) - time.Nanosecond)
	if _, err := f.Validate(t.Context(), text); err != nil {
		t.Errorf("Validate in the last nanosecond = %v, want the token", err)
	}
	f.clock.Advance(time.Nanosecond)
	if _, err := f.Validate(t.Context(), text); !errors.Is(err, tokens.ErrExpired) {
		t.Errorf("Validate at the very expiry = %v, want ErrExpired", err)
	}
	f.clock.Advance(2 * time.Second)
	if _, err := f.Validate(t.Context(), text); !errors.Is(err, tokens.ErrUnknown) {
		t.Errorf("Validate two seconds later = %v, want ErrUnknown: the record is gone by itself", err)
	}
}

// damaged returns text with one character of the given part replaced.
func damaged(text string, i int) string {
	c := byte('0')
	if text[i] == '0' {
		c = '1'
	}
	return text[:i] + string(c) + text[i+1:]
}

func TestRefusals(t *testing.T) {
	f := newFixture()
	text, token := f.issue(t)
	record, err := f.store.Load(t.Context(), token.ID)
	if err != nil {
		t.Fatal(err)
	}
	other := tokens.NewService(tokens.Config{
		Store: f.store, Keys: tokens.FixedKeyring(tokens.NewKey()), IDs: f.ids, MintTime: mintTime, Now: f.clock.Now,
	})
	foreign, _, err := other.Issue(t.Context(), grant)
	if err != nil {
		t.Fatal(err)
	}
	calls := f.store.Calls("")
	tests := []struct {
		name, text string
		want       error
	}{
		{"nothing", "", tokens.ErrMalformed},
		{"the id alone", token.ID.String(), tokens.ErrMalformed},
		{"the key in the store", "sg:t:" + token.ID.String(), tokens.ErrMalformed},
		{"the digest", string(record.Digest[:]), tokens.ErrMalformed},
		{"one short", text[:69], tokens.ErrMalformed},
		{"one long", text + "0", tokens.ErrMalformed},
		{"a megabyte", strings.Repeat(text, 15000), tokens.ErrMalformed},
		{"another id", damaged(text, 13), tokens.ErrForged},
		{"another secret", damaged(text, 40), tokens.ErrForged},
		{"another tag", damaged(text, 69), tokens.ErrForged},
		{"signed by somebody else", foreign.Reveal(), tokens.ErrForged},
	}
	for _, test := range tests {
		got, err := f.Validate(t.Context(), test.text)
		if !got.IsZero() || !errors.Is(err, test.want) || !errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("%s: Validate = %v, %v, want %v", test.name, got, err, test.want)
		}
		if err := f.Revoke(t.Context(), test.text, grant.Client); err != nil {
			t.Errorf("%s: Revoke = %v, want nil (RFC 7009 §2.2)", test.name, err)
		}
	}
	if got := f.store.Calls(""); got != calls {
		t.Errorf("malformed and forged tokens caused %d calls of the store, want 0", got-calls)
	}
	if _, err := f.Validate(t.Context(), text); err != nil {
		t.Errorf("Validate of the real one afterwards = %v, want it", err)
	}
}

// TestMixedUpReply: if the store returns the record of another id, the caller must not get the
// identity in it. The error says that the store is inconsistent, and nothing about the token.
func TestMixedUpReply(t *testing.T) {
	f := newFixture()
	text, token := f.issue(t)
	_, victim := f.issue(t)
	record, err := f.store.Load(t.Context(), victim.ID)
	if err != nil {
		t.Fatal(err)
	}
	record.Token.ID = token.ID
	f.store.Put(record, time.Hour)
	for range 2 {
		got, err := f.Validate(t.Context(), text)
		if !got.IsZero() || !errors.Is(err, tokens.ErrMismatch) || !errors.Is(err, tokens.ErrUnavailable) || errors.Is(err, tokens.ErrInvalid) {
			t.Errorf("Validate = %v, %v, want ErrMismatch, which is an ErrUnavailable", got, err)
		}
	}
	if err := f.Revoke(t.Context(), text, grant.Client); !errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Revoke = %v, want ErrUnavailable: the token may live where the store is right", err)
	}
	if _, err := f.store.Load(t.Context(), token.ID); err != nil {
		t.Errorf("Revoke deleted a record that is not the token's: %v", err)
	}
}

func TestRevoke(t *testing.T) {
	f := newFixture()
	text, _ := f.issue(t)
	if err := f.Revoke(t.Context(), text, "somebody-else"); !errors.Is(err, tokens.ErrForeignToken) {
		t.Errorf("Revoke by another client = %v, want ErrForeignToken", err)
	}
	if _, err := f.Validate(t.Context(), text); err != nil {
		t.Errorf("Validate after that = %v, want the token to live", err)
	}
	for range 2 { // revoking again is no error
		if err := f.Revoke(t.Context(), text, grant.Client); err != nil {
			t.Errorf("Revoke = %v, want nil", err)
		}
		if _, err := f.Validate(t.Context(), text); !errors.Is(err, tokens.ErrUnknown) {
			t.Errorf("Validate after Revoke = %v, want ErrUnknown", err)
		}
	}
	want := []string{"issued ok", "revoked foreign", "validated ok", "revoked ok", "validated unknown", "revoked unknown", "validated unknown"}
	if diff := cmp.Diff(want, f.results.got); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
}

func TestRevokeID(t *testing.T) {
	f := newFixture()
	text, token := f.issue(t)
	for range 2 {
		if err := f.RevokeID(t.Context(), token.ID); err != nil {
			t.Errorf("RevokeID = %v, want nil", err)
		}
	}
	if _, err := f.Validate(t.Context(), text); !errors.Is(err, tokens.ErrUnknown) {
		t.Errorf("Validate after RevokeID = %v, want ErrUnknown", err)
	}
}

func TestStoreTroubleSaysNothingAboutTokens(t *testing.T) {
	f := newFixture()
	text, token := f.issue(t)
	f.store.Fail(func(string) error { return errors.New("down") })
	_, _, issued := f.Issue(t.Context(), grant)
	_, validated := f.Validate(t.Context(), text)
	for call, err := range map[string]error{
		"Issue":    issued,
		"Validate": validated,
		"Revoke":   f.Revoke(t.Context(), text, grant.Client),
		"RevokeID": f.RevokeID(t.Context(), token.ID),
	} {
		if !errors.Is(err, tokens.ErrUnavailable) || errors.Is(err, tokens.ErrInvalid) || tokens.Reason(err) != "unavailable" {
			t.Errorf("%s with the store down = %v, want ErrUnavailable", call, err)
		}
	}
	// Found and owned, but it could not be deleted.
	f.store.Fail(func(op string) error {
		if op == "Delete" {
			return errors.New("read-only")
		}
		return nil
	})
	if err := f.Revoke(t.Context(), text, grant.Client); !errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Revoke with a store that cannot delete = %v, want ErrUnavailable", err)
	}
}

func TestTakenIDs(t *testing.T) {
	f := newFixture()
	_, first := f.issue(t)
	f.ids.fixed = []idgen.ID{first.ID, first.ID}
	text, second := f.issue(t)
	if second.ID == first.ID {
		t.Errorf("two tokens share the id %v", first.ID)
	}
	if _, err := f.Validate(t.Context(), text); err != nil {
		t.Errorf("Validate = %v, want the second token", err)
	}
	f.ids.fixed = slices.Repeat([]idgen.ID{first.ID}, 10)
	if _, _, err := f.Issue(t.Context(), grant); !errors.Is(err, tokens.ErrUnavailable) || !errors.Is(err, tokens.ErrDuplicateID) {
		t.Errorf("Issue with a broken generator = %v, want ErrUnavailable because of ErrDuplicateID", err)
	}
	if len(f.ids.fixed) != 7 || len(f.duplicates) != 5 {
		t.Errorf("%d ids tried and %d reported, want 3 and 5", 10-len(f.ids.fixed), len(f.duplicates))
	}
}

func TestGeneratorTrouble(t *testing.T) {
	f := newFixture()
	f.ids.fault = idgen.ErrClosed
	if _, _, err := f.Issue(t.Context(), grant); !errors.Is(err, tokens.ErrUnavailable) || !errors.Is(err, idgen.ErrClosed) {
		t.Errorf("Issue = %v, want ErrUnavailable because of the generator", err)
	}
	f.ids.fault, f.ids.fixed = nil, []idgen.ID{-1}
	if bearer, _, err := f.Issue(t.Context(), grant); !errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Issue with a negative id = %v, %v, want ErrUnavailable", bearer, err)
	}
}

func TestGrantIsChecked(t *testing.T) {
	f := newFixture()
	for name, g := range map[string]tokens.Claims{
		"no client":       {TTL: time.Hour},
		"no lifetime":     {Client: "a"},
		"ended lifetime":  {Client: "a", TTL: -time.Hour},
		"too short a one": {Client: "a", TTL: time.Microsecond},
	} {
		if _, _, err := f.Issue(t.Context(), g); err == nil || errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("%s: Issue = %v, want a plain error", name, err)
		}
	}
	if got := f.store.Calls(""); got != 0 {
		t.Errorf("%d calls of the store, want 0", got)
	}
}

func TestTimeoutBoundsTheWholeDecision(t *testing.T) {
	f := newFixture()
	var deadlines atomic.Int32
	watch := storeFunc(func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= time.Second {
			deadlines.Add(1)
		}
		return nil
	})
	s := tokens.NewService(tokens.Config{
		Store: watch, Keys: tokens.FixedKeyring(tokens.Key{}), IDs: f.ids, MintTime: mintTime, Now: f.clock.Now, Timeout: time.Second,
	})
	bearer, _, err := s.Issue(t.Context(), grant)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Validate(t.Context(), bearer.Reveal())
	_ = s.RevokeID(t.Context(), bearer.ID())
	if got := deadlines.Load(); got != 3 {
		t.Errorf("%d of 3 calls of the store had the deadline", got)
	}
}

// storeFunc is a store that only looks at contexts.
type storeFunc func(context.Context) error

func (f storeFunc) Save(ctx context.Context, _ tokens.Record, _ time.Duration) error { return f(ctx) }
func (f storeFunc) Delete(ctx context.Context, _ idgen.ID) error                     { return f(ctx) }
func (f storeFunc) Load(ctx context.Context, _ idgen.ID) (tokens.Record, error) {
	return tokens.Record{}, f(ctx)
}

func TestFakeKeepsTheContract(t *testing.T) {
	tokenstest.TestStore(t, func(*testing.T) (tokens.Store, func(time.Duration)) {
		clock := tokenstest.NewClock(start)
		return tokenstest.NewStore(clock.Now), clock.Advance
	})
	tokenstest.TestKeyStore(t, func(*testing.T) tokens.KeyStore { return tokenstest.NewStore(time.Now) })
	tokenstest.TestRuleStore(t, func(*testing.T) (tokens.RuleStore, func() time.Time) {
		clock := tokenstest.NewClock(start)
		return tokenstest.NewStore(clock.Now), clock.Now
	})
}

func TestConcurrentUse(t *testing.T) {
	f := newFixture()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				bearer, _, err := f.Issue(t.Context(), grant)
				if err != nil {
					t.Errorf("Issue = %v", err)
					return
				}
				if _, err := f.Validate(t.Context(), bearer.Reveal()); err != nil {
					t.Errorf("Validate = %v", err)
				}
				if err := f.Revoke(t.Context(), bearer.Reveal(), grant.Client); err != nil {
					t.Errorf("Revoke = %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// quiet returns the same service without the observer, which remembers.
func (f *fixture) quiet() *tokens.Service {
	return tokens.NewService(tokens.Config{
		Store: f.store, Keys: tokens.FixedKeyring(tokens.Key{1, 2, 3}), IDs: f.ids, MintTime: mintTime, Now: f.clock.Now,
	})
}

// BenchmarkRefuse measures the cost of refusing an invalid token: less than 1 µs.
func BenchmarkRefuse(b *testing.B) {
	f := newFixture()
	bearer, _, err := f.Issue(b.Context(), grant)
	if err != nil {
		b.Fatal(err)
	}
	text := bearer.Reveal()
	quiet := f.quiet()
	for name, bad := range map[string]string{"malformed": text[:69] + "!", "forged": damaged(text, 69)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := quiet.Validate(b.Context(), bad); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}

// BenchmarkParseVerify measures the work of every request before the look-up.
func BenchmarkParseVerify(b *testing.B) {
	f := newFixture()
	ring := tokens.FixedKeyring(tokens.Key{1, 2, 3})
	bearer, token, err := f.Issue(b.Context(), grant)
	if err != nil {
		b.Fatal(err)
	}
	text := bearer.Reveal()
	b.ReportAllocs()
	for b.Loop() {
		parsed, err := tokens.ParseBearer(text)
		if err == nil {
			err = ring.Verify(b.Context(), parsed, token.IssuedAt)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	f := newFixture()
	bearer, _, err := f.Issue(b.Context(), grant)
	if err != nil {
		b.Fatal(err)
	}
	quiet := f.quiet()
	text := bearer.Reveal()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := quiet.Validate(b.Context(), text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIssue(b *testing.B) {
	quiet := newFixture().quiet()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := quiet.Issue(b.Context(), grant); err != nil {
			b.Fatal(err)
		}
	}
}
