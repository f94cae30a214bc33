package tokens

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unique"

	"snowgate/idgen"
)

// lookUpAttempts bounds how often one caller asks again because a revocation
// came between.
const lookUpAttempts = 4

// lookUps shares one read of the store among all who ask for the same token at
// the same time.
type lookUps struct {
	mu     sync.Mutex
	flying map[idgen.ID]*lookUp
	ended  sync.WaitGroup
}

// lookUp is one read that is under way. It counts only for as long as it is the
// one in the table: whatever makes its result doubtful takes it out.
type lookUp struct {
	epoch   uint64        // of the cache, before the store was asked
	done    chan struct{} // closed when what follows is set
	entry   *entry        // nil if err is set
	err     error
	current bool // nothing came between

	callers int // who waits; guarded by lookUps.mu
	cancel  context.CancelFunc
}

// lookUp returns the record of b from the store. The caller's cancellation fails
// nobody else, and a revocation that comes while the store is asked makes it ask
// again.
func (s *Service) lookUp(ctx context.Context, b Bearer, digest Digest) (*entry, error) {
	for range lookUpAttempts {
		f := s.join(ctx, b.ID(), digest)
		select {
		case <-f.done:
		case <-ctx.Done():
			s.leave(b.ID(), f)
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		}
		if f.err != nil || f.current {
			return f.entry, f.err
		}
	}
	return nil, fmt.Errorf("%w: revocations keep coming between", ErrUnavailable)
}

// join returns the read of id that is under way, or begins one.
func (s *Service) join(ctx context.Context, id idgen.ID, digest Digest) *lookUp {
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	if f := s.lookUps.flying[id]; f != nil {
		f.callers++
		return f
	}
	// It has a budget of its own, and ends early only when nobody waits for it.
	ctx, cancel := s.bounded(context.WithoutCancel(ctx))
	ctx, leave := context.WithCancel(ctx)
	f := &lookUp{epoch: s.cache.epoch.Load(), done: make(chan struct{}), callers: 1, cancel: leave}
	s.lookUps.flying[id] = f
	s.lookUps.ended.Go(func() {
		defer cancel()
		defer leave()
		s.read(ctx, id, f, digest)
	})
	return f
}

// leave tells that a caller does not wait for f any longer.
func (s *Service) leave(id idgen.ID, f *lookUp) {
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	f.callers--
	if f.callers > 0 {
		return
	}
	f.cancel()
	if s.lookUps.flying[id] == f {
		delete(s.lookUps.flying, id)
	}
}

// read asks the store on behalf of everybody who waits for f.
func (s *Service) read(ctx context.Context, id idgen.ID, f *lookUp, digest Digest) {
	defer close(f.done)
	asked := time.Now()
	record, err := s.cfg.Store.Load(ctx, id)
	if err != nil {
		f.err = err
	} else {
		f.entry = &entry{digest: record.Digest, token: record.Token, asked: asked.Sub(s.cache.opened), epoch: f.epoch}
		f.entry.token.IssuedAt = s.cfg.MintTime(id)
		f.entry.token.share()
	}
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	if s.lookUps.flying[id] != f {
		return
	}
	delete(s.lookUps.flying, id)
	if f.current = f.epoch == s.cache.epoch.Load(); !f.current {
		return
	}
	// Under the lock, so that a revocation comes either before, and has taken f
	// out, or after, and drops the entry.
	if err == nil && record.Digest.Equal(digest) {
		s.cache.put(id, f.entry)
	}
}

// share makes tokens that have texts in common keep them once: the cache holds
// many tokens of few clients. t belongs to the caller alone.
func (t *Token) share() {
	t.Client = unique.Make(t.Client).Value()
	t.Scope = unique.Make(t.Scope).Value()
	for i, audience := range t.Audience {
		t.Audience[i] = unique.Make(audience).Value()
	}
}

// forget makes sure that nothing learned of id before this call is used after it.
func (s *Service) forget(id idgen.ID) {
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	delete(s.lookUps.flying, id)
	s.cache.drop(id)
}
