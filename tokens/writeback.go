package tokens

import (
	"context"
	"errors"
	"sync"
	"time"

	"snowgate/idgen"
	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

const (
	// writeBackAge is how long a revocation of a single token is remembered: longer than a failover
	// takes, after which writes of the last moments may be lost.
	writeBackAge = time.Minute
	// writeBackMost is the maximum number of revocations that are remembered; the oldest are
	// dropped first.
	writeBackMost = 4096
	// writeBackReaders is how many of them are compared with the store at once.
	writeBackReaders = 16
)

// writeBack remembers the tokens that this gateway has revoked within the last minute. When the store
// may have lost its last writes, it reads each of them and deletes again those that have come back. It
// repeats failed reads until the revocation is too old. It does not remember revocations that were
// only heard of: a push is a hint, and whoever can forge one must not be able to delete a token.
type writeBack struct {
	s *Service

	mu      sync.Mutex
	lately  []revokedAt // the oldest first
	running bool
	all     bool // the store may have lost writes since the last round

	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

type revokedAt struct {
	id idgen.ID
	at time.Time
}

func (b *writeBack) open(s *Service) {
	b.s = s
	b.ctx, b.cancel = context.WithCancel(context.Background())
}

func (b *writeBack) close() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.ended.Wait()
}

// add records a revocation that this gateway has made.
func (b *writeBack) add(id idgen.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lately) == writeBackMost {
		b.lately = append(b.lately[:0], b.lately[writeBackMost/4:]...)
	}
	b.lately = append(b.lately, revokedAt{id, time.Now()})
}

// compare starts to compare the store with all recorded revocations.
func (b *writeBack) compare() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = true
	if b.running || b.ctx.Err() != nil || len(b.lately) == 0 {
		return
	}
	b.running = true
	b.ended.Go(func() { defer panics.Catch(panics.Tokens, b.broke); b.run() })
}

// broke ends a comparison that panicked. The next one compares all revocations.
func (b *writeBack) broke(error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = false
}

func (b *writeBack) run() {
	var failed []idgen.ID
	for ids := b.next(nil); len(ids) > 0; ids = b.next(failed) {
		failed = b.deleteAgain(ids)
		if len(failed) > 0 && deadline.Sleep(b.ctx, watchRetry) != nil {
			return // the service is closed
		}
	}
}

// next returns the ids for the next round, each once: all of them if the store may have lost writes
// since the last one, or else those of failed. It drops the revocations that are too old. If no id is
// left, the comparison ends.
func (b *writeBack) next(failed []idgen.ID) (ids []idgen.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted := make(map[idgen.ID]bool, len(failed))
	for _, id := range failed {
		wanted[id] = true
	}
	kept, seen := b.lately[:0], make(map[idgen.ID]bool, len(b.lately))
	for _, r := range b.lately {
		if time.Since(r.at) > writeBackAge || seen[r.id] {
			continue
		}
		seen[r.id] = true
		kept = append(kept, r)
		if b.all || wanted[r.id] {
			ids = append(ids, r.id)
		}
	}
	b.lately, b.all = kept, false
	b.running = len(ids) > 0
	return ids
}

// deleteAgain deletes those of ids that the store has, and returns those for which the store
// failed.
func (b *writeBack) deleteAgain(ids []idgen.ID) (failed []idgen.ID) {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next = make(chan idgen.ID, len(ids))
	)
	for _, id := range ids {
		next <- id
	}
	close(next)
	for range min(writeBackReaders, len(ids)) {
		wg.Go(func() {
			defer panics.Catch(panics.Tokens, nil)
			for id := range next {
				if err := b.deleteOne(id); err != nil {
					mu.Lock()
					failed = append(failed, id)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// deleteOne deletes a token again if the store has it. It returns a panic as an error.
func (b *writeBack) deleteOne(id idgen.ID) (err error) {
	defer panics.Into(panics.Tokens, &err)
	ctx, cancel := b.s.bounded(b.ctx)
	defer cancel()
	_, err = b.s.cfg.Store.Load(ctx, id)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := b.s.delete(ctx, id); err != nil {
		return err
	}
	b.s.cfg.OnWriteBack(id)
	return nil
}
