// Package tokenstest has test helpers for users of package tokens: a store in memory that fails on
// demand, and tests of the contract of every store.
package tokenstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
)

// Clock is a clock that stands still until it is moved. It is safe for
// concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows now.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock, backwards if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Store is a [tokens.Store], [tokens.KeyStore], [tokens.KeyRemover] and
// [tokens.RuleStore] in memory. It is safe for concurrent use.
type Store struct {
	now func() time.Time

	mu      sync.Mutex
	records map[idgen.ID]entry
	keys    map[int64]tokens.Key
	rules   tokens.RuleSet
	fault   func(op string) error
	calls   map[string]int
}

type entry struct {
	record tokens.Record
	ends   time.Time
}

var (
	_ tokens.Store      = (*Store)(nil)
	_ tokens.KeyStore   = (*Store)(nil)
	_ tokens.KeyRemover = (*Store)(nil)
	_ tokens.RuleStore  = (*Store)(nil)
)

// NewStore returns an empty store whose records expire by the given clock.
func NewStore(now func() time.Time) *Store {
	return &Store{
		now:     now,
		records: make(map[idgen.ID]entry),
		keys:    make(map[int64]tokens.Key),
		calls:   make(map[string]int),
	}
}

// Fail makes every operation fail for which fault returns an error. op is the name of the method. A
// failing operation has no effect, and its error matches [tokens.ErrUnavailable]. nil ends the
// faults.
func (s *Store) Fail(fault func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Calls returns the number of calls of the named method; "": of all methods.
func (s *Store) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op != "" {
		return s.calls[op]
	}
	total := 0
	for n := range maps.Values(s.calls) {
		total += n
	}
	return total
}

// Wipe deletes all data, like a restart of Redis without persistence.
func (s *Store) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.records)
	clear(s.keys)
	s.rules = tokens.RuleSet{}
}

// Snapshot returns a function that restores the current state, like a failover to a replica that
// lags.
func (s *Store) Snapshot() (rollback func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records, keys, rules := maps.Clone(s.records), maps.Clone(s.keys), s.rules
	rules.Rules = slices.Clone(rules.Rules)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records, s.keys, s.rules = maps.Clone(records), maps.Clone(keys), rules
		s.rules.Rules = slices.Clone(rules.Rules)
	}
}

// Put stores r and replaces any record of the id, so that a test can have a record that Save would
// refuse.
func (s *Store) Put(r tokens.Record, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[r.Token.ID] = entry{r, s.now().Add(ttl)}
}

// begin locks the store for one operation and returns its fault, if any.
func (s *Store) begin(ctx context.Context, op string) error {
	s.mu.Lock()
	s.calls[op]++
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", tokens.ErrUnavailable, err)
	}
	if s.fault != nil {
		if err := s.fault(op); err != nil {
			return fmt.Errorf("%w: %w", tokens.ErrUnavailable, err)
		}
	}
	return nil
}

// Save implements [tokens.Store].
func (s *Store) Save(ctx context.Context, r tokens.Record, ttl time.Duration) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "Save"); err != nil {
		return err
	}
	if ttl <= 0 {
		return fmt.Errorf("tokenstest: a record cannot live for %s", ttl)
	}
	if there, ok := s.live(r.Token.ID); ok {
		if there.Digest.Equal(r.Digest) {
			return nil
		}
		return tokens.ErrDuplicateID
	}
	r.Token.Audience = slices.Clone(r.Token.Audience)
	r.Token.IssuedAt = time.Time{}
	s.records[r.Token.ID] = entry{r, s.now().Add(ttl)}
	return nil
}

// Load implements [tokens.Store].
func (s *Store) Load(ctx context.Context, id idgen.ID) (tokens.Record, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "Load"); err != nil {
		return tokens.Record{}, err
	}
	r, ok := s.live(id)
	if !ok {
		return tokens.Record{}, tokens.ErrUnknown
	}
	r.Token.Audience = slices.Clone(r.Token.Audience)
	return r, nil
}

// Delete implements [tokens.Store].
func (s *Store) Delete(ctx context.Context, id idgen.ID) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "Delete"); err != nil {
		return err
	}
	delete(s.records, id)
	return nil
}

// LoadKeys implements [tokens.KeyStore].
func (s *Store) LoadKeys(ctx context.Context) ([]tokens.TagKey, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "LoadKeys"); err != nil {
		return nil, err
	}
	var keys []tokens.TagKey
	for start, key := range s.keys {
		keys = append(keys, tokens.TagKey{Start: start, Key: key})
	}
	return keys, nil
}

// AddKeys implements [tokens.KeyStore].
func (s *Store) AddKeys(ctx context.Context, keys []tokens.TagKey) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "AddKeys"); err != nil {
		return err
	}
	for _, key := range keys {
		if _, taken := s.keys[key.Start]; !taken {
			s.keys[key.Start] = key.Key
		}
	}
	return nil
}

// RemoveKeys implements [tokens.KeyRemover].
func (s *Store) RemoveKeys(ctx context.Context, starts []int64) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "RemoveKeys"); err != nil {
		return err
	}
	for _, start := range starts {
		delete(s.keys, start)
	}
	return nil
}

// LoadRules implements [tokens.RuleStore].
func (s *Store) LoadRules(ctx context.Context) (tokens.RuleSet, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "LoadRules"); err != nil {
		return tokens.RuleSet{}, err
	}
	s.pruneRules()
	set := s.rules
	set.Rules = slices.Clone(set.Rules)
	return set, nil
}

// AddRule implements [tokens.RuleStore].
func (s *Store) AddRule(ctx context.Context, r tokens.Rule) (tokens.Rule, uint64, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "AddRule"); err != nil {
		return tokens.Rule{}, 0, err
	}
	now := s.now()
	if err := r.Check(now); err != nil {
		return tokens.Rule{}, 0, err
	}
	s.pruneRules()
	s.rules.Revision++
	r.Created = time.UnixMilli(now.UnixMilli())
	r.End = ruleEnd(r.Until, s.rules.Longest)
	if r.Kind == tokens.RuleClient {
		r.Generation = s.rules.Revision
		r.End = ruleEnd(now, s.rules.Longest)
	}
	return s.putRule(r), s.rules.Revision, nil
}

// RestoreRules implements [tokens.RuleStore].
func (s *Store) RestoreRules(ctx context.Context, set tokens.RuleSet) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "RestoreRules"); err != nil {
		return err
	}
	s.rules.Revision = max(s.rules.Revision, set.Revision) + 1
	s.rules.Longest = max(s.rules.Longest, set.Longest)
	for _, r := range set.Rules {
		s.putRule(r)
	}
	return nil
}

// putRule stores r, merged with the existing rule.
func (s *Store) putRule(r tokens.Rule) tokens.Rule {
	i := slices.IndexFunc(s.rules.Rules, func(there tokens.Rule) bool { return there.ID == r.ID })
	if i < 0 {
		s.rules.Rules = append(s.rules.Rules, r)
		return r
	}
	there := s.rules.Rules[i]
	kept, end := there, there.End
	if r.Generation > there.Generation {
		kept = r
	}
	if end.Before(r.End) {
		end = r.End
	}
	kept.End = end
	s.rules.Rules[i] = kept
	return kept
}

// pruneRules removes rules that have ended.
func (s *Store) pruneRules() {
	over := s.now().Add(-tokens.RuleGrace)
	s.rules.Rules = slices.DeleteFunc(s.rules.Rules, func(r tokens.Rule) bool { return !r.End.After(over) })
}

// live returns the record of id if it has not expired.
func (s *Store) live(id idgen.ID) (tokens.Record, bool) {
	e, ok := s.records[id]
	if !ok || !s.now().Before(e.ends) {
		return tokens.Record{}, false
	}
	return e.record, true
}
