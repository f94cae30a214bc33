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

// lookUpAttempts bounds how often a caller reads the store again because revocations arrived during
// the read.
const lookUpAttempts = 4

// lookUps shares one read of the store among all requests that present the same token at the same
// time. The first one reads; the others wait for its result.
type lookUps struct {
	mu       sync.Mutex
	inFlight map[idgen.ID]*lookUp
}

// lookUp is one read in flight. Its result is current only while the lookUp is in the table: a
// revocation that arrives during the read takes it out.
type lookUp struct {
	epoch uint32        // of the cache, before the store was asked
	done  chan struct{} // closed when the fields below are set; nil until a caller waits; guarded by lookUps.mu

	entry   entry // if err is set: only when the store was asked
	err     error
	current bool // no revocation arrived during the read
	left    bool // the reading request was canceled: err says nothing about the store
}

// lookUp returns the record of b from the store. If the request that reads is canceled, one of
// those that wait reads in its place. If a revocation arrives during the read, lookUp reads again,
// and fails with ErrUnavailable after lookUpAttempts.
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

// join returns the read of id that is in flight, and a channel that is closed at its end. If there
// is none, join returns a new one and nil, and the caller must read.
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

// read reads the store for all requests that wait for f.
func (s *Service) read(ctx context.Context, b Bearer, f *lookUp, digest Digest) {
	f.left = true // set first, so that it also holds if this panics
	defer s.finish(b.ID(), f, digest)
	f.entry.asked = time.Since(s.cache.opened)
	record, err := s.cfg.Store.Load(ctx, b.ID())
	if err != nil {
		// All decisions have the same deadline, so the waiting requests need not try again after
		// it.
		f.err, f.left = err, errors.Is(ctx.Err(), context.Canceled) || ctx.Err() != nil && s.cfg.Timeout <= 0
		return
	}
	f.entry = entry{s.cache.attributes(&record.Token), facts{
		digest: record.Digest, tag: b.tag(), epoch: f.epoch,
		expires: record.Token.ExpiresAt.UnixMilli(), asked: f.entry.asked,
	}}
	f.left = false
}

// finish publishes f, the read of id for a token with that digest, and fills the caches.
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
	// Under the lock: a revocation either has taken f out before, or drops the entry afterwards.
	switch {
	case f.entry.attributes != nil && f.entry.digest.Equal(digest):
		s.cache.put(id, &f.entry)
	case errors.Is(f.err, ErrUnknown):
		s.negative.put(id, missing{digest, f.entry.asked, f.epoch})
	}
}

// forget ensures that no decision after this call uses what was read of id before it.
func (s *Service) forget(id idgen.ID) {
	s.lookUps.mu.Lock()
	defer s.lookUps.mu.Unlock()
	delete(s.lookUps.inFlight, id)
	s.cache.drop(id)
}
