package tokens

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
)

// removingShelf is a keyShelf that can remove keys.
type removingShelf struct {
	keyShelf
	removals int
}

func (s *removingShelf) RemoveKeys(_ context.Context, starts []int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removals++
	for _, start := range starts {
		delete(s.keys, start)
	}
	return nil
}

func (s *removingShelf) has(start int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.keys[start]
	return ok
}

const testLongest = 24 * time.Hour

// runRing returns a ring that knows the longest lifetime, and a function that
// ends it.
func runRing(t *testing.T, store KeyStore, now func() time.Time) (*Keyring, func()) {
	t.Helper()
	ring := NewKeyring(KeyringConfig{Store: store, Now: now, Longest: func() time.Duration { return testLongest }})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { ring.Run(ctx) })
	stop := func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return ring, stop
}

// TestRotation: three gateways with different clocks mint and verify all the time while keys are
// rotated. No token is refused before it expires.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &removingShelf{}
		var rings []*Keyring
		for _, skew := range []time.Duration{-250 * time.Millisecond, 0, 250 * time.Millisecond} {
			ring, _ := runRing(t, shelf, func() time.Time { return time.Now().Add(skew) })
			rings = append(rings, ring)
		}
		synctest.Wait()
		type minted struct {
			bearer Bearer
			at     time.Time
		}
		var living []minted
		for tick := range 1200 {
			if tick%100 == 10 {
				began := rings[tick%3].now()
				start, err := rings[tick%3].Rotate(t.Context())
				if err != nil || start.Sub(began) < time.Minute+15*time.Second {
					t.Fatalf("Rotate = %s, %v, want a start well over a minute after %s", start, err, began)
				}
			}
			for _, ring := range rings {
				at := ring.now()
				bearer, err := ring.mint(t.Context(), idgen.ID(tick), at)
				if err != nil {
					t.Fatalf("mint = %v, want a token", err)
				}
				living = append(living, minted{bearer, at})
			}
			for len(living) > 0 && time.Since(living[0].at) > testLongest {
				living = living[1:]
			}
			for i := 0; i < len(living); i += 1 + len(living)/20 {
				for _, ring := range rings {
					if err := ring.Verify(t.Context(), living[i].bearer, living[i].at); err != nil {
						t.Fatalf("Verify of a token minted %s ago = %v, want nil", time.Since(living[i].at), err)
					}
				}
			}
			time.Sleep(10*time.Minute + time.Duration(tick)*time.Second/10)
		}
		// 1200 ticks are more than eight days: keys of the first days are gone.
		if n := len(rings[0].Starts()); n > 5 || len(shelf.keys) != n {
			t.Errorf("%d keys here and %d in the store, want the outlived ones gone", n, len(shelf.keys))
		}
	})
}

// TestRotationMeetsABusyMinute: tokens are minted every 100 ms around the start
// of a key.
func TestRotationMeetsABusyMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &removingShelf{}
		one, _ := runRing(t, shelf, time.Now)
		other, _ := runRing(t, shelf, time.Now)
		synctest.Wait()
		start, err := one.Rotate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		keys := make(map[Key]bool)
		for time.Now().Before(start.Add(10 * time.Second)) {
			at := time.Now()
			bearer, err := one.mint(t.Context(), 1, at)
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Verify(t.Context(), bearer, at); err != nil {
				t.Fatalf("Verify of a token minted %s after the start = %v, want nil", at.Sub(start), err)
			}
			keys[*one.snapshot.Load().at(at)] = true
			time.Sleep(100 * time.Millisecond)
		}
		if len(keys) != 2 {
			t.Errorf("tokens were signed with %d keys, want two", len(keys))
		}
	})
}

// TestOutlivedKeysDoNotComeBack: a gateway that was disconnected all the time does not write
// removed keys back.
func TestOutlivedKeysDoNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &removingShelf{}
		late, stop := runRing(t, shelf, time.Now)
		ring, _ := runRing(t, shelf, time.Now)
		synctest.Wait()
		stop() // late does not read any longer
		start, err := ring.Rotate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(start) + testLongest + keysGrace)
		if !shelf.has(0) {
			t.Errorf("the first key is gone while tokens of it may be alive")
		}
		time.Sleep(20 * time.Second)
		if shelf.has(0) || len(ring.Starts()) != 1 {
			t.Errorf("the first key is still there when no token of it can be alive")
		}
		for range 3 {
			if err := late.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if shelf.has(0) {
				t.Errorf("a late gateway gives a key back that has been removed")
			}
			if err := ring.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if shelf.has(0) || len(ring.Starts()) != 1 || len(late.Starts()) != 1 {
			t.Errorf("the first key came back by a late gateway")
		}
		// Redis loses everything, and the late gateway's like writes it back first.
		shelf.set(func() { shelf.keys = map[int64]Key{0: testKey} })
		for range 2 {
			if err := ring.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if shelf.has(0) || !shelf.has(start.UnixMilli()) || len(ring.Starts()) != 1 {
			t.Errorf("the store holds %d keys, want the living one only", len(shelf.keys))
		}
	})
}

// TestKeysAreKeptWhileTheLongestLifetimeIsUnknown: no key is removed without that lifetime.
func TestKeysAreKeptWhileTheLongestLifetimeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := &removingShelf{}
		ring := NewKeyring(KeyringConfig{Store: shelf})
		if err := ring.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := ring.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1000 * time.Hour)
		if err := ring.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(ring.Starts()); n != 2 || shelf.removals != 0 {
			t.Errorf("%d keys after %d removals, want both kept", n, shelf.removals)
		}
	})
}

func TestRotateFailsPlainly(t *testing.T) {
	if _, err := FixedKeyring(testKey).Rotate(t.Context()); !errors.Is(err, ErrKeyFixed) {
		t.Errorf("Rotate of a fixed key = %v, want ErrKeyFixed", err)
	}
	shelf := &keyShelf{}
	ring := NewKeyring(KeyringConfig{Store: shelf})
	if _, err := ring.Rotate(t.Context()); !errors.Is(err, ErrUnavailable) || len(shelf.keys) != 0 {
		t.Errorf("Rotate before the first read = %v, want ErrUnavailable and nothing added", err)
	}
	if err := ring.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	shelf.fault = errDown
	if _, err := ring.Rotate(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Rotate with the store down = %v, want ErrUnavailable", err)
	}
}

func TestStarts(t *testing.T) {
	ring := NewKeyring(KeyringConfig{Store: &keyShelf{}})
	if got := ring.Starts(); len(got) != 0 {
		t.Errorf("Starts before the first read = %v, want none", got)
	}
	ring.Merge([]TagKey{{testEpoch.UnixMilli(), NewKey()}, {0, NewKey()}})
	if got := ring.Starts(); len(got) != 2 || !got[0].IsZero() || !got[1].Equal(testEpoch) {
		t.Errorf("Starts = %v, want the zero time and %s", got, testEpoch)
	}
}
