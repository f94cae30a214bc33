package tokens

import (
	"context"
	"errors"
	"sync"
	"time"

	"snowgate/idgen"
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

// writeBack remembers the tokens that this or another gateway has revoked within the last minute.
// When the store may have lost its last writes, it reads each of them and deletes again those that
// have come back. It repeats failed reads until the revocation is too old.
type writeBack struct {
	s *Service

	mu      sync.Mutex
	lately  []revokedAt // the oldest first
	running bool
	again   bool // the store may have lost writes since the running comparison began

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

// add records a revocation.
func (b *writeBack) add(id idgen.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := len(b.lately) - 1; last >= 0 && b.lately[last].id == id {
		return // a gateway hears of its own revocations, too
	}
	if len(b.lately) == writeBackMost {
		b.lately = append(b.lately[:0], b.lately[writeBackMost/4:]...)
	}
	b.lately = append(b.lately, revokedAt{id, time.Now()})
}

// compare starts to compare the store with the recorded revocations.
func (b *writeBack) compare() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.again = b.running; b.running || b.ctx.Err() != nil || len(b.lately) == 0 {
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
	for ids := b.remembered(); len(ids) > 0; {
		failed := b.deleteAgain(ids)
		if len(failed) > 0 && !b.pause() {
			return
		}
		ids = b.next(failed)
	}
}

// remembered returns the ids that are young enough, each once, and drops the others.
func (b *writeBack) remembered() (ids []idgen.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.young()
}

// young is remembered for a caller that holds mu.
func (b *writeBack) young() (ids []idgen.ID) {
	kept, seen := b.lately[:0], make(map[idgen.ID]bool, len(b.lately))
	for _, r := range b.lately {
		if time.Since(r.at) <= writeBackAge && !seen[r.id] {
			seen[r.id] = true
			kept, ids = append(kept, r), append(ids, r.id)
		}
	}
	b.lately = kept
	return ids
}

// next returns the ids for the next round: all of them if the store may have lost writes meanwhile,
// or else those of failed that are young enough. If there are none, the comparison ends.
func (b *writeBack) next(failed []idgen.ID) []idgen.ID {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := b.young()
	if !b.again {
		young := make(map[idgen.ID]bool, len(ids))
		for _, id := range ids {
			young[id] = true
		}
		ids = ids[:0]
		for _, id := range failed {
			if young[id] {
				ids = append(ids, id)
			}
		}
	}
	b.again, b.running = false, len(ids) > 0
	return ids
}

// pause waits before failed ids are tried again. It reports false if the service is closed.
func (b *writeBack) pause() bool {
	timer := time.NewTimer(watchRetry)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-b.ctx.Done():
		return false
	}
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
