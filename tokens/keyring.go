package tokens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"snowgate/idgen"
	"snowgate/internal/deadline"
)

// How a [Keyring] keeps up with its store. A key starts at least a minute after
// it was added, so a ring that was read at instant R is complete for every mint
// time before R + 60 s.
const (
	keysComplete  = 50 * time.Second       // of those 60 s, what clocks that differ leave
	keysAhead     = 10 * time.Second       // no clock in a fleet is this far in front of another
	keysRefresh   = 10 * time.Second       // between two reads when all is well
	keysRetry     = time.Second            // after a failed read, when there are keys to work with
	keysFirstLoad = 100 * time.Millisecond // after a failed read, when there are none
	keysReread    = time.Second            // at most one read in this time on behalf of callers
	keysLead      = 90 * time.Second       // from a rotation to the start of its key: those 60 s and what a slow write may take
	keysGrace     = 10 * time.Minute       // how much longer a key is kept than any token of it can live
	keysRotate    = 10 * time.Second       // budget of a rotation
)

// TagKey is a key and the instant from which on it signs.
type TagKey struct {
	// Start is in Unix milliseconds. The first key of a deployment has 0.
	Start int64
	Key   Key
}

// KeyStore keeps the keys that all gateways of a deployment share. One that is a
// [KeyRemover] too is relieved of keys that no living token was signed with.
// Implementations are safe for concurrent use; whatever goes wrong matches
// [ErrUnavailable].
type KeyStore interface {
	// LoadKeys returns all keys in no particular order, none if there are none.
	LoadKeys(ctx context.Context) ([]TagKey, error)
	// AddKeys adds those keys whose start is free. It never overwrites: of
	// several gateways that add a key with the same start, one wins, and which
	// one LoadKeys tells.
	AddKeys(ctx context.Context, keys []TagKey) error
}

// KeyringConfig is what a [Keyring] is made of.
type KeyringConfig struct {
	// Store holds the keys. Required.
	Store KeyStore
	// Now is the clock that ids are minted by. Default: time.Now.
	Now func() time.Time
	// Longest returns the longest lifetime of a token that was ever permitted, 0
	// while that is not known: see [Rules.Longest]. nil: it is never known, and
	// keys are kept for ever.
	Longest func() time.Duration
	// Report, if set, is told the error when reading the keys begins to fail,
	// and nil when it works again. It is called by one goroutine at a time.
	Report func(error)
}

// Keyring holds the keys of the tag. Looking a key up is one atomic load.
// All methods are safe for concurrent use; use [NewKeyring] or [FixedKeyring].
type Keyring struct {
	store    KeyStore // nil if the key is fixed
	now      func() time.Time
	longest  func() time.Duration
	report   func(error)
	snapshot atomic.Pointer[keySet]

	gate    chan struct{} // held by whoever reads the store; guards what follows
	tried   time.Time     // when the store was last read
	outcome error         // what came of it
}

// keySet is an immutable set of keys in the order of their starts.
type keySet struct {
	keys []TagKey
	read time.Time // just before they were read
}

// errKeysMissing is why nothing can be decided before the first read.
var errKeysMissing = fmt.Errorf("%w: the tag keys are not loaded yet", ErrUnavailable)

// FixedKeyring returns a keyring that holds one key for all times and needs no
// store. Its Run does nothing but wait.
func FixedKeyring(key Key) *Keyring {
	r := &Keyring{now: time.Now, longest: unknownLongest}
	r.snapshot.Store(&keySet{keys: []TagKey{{Key: key}}})
	return r
}

// NewKeyring returns an empty keyring on cfg.Store. It has no keys until Run
// has read them; until then every decision is [ErrUnavailable].
func NewKeyring(cfg KeyringConfig) *Keyring {
	if cfg.Store == nil {
		panic("tokens: NewKeyring without a store")
	}
	r := &Keyring{store: cfg.Store, now: cfg.Now, longest: cfg.Longest, report: cfg.Report, gate: make(chan struct{}, 1)}
	if r.now == nil {
		r.now = time.Now
	}
	if r.longest == nil {
		r.longest = unknownLongest
	}
	if r.report == nil {
		r.report = func(error) {}
	}
	return r
}

func unknownLongest() time.Duration { return 0 }

// Run reads the keys until ctx ends: at once, with jittered retries of about
// 0.1 s until it succeeds, and every ten seconds from then on. A store that is
// empty is given a first key; one that lost keys is given them back. It must be
// running while the keyring is in use.
func (r *Keyring) Run(ctx context.Context) {
	for {
		if deadline.Sleep(ctx, r.pause(r.Refresh(ctx))) != nil {
			return
		}
	}
}

// pause tells how long after a read with result err the next one comes.
func (r *Keyring) pause(err error) time.Duration {
	pause := keysRefresh
	switch {
	case err != nil && !r.Loaded():
		pause = keysFirstLoad
	case err != nil:
		pause = keysRetry
	}
	return pause + rand.N(pause/2) //nolint:gosec // nobody gains by guessing it: it keeps gateways out of step
}

// Loaded reports whether there are keys to work with.
func (r *Keyring) Loaded() bool { return r.snapshot.Load() != nil }

// Starts returns the instants from which on the keys sign, in order: the zero
// time for the first key of a deployment. It is empty before the first read.
func (r *Keyring) Starts() []time.Time {
	set := r.snapshot.Load()
	if set == nil {
		return nil
	}
	starts := make([]time.Time, len(set.keys))
	for i, key := range set.keys {
		if key.Start != 0 {
			starts[i] = time.UnixMilli(key.Start).UTC()
		}
	}
	return starts
}

// ErrKeyFixed says that a keyring has one key for all times.
var ErrKeyFixed = errors.New("tokens: the tag key is fixed by the configuration, so it cannot be rotated")

// Rotate adds a key to the store and returns the instant from which on it signs,
// a minute and a half from now: by then every gateway has read it. Tokens signed
// with the keys before it stay valid. After an error, which is [ErrKeyFixed] or
// matches [ErrUnavailable], the key may have been added all the same.
func (r *Keyring) Rotate(ctx context.Context) (start time.Time, err error) {
	if r.store == nil {
		return time.Time{}, ErrKeyFixed
	}
	if !r.Loaded() {
		return time.Time{}, errKeysMissing // the first key starts in 1970, and comes first
	}
	ctx, cancel := context.WithTimeout(ctx, keysRotate)
	defer cancel()
	key := TagKey{Start: r.now().Add(keysLead).UnixMilli(), Key: NewKey()}
	if err := r.store.AddKeys(ctx, []TagKey{key}); err != nil {
		return time.Time{}, err
	}
	// If another gateway took the same millisecond, its key is the one.
	if err := r.Refresh(ctx); err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(key.Start).UTC(), nil
}

// Merge adds keys. One whose start is known already replaces the one here: the
// store is the arbiter between gateways. Keys that no living token can be signed
// with go. It is for keys learned by other ways than reading the store, and not
// for a fixed keyring.
func (r *Keyring) Merge(keys []TagKey) {
	for {
		old := r.snapshot.Load()
		next := &keySet{}
		if old != nil {
			next.keys, next.read = slices.Clone(old.keys), old.read
		}
		next.add(keys)
		next.keys = next.keys[r.outlived(next.keys):]
		if len(next.keys) == 0 || r.snapshot.CompareAndSwap(old, next) {
			return
		}
	}
}

// outlived returns how many of the keys, which are in the order of their starts,
// no living token can be signed with. The last token of a key was minted when
// the next one started. Every gateway comes to the same result, whatever other
// keys it knows, so none gives back what another one has removed.
func (r *Keyring) outlived(keys []TagKey) int {
	longest := r.longest()
	if longest <= 0 {
		return 0
	}
	over := r.now().Add(-longest - keysGrace).UnixMilli()
	n := 0
	for n+1 < len(keys) && keys[n+1].Start < over {
		n++
	}
	return n
}

// Verify judges the tag of b, which was minted at the given instant: nil,
// [ErrForged], or [ErrUnavailable] if the key for that instant may exist and
// cannot be had. It asks the store only if the last read is too old to know all
// keys for that instant, at most about once a second for all callers together:
// a flood of forgeries costs the store nothing. Otherwise it does not allocate.
func (r *Keyring) Verify(ctx context.Context, b Bearer, minted time.Time) error {
	set := r.snapshot.Load()
	if set == nil {
		return errKeysMissing
	}
	if set.signed(b, minted) {
		return nil
	}
	if r.complete(set, minted) || minted.After(r.now().Add(keysAhead)) {
		return ErrForged
	}
	if err := r.reread(ctx); err != nil {
		return err
	}
	if !r.snapshot.Load().signed(b, minted) {
		return ErrForged
	}
	return nil
}

// mint makes a token under id with the key that applies at the given instant,
// or returns an error that matches [ErrUnavailable].
func (r *Keyring) mint(ctx context.Context, id idgen.ID, minted time.Time) (Bearer, error) {
	set := r.snapshot.Load()
	if set == nil {
		return Bearer{}, errKeysMissing
	}
	if !r.complete(set, minted) {
		// Another gateway may have started a key that would make this one's
		// tokens forgeries everywhere else.
		if err := r.reread(ctx); err != nil {
			return Bearer{}, err
		}
		set = r.snapshot.Load()
	}
	key := set.at(minted)
	if key == nil {
		return Bearer{}, fmt.Errorf("%w: no tag key for %s", ErrUnavailable, minted.UTC())
	}
	return mint(id, key), nil
}

// complete reports whether set must contain the key for a mint time.
func (r *Keyring) complete(set *keySet, minted time.Time) bool {
	return r.store == nil || minted.Before(set.read.Add(keysComplete))
}

// reread reads the store on behalf of a caller, unless that was done within the
// last second, when it returns what came of it. Callers share one read, and it
// goes on if one of them leaves.
func (r *Keyring) reread(ctx context.Context) error {
	select {
	case r.gate <- struct{}{}:
		defer func() { <-r.gate }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	if r.now().Sub(r.tried).Abs() < keysReread {
		return r.outcome
	}
	return r.readLocked(context.WithoutCancel(ctx))
}

// Refresh reads the store now: keys that it lost are given back, keys that others
// added are learned. Run does so by itself; this is for when it is known that
// the store has changed or forgotten. The error matches [ErrUnavailable].
func (r *Keyring) Refresh(ctx context.Context) error {
	if r.store == nil {
		return nil
	}
	r.gate <- struct{}{}
	defer func() { <-r.gate }()
	return r.readLocked(ctx)
}

// readLocked reads the store and keeps the result. The gate must be held.
func (r *Keyring) readLocked(ctx context.Context) error {
	before := r.outcome
	r.tried = r.now()
	keys, err := r.exchange(ctx)
	if err == nil {
		r.Merge(keys)
		r.markRead(r.tried)
	}
	r.outcome = err
	if ctx.Err() == nil && (err == nil) != (before == nil) {
		r.report(err)
	}
	return err
}

// markRead notes that the keys are as complete as a read at that instant can
// make them.
func (r *Keyring) markRead(at time.Time) {
	for {
		old := r.snapshot.Load()
		if r.snapshot.CompareAndSwap(old, &keySet{keys: old.keys, read: at}) {
			return
		}
	}
}

// exchange reads the store's keys and gives it those that it should have: a
// first one if there is none anywhere, and the ones it lost.
func (r *Keyring) exchange(ctx context.Context) ([]TagKey, error) {
	keys, err := r.store.LoadKeys(ctx)
	if err != nil {
		return nil, err
	}
	missing := r.missing(keys)
	if len(keys) == 0 && len(missing) == 0 {
		missing = []TagKey{{Start: 0, Key: NewKey()}}
	}
	if len(missing) == 0 {
		r.relieve(ctx, keys)
		return keys, nil
	}
	if err := r.store.AddKeys(ctx, missing); err != nil {
		return nil, err
	}
	// Another gateway may have been first.
	keys, err = r.store.LoadKeys(ctx)
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("%w: %w", ErrUnavailable, errors.New("the tag keys vanish from the store"))
	}
	return keys, err
}

// missing returns the keys that the store, which holds keys, should have too.
func (r *Keyring) missing(keys []TagKey) []TagKey {
	mine := r.snapshot.Load()
	if mine == nil {
		return nil
	}
	all := keySet{keys: slices.Clone(mine.keys)}
	all.add(keys) // a key of theirs may be the one that ends one of mine
	all.keys = all.keys[r.outlived(all.keys):]
	return all.without(keys)
}

// relieve removes the keys that no living token can be signed with from the
// store, which holds keys. It is not urgent: what fails is done after the next
// read.
func (r *Keyring) relieve(ctx context.Context, keys []TagKey) {
	remover, ok := r.store.(KeyRemover)
	if !ok {
		return
	}
	var all keySet
	all.add(keys)
	var starts []int64
	for _, key := range all.keys[:r.outlived(all.keys)] {
		starts = append(starts, key.Start)
	}
	if starts != nil {
		_ = remover.RemoveKeys(ctx, starts)
	}
}

// add puts keys in their places; those with a known start replace.
func (s *keySet) add(keys []TagKey) {
	for _, key := range keys {
		i, found := s.search(key.Start)
		if found {
			s.keys[i] = key
		} else {
			s.keys = slices.Insert(s.keys, i, key)
		}
	}
}

// without returns the keys of s whose start is not among keys.
func (s *keySet) without(keys []TagKey) []TagKey {
	var missing []TagKey
	for _, mine := range s.keys {
		if !slices.ContainsFunc(keys, func(k TagKey) bool { return k.Start == mine.Start }) {
			missing = append(missing, mine)
		}
	}
	return missing
}

// at returns the key that applies at an instant, nil if that is before the
// first.
func (s *keySet) at(instant time.Time) *Key {
	i, found := s.search(instant.UnixMilli())
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	return &s.keys[i].Key
}

// signed reports whether b carries the tag of the key that applies to it.
func (s *keySet) signed(b Bearer, minted time.Time) bool {
	key := s.at(minted)
	return key != nil && b.signedBy(key)
}

// search finds the place of a start.
func (s *keySet) search(start int64) (int, bool) {
	return slices.BinarySearchFunc(s.keys, start, func(k TagKey, start int64) int {
		return cmp.Compare(k.Start, start)
	})
}
