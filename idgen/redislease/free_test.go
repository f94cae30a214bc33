package redislease

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
)

// registryScene is a registry with the numbers 1 to 3, which 10.0.0.1 to 10.0.0.3 keep.
type registryScene struct {
	store
	t      *testing.T
	scheme idgen.Scheme
	leases map[string]idgen.Lease
}

// fullRegistry returns a scene in which those addresses hold their numbers.
func fullRegistry(t *testing.T, s store) *registryScene {
	t.Helper()
	r := &registryScene{s, t, scheme(t, layoutTiny), make(map[string]idgen.Lease)}
	settle(t, s, r.scheme)
	for n := int64(1); n <= 3; n++ {
		address := "10.0.0." + strconv.FormatInt(n, 10)
		l, err := r.take(address)
		if err != nil || l.Worker().Number != n {
			t.Fatalf("Registered at %s = %v, %v, want worker %d", address, l, err, n)
		}
		r.leases[address] = l
	}
	return r
}

func (r *registryScene) take(address string) (idgen.Lease, error) {
	return source(r.t, r.rdb, Registered(), quick(address)).Acquire(r.t.Context(), r.scheme, now(r.scheme))
}

// end ends the lease of a holder, as after a crash, and waits until its ceiling has passed.
func (r *registryScene) end(address string) {
	r.t.Helper()
	l := r.leases[address]
	eventually(r.t, "the ceiling passes", func() bool { return now(r.scheme) > l.Ceiling() })
	if err := r.rdb.ZAdd(r.t.Context(), "{sg}:wl", ended(l.Worker().Number)).Err(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registryScene) free(o FreeOptions) []Kept {
	r.t.Helper()
	freed, err := Free(r.t.Context(), r.rdb, r.scheme, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return freed
}

func TestFreeingNumbersOfARegistry(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		r := fullRegistry(t, s)
		_, err := r.take("10.0.0.4")
		wantErr(t, err, idgen.ErrNoWorker, ErrExhausted)
		if !strings.Contains(err.Error(), "snowgate ids free -unused") {
			t.Errorf("the error %q does not say what to do", err)
		}
		if freed := r.free(FreeOptions{Worker: -1}); len(freed) != 0 {
			t.Errorf("the numbers %v of living holders are freed", freed)
		}
		_, err = Free(t.Context(), s.rdb, r.scheme, FreeOptions{Worker: 2})
		wantErr(t, err, ErrTaken)
		if !strings.Contains(err.Error(), "10.0.0.2") {
			t.Errorf("the error %q does not name the holder", err)
		}

		r.end("10.0.0.2")
		want := []Kept{{2, "10.0.0.2"}}
		if diff := cmp.Diff(want, r.free(FreeOptions{Worker: -1, DryRun: true})); diff != "" {
			t.Errorf("dry run (-want +got)\n%s", diff)
		}
		if freed := r.free(FreeOptions{Worker: -1, Unused: time.Hour}); len(freed) != 0 {
			t.Errorf("%v is freed, an hour after its lease", freed)
		}
		_, err = r.take("10.0.0.4")
		wantErr(t, err, ErrExhausted)
		if diff := cmp.Diff(want, r.free(FreeOptions{Worker: -1})); diff != "" {
			t.Errorf("freed (-want +got)\n%s", diff)
		}

		l, err := r.take("10.0.0.4")
		if err != nil || l.Worker().Number != 2 {
			t.Fatalf("the next address gets %v, %v, want the freed number 2", l, err)
		}
		if past := r.leases["10.0.0.2"].Ceiling(); l.Floor() <= past {
			t.Errorf("the freed number starts at %d, its ceiling was %d", l.Floor(), past)
		}
		// The former holder continues: it has lost the number, and gets no other one.
		_, err = r.leases["10.0.0.2"].Extend(t.Context(), now(r.scheme))
		wantErr(t, err, idgen.ErrLeaseLost)
		_, err = r.take("10.0.0.2")
		wantErr(t, err, ErrExhausted)
	})
}

func TestFreeingOneNumber(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		r := fullRegistry(t, s)
		if err := r.leases["10.0.0.3"].Release(t.Context(), now(r.scheme)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next millisecond", newMillisecond())
		if diff := cmp.Diff([]Kept{{3, "10.0.0.3"}}, r.free(FreeOptions{Worker: 3})); diff != "" {
			t.Errorf("freed (-want +got)\n%s", diff)
		}
		if _, err := Free(t.Context(), s.rdb, r.scheme, FreeOptions{Worker: 3}); err == nil || !strings.Contains(err.Error(), "no address keeps") {
			t.Errorf("freeing it again: %v", err)
		}
		for _, worker := range []int64{-2, 4} {
			if _, err := Free(t.Context(), s.rdb, r.scheme, FreeOptions{Worker: worker}); err == nil {
				t.Errorf("worker %d is freed", worker)
			}
		}
		// The former address comes back first, and floor and number are as before.
		l, err := r.take("10.0.0.3")
		if err != nil || l.Worker().Number != 3 || l.Floor() <= r.leases["10.0.0.3"].Floor() {
			t.Fatalf("the next address gets %v, %v, want number 3 above its floor", l, err)
		}
	})
}

// Nothing is freed while it is not known which gateways are running: in the quarantine, in the
// registry of another scheme, and without a registry.
func TestFreeingIsRefused(t *testing.T) {
	s := miniStore(t)
	sc := scheme(t, layoutTiny)
	if _, err := Free(t.Context(), s.rdb, sc, FreeOptions{Worker: -1}); err == nil || !strings.Contains(err.Error(), "no registry") {
		t.Errorf("on an empty Redis: %v", err)
	}
	if keys := s.mini.Keys(); len(keys) != 0 {
		t.Errorf("freeing on an empty Redis has begun a registry: %v", keys)
	}
	r := fullRegistry(t, s)
	var foreign *SchemeError
	if _, err := Free(t.Context(), s.rdb, scheme(t, layoutA), FreeOptions{Worker: -1}); !asScheme(err, &foreign) {
		t.Errorf("with another layout: %v", err)
	}
	meta := s.mini.HGet("{sg}:w", "meta")
	fields := strings.Fields(meta)
	fields[1] = strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	s.mini.HSet("{sg}:w", "meta", strings.Join(fields, " "))
	_, err := Free(t.Context(), s.rdb, r.scheme, FreeOptions{Worker: -1})
	wantErr(t, err, ErrQuarantine)
}

// Redis returns to a state before a number was freed, so two addresses keep it. The address that
// holds it continues, and the other one gets another number.
func TestRegistryTellsTwoKeepersApart(t *testing.T) {
	onBoth(t, func(t *testing.T, s store) {
		r := fullRegistry(t, s)
		r.end("10.0.0.2")
		r.end("10.0.0.3")
		r.free(FreeOptions{Worker: 2})
		r.free(FreeOptions{Worker: 3})
		if l, err := r.take("10.0.0.4"); err != nil || l.Worker().Number != 2 {
			t.Fatalf("Registered = %v, %v, want worker 2", l, err)
		}
		if err := s.rdb.HSet(t.Context(), "{sg}:wr", "10.0.0.2", "2").Err(); err != nil {
			t.Fatal(err)
		}
		if l, err := r.take("10.0.0.2"); err != nil || l.Worker().Number != 3 {
			t.Errorf("the other address gets %v, %v, want worker 3", l, err)
		}
	})
}

// While a command frees numbers all the time, many addresses acquire them: no number has two
// holders.
func TestFreeingBesideAcquiring(t *testing.T) {
	s := realStore(t)
	r := fullRegistry(t, s)
	for address, l := range r.leases {
		if err := l.Release(t.Context(), now(r.scheme)); err != nil {
			t.Fatal(address, err)
		}
	}
	var mu sync.Mutex
	holder := map[int64]string{}
	marks := map[int64]int64{}
	done := make(chan struct{})
	var freeing, taking sync.WaitGroup
	freeing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				r.free(FreeOptions{Worker: -1})
			}
		}
	})
	got := 0
	for i := range 6 {
		taking.Go(func() {
			for turn := range 20 {
				address := "10.1." + strconv.Itoa(turn) + "." + strconv.Itoa(i)
				l, err := r.take(address)
				if err != nil {
					continue // exhausted; what counts is that nobody shares
				}
				n := l.Worker().Number
				mu.Lock()
				if other := holder[n]; other != "" || l.Floor() <= marks[n] {
					t.Errorf("%s has %d from %d on, held by %q with mark %d", address, n, l.Floor(), other, marks[n])
				}
				holder[n] = address
				got++
				mu.Unlock()
				mark := max(l.Floor(), now(r.scheme))
				mu.Lock()
				holder[n], marks[n] = "", mark
				mu.Unlock()
				if err := l.Release(t.Context(), mark); err != nil {
					t.Error(err)
				}
			}
		})
	}
	taking.Wait()
	close(done)
	freeing.Wait()
	if got < 10 {
		t.Errorf("only %d acquisitions succeeded", got)
	}
}

func ended(n int64) redis.Z { return redis.Z{Score: 1, Member: strconv.FormatInt(n, 10)} }

func asScheme(err error, target **SchemeError) bool { return errors.As(err, target) }
