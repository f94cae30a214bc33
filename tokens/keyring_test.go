package tokens

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
)

var testEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// keyShelf is a KeyStore in memory that counts.
type keyShelf struct {
	mu    sync.Mutex
	keys  map[int64]Key
	fault error
	reads int
	adds  int
	delay time.Duration
}

func (s *keyShelf) LoadKeys(ctx context.Context) ([]TagKey, error) {
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	time.Sleep(delay) // in a bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fault != nil {
		return nil, s.fault
	}
	var keys []TagKey
	for start, key := range s.keys {
		keys = append(keys, TagKey{start, key})
	}
	return keys, nil
}

func (s *keyShelf) AddKeys(_ context.Context, keys []TagKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adds++
	if s.fault != nil {
		return s.fault
	}
	if s.keys == nil {
		s.keys = make(map[int64]Key)
	}
	for _, key := range keys {
		if _, taken := s.keys[key.Start]; !taken {
			s.keys[key.Start] = key.Key
		}
	}
	return nil
}

func (s *keyShelf) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *keyShelf) readCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// ringOn returns a keyring on shelf that runs until the test ends, and the
// reports it made.
func ringOn(t *testing.T, shelf *keyShelf) (*Keyring, *[]error) {
	t.Helper()
	var reports []error
	ring := NewKeyring(KeyringConfig{Store: shelf, Report: func(err error) { reports = append(reports, err) }})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { ring.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return ring, &reports
}

var errDown = errors.Join(ErrUnavailable, errors.New("down"))

func TestKeyFollowsFromMintTime(t *testing.T) {
	ring := NewKeyring(KeyringConfig{Store: &keyShelf{}})
	first, second, third := NewKey(), NewKey(), NewKey()
	ms := testEpoch.UnixMilli()
	ring.Merge([]TagKey{{ms + 2000, third}, {0, first}, {ms, second}})
	tests := []struct {
		name   string
		minted time.Time
		want   Key
	}{
		{"long before", testEpoch.Add(-time.Hour), first},
		{"last moment of the first", testEpoch.Add(-time.Nanosecond), first},
		{"the very start", testEpoch, second},
		{"last moment of the second", testEpoch.Add(2*time.Second - time.Nanosecond), second},
		{"start of the third", testEpoch.Add(2 * time.Second), third},
		{"long after", testEpoch.Add(time.Hour), third},
	}
	for _, test := range tests {
		if got := ring.snapshot.Load().at(test.minted); got == nil || !got.Equal(test.want) {
			t.Errorf("%s: at(%v) is another key", test.name, test.minted)
		}
	}
	if got := ring.snapshot.Load().at(time.UnixMilli(-1)); got != nil {
		t.Errorf("at(before 1970) = %v, want none", got)
	}
	// A token that is signed with a known key, but not with the one for its id, is forged.
	if err := ring.Verify(t.Context(), mint(1, &first), testEpoch); !errors.Is(err, ErrForged) && !errors.Is(err, ErrUnavailable) {
		t.Errorf("Verify with the predecessor's key = %v, want a refusal", err)
	}
}

func TestFirstKeyIsSharedByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{}
		var rings []*Keyring
		for range 5 {
			ring, _ := ringOn(t, shelf)
			rings = append(rings, ring)
		}
		synctest.Wait()
		bearer, err := rings[0].mint(t.Context(), 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for i, ring := range rings {
			if err := ring.Verify(t.Context(), bearer, time.Now()); err != nil {
				t.Errorf("ring %d: Verify = %v, want nil", i, err)
			}
		}
		if len(shelf.keys) != 1 {
			t.Errorf("the store has %d keys, want 1", len(shelf.keys))
		}
	})
}

func TestNothingIsDecidedWithoutKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{fault: errDown}
		ring, reports := ringOn(t, shelf)
		time.Sleep(10 * time.Second)
		if err := ring.Verify(t.Context(), mint(1, &testKey), time.Now()); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrInvalid) {
			t.Errorf("Verify without keys = %v, want ErrUnavailable", err)
		}
		if _, err := ring.mint(t.Context(), 1, time.Now()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("mint without keys = %v, want ErrUnavailable", err)
		}
		shelf.set(func() { shelf.fault = nil })
		time.Sleep(200 * time.Millisecond) // contract: recovery within a second
		synctest.Wait()
		if !ring.Loaded() {
			t.Error("the keys are not loaded 0.2 s after the store is back")
		}
		if got := *reports; len(got) != 2 || got[0] == nil || got[1] != nil {
			t.Errorf("reports = %v, want the beginning and the end of the trouble", got)
		}
	})
}

func TestLostKeysAreWrittenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{keys: map[int64]Key{0: NewKey(), 1000: NewKey()}}
		want := maps.Clone(shelf.keys)
		ringOn(t, shelf)
		synctest.Wait()
		shelf.set(func() { delete(shelf.keys, 1000) })
		time.Sleep(15 * time.Second)
		shelf.set(func() {
			if !maps.Equal(shelf.keys, want) {
				t.Errorf("the store has %d keys, want both again", len(shelf.keys))
			}
		})
		shelf.set(func() { shelf.keys = nil })
		time.Sleep(15 * time.Second)
		shelf.set(func() {
			if !maps.Equal(shelf.keys, want) {
				t.Errorf("the store has %d keys after a wipe, want both again", len(shelf.keys))
			}
		})
	})
}

func TestStoreDecidesBetweenKeysOfOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{}
		ring, _ := ringOn(t, shelf)
		synctest.Wait()
		theirs := NewKey() // another gateway was first after a wipe
		shelf.set(func() { shelf.keys = map[int64]Key{0: theirs} })
		time.Sleep(15 * time.Second)
		if err := ring.Verify(t.Context(), mint(1, &theirs), time.Now()); err != nil {
			t.Errorf("Verify = %v, want the store's key to count", err)
		}
	})
}

func TestRotationReachesEveryRingInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{}
		ring, _ := ringOn(t, shelf)
		synctest.Wait()
		next := TagKey{time.Now().Add(time.Minute).UnixMilli(), NewKey()}
		if err := shelf.AddKeys(t.Context(), []TagKey{next}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		bearer, err := ring.mint(t.Context(), 1, time.Now())
		if err != nil || !bearer.signedBy(&next.Key) {
			t.Errorf("mint after the rotation = %v, %v, want the new key", bearer, err)
		}
	})
}

// TestForgeriesCauseNoTraffic: forged tokens cause no reads of the store, whatever the mint time in
// their ids.
func TestForgeriesCauseNoTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{}
		ring, _ := ringOn(t, shelf)
		time.Sleep(9 * time.Second) // the keys are as old as they get
		before := shelf.readCount()
		forged := mint(1, &testKey)
		for _, ahead := range []time.Duration{-time.Hour, 0, time.Second, keysAhead, time.Minute, time.Hour, 1000 * time.Hour} {
			for range 1000 {
				if err := ring.Verify(t.Context(), forged, time.Now().Add(ahead)); err != error(ErrForged) {
					t.Fatalf("Verify of a forgery minted at now%+v = %v, want ErrForged", ahead, err)
				}
			}
		}
		if got := shelf.readCount() - before; got != 0 {
			t.Errorf("7000 forgeries caused %d reads of the store, want 0", got)
		}
	})
}

// TestStaleKeysAreReadAgain: if the last read of the keys is too old, a gateway reads them before
// it refuses a token, once a second for all callers.
func TestStaleKeysAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{}
		ring := NewKeyring(KeyringConfig{Store: shelf})
		if err := ring.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := TagKey{time.Now().Add(61 * time.Second).UnixMilli(), NewKey()}
		if err := shelf.AddKeys(t.Context(), []TagKey{next}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // nobody runs the ring
		forged, fresh := mint(1, &testKey), mint(2, &next.Key)

		shelf.set(func() { shelf.fault, shelf.delay = errDown, 100*time.Millisecond })
		before := shelf.readCount()
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				if err := ring.Verify(t.Context(), forged, time.Now()); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrInvalid) {
					t.Errorf("Verify while the key may exist = %v, want ErrUnavailable", err)
				}
			})
		}
		wg.Wait()
		if _, err := ring.mint(t.Context(), 3, time.Now()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("mint while a newer key may exist = %v, want ErrUnavailable", err)
		}
		if got := shelf.readCount() - before; got != 1 {
			t.Errorf("500 callers caused %d reads, want 1", got)
		}

		shelf.set(func() { shelf.fault = nil })
		time.Sleep(keysReread)
		if err := ring.Verify(t.Context(), fresh, time.Now()); err != nil {
			t.Errorf("Verify of a token under the new key = %v, want nil", err)
		}
		if err := ring.Verify(t.Context(), forged, time.Now()); err != error(ErrForged) {
			t.Errorf("Verify of a forgery = %v, want ErrForged", err)
		}
	})
}

func TestOneCallerLeavingDoesNotFailOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &keyShelf{}
		ring := NewKeyring(KeyringConfig{Store: shelf})
		if err := ring.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		shelf.set(func() { shelf.delay = 100 * time.Millisecond })
		impatient, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = ring.Verify(impatient, mint(1, &testKey), time.Now()) })
		time.Sleep(10 * time.Millisecond)
		wg.Go(func() {
			if err := ring.Verify(t.Context(), mint(2, &testKey), time.Now()); err != error(ErrForged) {
				t.Errorf("Verify = %v, want ErrForged", err)
			}
		})
		leave()
		wg.Wait()
	})
}

func TestFixedKeyring(t *testing.T) {
	ring := FixedKeyring(testKey)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ring.Run(ctx)
	for _, minted := range []time.Time{testEpoch, testEpoch.Add(1000 * time.Hour), time.UnixMilli(0)} {
		bearer, err := ring.mint(t.Context(), idgen.ID(9), minted)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Verify(t.Context(), bearer, minted); err != nil {
			t.Errorf("Verify at %v = %v, want nil", minted, err)
		}
		other := NewKey()
		if err := ring.Verify(t.Context(), mint(9, &other), minted); err != error(ErrForged) {
			t.Errorf("Verify of a forgery at %v = %v, want ErrForged", minted, err)
		}
	}
}
