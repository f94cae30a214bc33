package tokens

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"snowgate/idgen"
	"snowgate/internal/deadline"
)

// lookUpAttempts bounds how often one caller asks again because a revocation
// came between.
const lookUpAttempts = 4

// lookUps shares one read of the store among all who ask for the same token at
// the same time. Who asks first reads, the others wait.
type lookUps struct {
	mu       sync.Mutex
	inFlight map[idgen.ID]*lookUp
}

// lookUp is one read that is under way. It counts only for as long as it is the
// one in the table: whatever makes its result doubtful takes it out.
type lookUp struct {
	epoch uint32        // of the cache, before the store was asked
	done  chan struct{} // closed when what follows is set; nil until somebody waits: guarded by lookUps.mu

	entry   entry // only when the store was asked, if err is set
	err     error
	current bool // nothing came between
	left    bool // who was reading has gone, and err says nothing about the store
}

// lookUp returns the record of b from the store. The caller's cancellation fails
// nobody else: another one who waits reads then. A revocation that comes while
// the store is asked makes it ask again.
func (s *Service) lookUp(ctx context.Context, b Bearer, digest Digest) (entry, error) {
	for attempt := 0; attempt < lookUpAttempts; {
		f, waits := s.join(b.ID())
		if waits == nil {
			s.read(ctx, b, f, digest)
		} else {
			if deadline.Wait(ctx, waits) != nil {
				return entry{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
			}
			if f.left {
				continue
			}
		}
		if f.err != nil || f.current {
			return f.entry, f.err
		}
		attempt++
	}
	return entry{}, fmt.Errorf("%w: revocations keep coming between", ErrUnavailable)
}

// join returns the read of id that is under way and what is closed at its end, or
// a new one, and nil, which is for the caller to carry out.
func (s *Service) join(id idgen.ID) (f *lookUp, waits <-chan struct{}) {
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	if f := s.lookUps.inFlight[id]; f != nil {
		if f.done == nil {
			f.done = make(chan struct{})
		}
		return f, f.done
	}
	f = &lookUp{epoch: s.cache.epoch.Load()}
	s.lookUps.inFlight[id] = f
	return f, nil
}

// read asks the store on behalf of everybody who waits for f.
func (s *Service) read(ctx context.Context, b Bearer, f *lookUp, digest Digest) {
	f.left = true // also if this panics
	defer s.finish(b.ID(), f, digest)
	f.entry.asked = time.Since(s.cache.opened)
	record, err := s.cfg.Store.Load(ctx, b.ID())
	if err != nil {
		// A deadline is that of the decision, which any other would meet too.
		f.err, f.left = err, errors.Is(ctx.Err(), context.Canceled) || ctx.Err() != nil && s.cfg.Timeout <= 0
		return
	}
	f.entry = entry{s.cache.attributes(&record.Token), facts{
		digest: record.Digest, tag: b.tag(), epoch: f.epoch,
		expires: record.Token.ExpiresAt.UnixMilli(), asked: f.entry.asked,
	}}
	f.left = false
}

// finish ends f, which has read id for who knows digest.
func (s *Service) finish(id idgen.ID, f *lookUp, digest Digest) {
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	if f.done != nil {
		defer close(f.done)
	}
	if s.lookUps.inFlight[id] != f {
		return
	}
	delete(s.lookUps.inFlight, id)
	if f.current = f.epoch == s.cache.epoch.Load(); !f.current {
		return
	}
	// Under the lock, so that a revocation comes either before, and has taken f
	// out, or after, and drops the entry.
	switch {
	case f.entry.attributes != nil && f.entry.digest.Equal(digest):
		s.cache.put(id, &f.entry)
	case errors.Is(f.err, ErrUnknown):
		s.negative.put(id, missing{digest, f.entry.asked, f.epoch})
	}
}

// forget makes sure that nothing learned of id before this call is used after it.
func (s *Service) forget(id idgen.ID) {
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	delete(s.lookUps.inFlight, id)
	s.cache.drop(id)
}
