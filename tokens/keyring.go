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

// The times of a [Keyring]. A key starts at least a minute after it was added, so keys that were
// read at instant R are complete for every mint time before R + 60 s.
const (
	keysComplete  = 50 * time.Second       // the part of those 60 s that is left if clocks differ
	keysAhead     = 10 * time.Second       // clocks of two gateways differ by less
	keysRefresh   = 10 * time.Second       // between two reads without failures
	keysRetry     = time.Second            // after a failed read, if there are keys
	keysFirstLoad = 100 * time.Millisecond // after a failed read, if there are none
	keysReread    = time.Second            // at most one read in this time on behalf of callers
	keysLead      = 90 * time.Second       // from a rotation to the start of its key: those 60 s and the time for a slow write
	keysGrace     = 10 * time.Minute       // how much longer than its tokens a key is kept
	keysRotate    = 10 * time.Second       // deadline of a rotation
)

// TagKey is a key and the instant at which it starts to sign.
type TagKey struct {
	// Start is in Unix milliseconds. The first key of a deployment has 0.
	Start int64
	Key   Key
}

// KeyStore keeps the keys that all gateways of a deployment share. If it is a [KeyRemover] as well,
// the keyring removes keys that no living token was signed with. Implementations are safe for
// concurrent use; every failure matches [ErrUnavailable].
type KeyStore interface {
	// LoadKeys returns all keys, in any order.
	LoadKeys(ctx context.Context) ([]TagKey, error)
	// AddKeys adds those keys whose start is not taken, and never replaces a key. If several
	// gateways add a key with the same start, one of them succeeds, and LoadKeys returns its key.
	AddKeys(ctx context.Context, keys []TagKey) error
}

// KeyringConfig configures a [Keyring].
type KeyringConfig struct {
	// Store holds the keys. Required.
	Store KeyStore
	// Now is the clock for the mint times of ids. Default: time.Now.
	Now func() time.Time
	// Longest returns the longest lifetime of a token that was ever permitted, or 0 while it is
	// unknown, see [Rules.Longest]. nil: it is never known, and no key is ever removed.
	Longest func() time.Duration
	// Report, if set, is called with the error when reading the keys begins to fail, and with nil
	// when it works again. It is not called concurrently.
	Report func(error)
}

// Keyring holds the keys of the tag. Looking up a key is one atomic load. All methods are safe for
// concurrent use; use [NewKeyring] or [FixedKeyring].
type Keyring struct {
	store    KeyStore // nil if the key is fixed
	now      func() time.Time
	longest  func() time.Duration
	report   func(error)
	snapshot atomic.Pointer[keySet]

	gate    chan struct{} // a semaphore, held during a read of the store; guards the fields below
	tried   time.Time     // when the store was last read
	outcome error         // the result of that read
}

// keySet is an immutable set of keys, sorted by their starts.
type keySet struct {
	keys []TagKey
	read time.Time // just before they were read
}

// errKeysMissing is the error of every decision before the first read.
var errKeysMissing = fmt.Errorf("%w: the tag keys are not loaded yet", ErrUnavailable)

// FixedKeyring returns a keyring with one key for all times, which needs no store. Its Run only
// waits for the end of ctx.
func FixedKeyring(key Key) *Keyring {
	r := &Keyring{now: time.Now, longest: unknownLongest}
	r.snapshot.Store(&keySet{keys: []TagKey{{Key: key}}})
	return r
}

// NewKeyring returns an empty keyring for cfg.Store. Until Run has read the keys, every decision is
// [ErrUnavailable].
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

// Run reads the keys until ctx ends: at once, then about every 0.1 s with jitter until a read
// succeeds, and every ten seconds from then on. If the store is empty, Run adds a first key; if the
// store has lost keys, Run writes them back. Run must be running while the keyring is in use.
func (r *Keyring) Run(ctx context.Context) {
	for {
		if deadline.Sleep(ctx, r.pause(r.Refresh(ctx))) != nil {
			return
		}
	}
}

// pause returns the time from a read with result err to the next one.
func (r *Keyring) pause(err error) time.Duration {
	pause := keysRefresh
	switch {
	case err != nil && !r.Loaded():
		pause = keysFirstLoad
	case err != nil:
		pause = keysRetry
	}
	return pause + rand.N(pause/2) //nolint:gosec // jitter, so that gateways do not read at the same time
}

// Loaded reports whether keys have been read.
func (r *Keyring) Loaded() bool { return r.snapshot.Load() != nil }

// Starts returns the instants at which the keys start to sign, in order; the zero time stands for
// the first key of a deployment. It is empty before the first read.
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

// ErrKeyFixed is returned by [Keyring.Rotate] for a keyring with one key for all times.
var ErrKeyFixed = errors.New("tokens: the tag key is fixed by the configuration, so it cannot be rotated")

// Rotate adds a key to the store and returns the instant at which it starts to sign, a minute and a
// half from now: by then every gateway has read it. Tokens that were signed with earlier keys stay
// valid. The error is [ErrKeyFixed] or matches [ErrUnavailable]; in the latter case the key may
// have been added.
func (r *Keyring) Rotate(ctx context.Context) (start time.Time, err error) {
	if r.store == nil {
		return time.Time{}, ErrKeyFixed
	}
	if !r.Loaded() {
		return time.Time{}, errKeysMissing // the first key starts in 1970 and must exist before
	}
	ctx, cancel := context.WithTimeout(ctx, keysRotate)
	defer cancel()
	key := TagKey{Start: r.now().Add(keysLead).UnixMilli(), Key: NewKey()}
	if err := r.store.AddKeys(ctx, []TagKey{key}); err != nil {
		return time.Time{}, err
	}
	// If another gateway added a key for the same millisecond, its key counts.
	if err := r.Refresh(ctx); err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(key.Start).UTC(), nil
}

// Merge adds keys that were learned in another way than by reading the store. A key replaces a
// known key with the same start, because the store decides between gateways. Merge drops keys that
// no living token can be signed with. It must not be called on a fixed keyring.
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

// outlived returns how many of the keys, which are sorted by their starts, no living token can be
// signed with. The last token of a key was minted when the next key started. The result does not
// depend on which other keys a gateway knows, so no gateway writes back a key that another one has
// removed.
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

// Verify verifies the tag of b, which was minted at the given instant. The error is [ErrForged], or
// [ErrUnavailable] if a key for that instant may exist and cannot be read. Verify reads the store
// only if the last read is too old to contain all keys for that instant, and at most about once a
// second for all callers together, so a flood of forgeries does not load the store. Otherwise it
// does not allocate.
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

// mint makes a token with the given id and the key for the given instant. The error matches
// [ErrUnavailable].
func (r *Keyring) mint(ctx context.Context, id idgen.ID, minted time.Time) (Bearer, error) {
	set := r.snapshot.Load()
	if set == nil {
		return Bearer{}, errKeysMissing
	}
	if !r.complete(set, minted) {
		// Another gateway may have added a key that applies to this mint time. All other gateways
		// would then take a token with the tag of an older key for a forgery.
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

// complete reports whether set certainly contains the key for a mint time.
func (r *Keyring) complete(set *keySet, minted time.Time) bool {
	return r.store == nil || minted.Before(set.read.Add(keysComplete))
}

// reread reads the store for a caller. If that was done within the last second, it returns the
// result of that read. Callers share one read, which continues if one of them gives up.
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

// Refresh reads the store now. It writes back keys that the store has lost, and learns keys that
// others have added. Run does this by itself; call Refresh when the store is known to have changed
// or lost data. The error matches [ErrUnavailable].
func (r *Keyring) Refresh(ctx context.Context) error {
	if r.store == nil {
		return nil
	}
	r.gate <- struct{}{}
	defer func() { <-r.gate }()
	return r.readLocked(ctx)
}

// readLocked reads the store and keeps the result. The caller holds the gate.
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

// markRead records that the keys are as complete as a read at that instant can make them.
func (r *Keyring) markRead(at time.Time) {
	for {
		old := r.snapshot.Load()
		if r.snapshot.CompareAndSwap(old, &keySet{keys: old.keys, read: at}) {
			return
		}
	}
}

// exchange reads the keys of the store and adds missing ones: a first key if there is none at all,
// and the keys that the store has lost.
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

// missing returns the keys that the store, which holds keys, should have as well.
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

// relieve removes from the store, which holds keys, those that no living token can be signed with.
// A failure has no consequences, because the next read tries again.
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

// add inserts keys. A key replaces one with the same start.
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

// at returns the key for an instant, or nil if the instant is before the first key.
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

// signed reports whether b has the correct tag for its mint time.
func (s *keySet) signed(b Bearer, minted time.Time) bool {
	key := s.at(minted)
	return key != nil && b.signedBy(key)
}

// search returns the index of a start.
func (s *keySet) search(start int64) (int, bool) {
	return slices.BinarySearchFunc(s.keys, start, func(k TagKey, start int64) int {
		return cmp.Compare(k.Start, start)
	})
}
