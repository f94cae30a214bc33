package tokenstest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// NewStoreFunc returns an empty store for a test, and a function that returns after the clock of
// the store has advanced by d: at once with a clock of the test, in real time with a real server.
type NewStoreFunc func(t *testing.T) (store tokens.Store, advance func(d time.Duration))

// SampleRecord returns a record with every field set, different for each n.
func SampleRecord(n byte) tokens.Record {
	return tokens.Record{
		Digest: tokens.Digest{0: n, 31: ^n},
		Token: tokens.Token{
			ID:        idgen.ID(int64(n)<<40 + 7),
			Client:    "orders-worker",
			Scope:     scope.Of("orders.read", "orders.write"),
			Audience:  []string{"https://orders.example", "https://billing.example"},
			ExpiresAt: time.UnixMilli(4102444800123),
		},
	}
}

// TestStore checks that a store keeps the contract of [tokens.Store].
func TestStore(t *testing.T, newStore NewStoreFunc) {
	t.Run("what was saved is loaded", func(t *testing.T) { testRoundTrip(t, newStore) })
	t.Run("a taken id is never overwritten", func(t *testing.T) { testTaken(t, newStore) })
	t.Run("of many writers one wins", func(t *testing.T) { testWriters(t, newStore) })
	t.Run("deleted is gone", func(t *testing.T) { testDelete(t, newStore) })
	t.Run("records vanish by themselves", func(t *testing.T) { testExpiry(t, newStore) })
	t.Run("an ended context decides nothing", func(t *testing.T) { testContext(t, newStore) })
}

func testRoundTrip(t *testing.T, newStore NewStoreFunc) {
	full, bare := SampleRecord(1), SampleRecord(2)
	bare.Token.Scope, bare.Token.Audience = "", nil
	greatest := SampleRecord(3)
	greatest.Token.ID = 1<<63 - 1
	greatest.Token.Client = "client-\x00\xff:{}*"
	store, _ := newStore(t)
	for _, want := range []tokens.Record{full, bare, greatest} {
		save(t, store, want, time.Minute)
		got, err := store.Load(t.Context(), want.Token.ID)
		if err != nil {
			t.Fatalf("Load(%v) = %v, want the record", want.Token.ID, err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(tokens.Digest.Equal)); diff != "" {
			t.Errorf("Load(%v) differs (-want +got):\n%s", want.Token.ID, diff)
		}
	}
	wantUnknown(t, store, 4711)
}

func testTaken(t *testing.T, newStore NewStoreFunc) {
	store, _ := newStore(t)
	first, other := SampleRecord(1), SampleRecord(2)
	other.Token.ID = first.Token.ID
	save(t, store, first, time.Minute)
	// A write that is repeated because its reply was lost finds its own record.
	save(t, store, first, time.Minute)
	if err := store.Save(t.Context(), other, time.Minute); !errors.Is(err, tokens.ErrDuplicateID) {
		t.Errorf("Save of another record under the id = %v, want ErrDuplicateID", err)
	}
	got, err := store.Load(t.Context(), first.Token.ID)
	if err != nil || !got.Digest.Equal(first.Digest) {
		t.Errorf("Load = %v, %v, want the first record unchanged", got, err)
	}
	if err := store.Save(t.Context(), SampleRecord(3), 0); err == nil || errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Save for no time at all = %v, want a plain error", err)
	}
}

func testWriters(t *testing.T, newStore NewStoreFunc) {
	const writers = 16
	store, _ := newStore(t)
	var wg sync.WaitGroup
	results := make([]error, writers)
	for i := range writers {
		r := SampleRecord(byte(i))
		r.Token.ID = 99
		wg.Go(func() { results[i] = store.Save(t.Context(), r, time.Minute) })
	}
	wg.Wait()
	got, err := store.Load(t.Context(), 99)
	if err != nil {
		t.Fatalf("Load = %v, want one of the records", err)
	}
	for i, err := range results {
		won := got.Digest.Equal(SampleRecord(byte(i)).Digest)
		if won && err != nil || !won && !errors.Is(err, tokens.ErrDuplicateID) {
			t.Errorf("Save by writer %d = %v; its record is there: %t", i, err, won)
		}
	}
}

func testDelete(t *testing.T, newStore NewStoreFunc) {
	store, _ := newStore(t)
	doomed, bystander := SampleRecord(1), SampleRecord(2)
	save(t, store, doomed, time.Minute)
	save(t, store, bystander, time.Minute)
	for range 2 { // removing what is not there is no error
		if err := store.Delete(t.Context(), doomed.Token.ID); err != nil {
			t.Errorf("Delete = %v, want nil", err)
		}
		wantUnknown(t, store, doomed.Token.ID)
	}
	if _, err := store.Load(t.Context(), bystander.Token.ID); err != nil {
		t.Errorf("Load of another token after the deletion = %v, want it", err)
	}
	save(t, store, doomed, time.Minute) // the id is free again
}

func testExpiry(t *testing.T, newStore NewStoreFunc) {
	const (
		ttl  = 1500 * time.Millisecond
		late = 500 * time.Millisecond // what a store may take to notice
	)
	store, advance := newStore(t)
	short, long, instant := SampleRecord(1), SampleRecord(2), SampleRecord(3)
	save(t, store, short, ttl)
	save(t, store, long, time.Minute)
	save(t, store, instant, time.Nanosecond) // rounded up, not refused
	if _, err := store.Load(t.Context(), short.Token.ID); err != nil {
		t.Errorf("Load within the lifetime = %v, want the record", err)
	}
	advance(ttl + late)
	wantUnknown(t, store, short.Token.ID)
	wantUnknown(t, store, instant.Token.ID)
	if _, err := store.Load(t.Context(), long.Token.ID); err != nil {
		t.Errorf("Load of one that lives longer = %v, want the record", err)
	}
}

func testContext(t *testing.T, newStore NewStoreFunc) {
	store, _ := newStore(t)
	r := SampleRecord(1)
	save(t, store, r, time.Minute)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	for name, ctx := range map[string]context.Context{"canceled": canceled, "late": late} {
		_, loaded := store.Load(ctx, r.Token.ID)
		_, unknown := store.Load(ctx, 4711)
		for op, err := range map[string]error{
			"Load":            loaded,
			"Load of nothing": unknown,
			"Save":            store.Save(ctx, SampleRecord(2), time.Minute),
			"Delete":          store.Delete(ctx, r.Token.ID),
		} {
			if !errors.Is(err, tokens.ErrUnavailable) || errors.Is(err, tokens.ErrInvalid) {
				t.Errorf("%s with a context that is %s = %v, want ErrUnavailable", op, name, err)
			}
		}
	}
	if _, err := store.Load(t.Context(), r.Token.ID); err != nil {
		t.Errorf("Load after a Delete that was not carried out = %v, want the record", err)
	}
}

// TestKeyStore checks that a store keeps the contract of [tokens.KeyStore].
func TestKeyStore(t *testing.T, newStore func(t *testing.T) tokens.KeyStore) {
	t.Run("keys are added once", func(t *testing.T) {
		store := newStore(t)
		first, second, late := tokens.NewKey(), tokens.NewKey(), tokens.NewKey()
		wantKeys(t, store, nil)
		add(t, store, tokens.TagKey{Start: 0, Key: first})
		add(t, store, tokens.TagKey{Start: 0, Key: second}, tokens.TagKey{Start: 1786543210123, Key: late})
		wantKeys(t, store, map[int64]tokens.Key{0: first, 1786543210123: late})
	})
	t.Run("gateways that start together agree", func(t *testing.T) {
		store := newStore(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := store.AddKeys(t.Context(), []tokens.TagKey{{Key: tokens.NewKey()}}); err != nil {
					t.Errorf("AddKeys = %v, want nil", err)
				}
			})
		}
		wg.Wait()
		if keys, err := store.LoadKeys(t.Context()); err != nil || len(keys) != 1 {
			t.Errorf("LoadKeys = %v, %v, want one key", keys, err)
		}
	})
}

func save(t *testing.T, store tokens.Store, r tokens.Record, ttl time.Duration) {
	t.Helper()
	if err := store.Save(t.Context(), r, ttl); err != nil {
		t.Fatalf("Save(%v) = %v, want nil", r.Token.ID, err)
	}
}

func wantUnknown(t *testing.T, store tokens.Store, id idgen.ID) {
	t.Helper()
	_, err := store.Load(t.Context(), id)
	if !errors.Is(err, tokens.ErrUnknown) || errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("Load(%v) = %v, want ErrUnknown", id, err)
	}
}

func add(t *testing.T, store tokens.KeyStore, keys ...tokens.TagKey) {
	t.Helper()
	if err := store.AddKeys(t.Context(), keys); err != nil {
		t.Fatalf("AddKeys = %v, want nil", err)
	}
}

func wantKeys(t *testing.T, store tokens.KeyStore, want map[int64]tokens.Key) {
	t.Helper()
	keys, err := store.LoadKeys(t.Context())
	if err != nil {
		t.Fatalf("LoadKeys = %v, want keys", err)
	}
	got := make(map[int64]tokens.Key)
	for _, key := range keys {
		got[key.Start] = key.Key
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(tokens.Key.Equal)); len(keys) != len(want) || len(want) > 0 && diff != "" {
		t.Errorf("LoadKeys differs (-want +got):\n%s", diff)
	}
}
