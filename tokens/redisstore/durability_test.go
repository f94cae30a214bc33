package redisstore_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestKillOfRedis: Redis is killed (SIGKILL) while tokens are stored and revoked, and started again.
// With an append-only file nothing that it had acknowledged is lost, whatever appendfsync says: it
// writes to the file before it replies, and the kernel keeps what a process has written. (A machine
// that fails loses what was not synced: a second or two with everysec.) Without a file all is lost.
func TestKillOfRedis(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		args  []string
		keeps bool
	}{
		{"appendfsync always", []string{"--appendonly", "yes", "--appendfsync", "always"}, true},
		{"appendfsync everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, true},
		{"no append-only file", []string{"--appendonly", "no"}, false},
	} {
		t.Run(test.name, func(t *testing.T) { t.Parallel(); testKillOfRedis(t, test.args, test.keeps) })
	}
}

func testKillOfRedis(t *testing.T, args []string, keeps bool) {
	const enough = 500
	server := redistest.Start(t, args...)
	store := open(t, redisstore.Options{URL: server.URL(), Timeout: 2 * time.Second})
	var (
		mu             sync.Mutex
		saved, revoked []idgen.ID // acknowledged
		next           atomic.Int64
		wg             sync.WaitGroup
		reached        = make(chan struct{})
		once           sync.Once
	)
	for range 8 {
		wg.Go(func() {
			for {
				r := tokenstest.SampleRecord(1)
				r.Token.ID = idgen.ID(next.Add(1))
				if store.Save(t.Context(), r, time.Hour) != nil {
					return // killed
				}
				ends := r.Token.ID%2 == 0 // every other one is revoked at once
				if ends && store.Delete(t.Context(), r.Token.ID) != nil {
					return // it may be revoked or not
				}
				mu.Lock()
				if ends {
					revoked = append(revoked, r.Token.ID)
				} else {
					saved = append(saved, r.Token.ID)
				}
				if len(saved)+len(revoked) >= enough {
					once.Do(func() { close(reached) })
				}
				mu.Unlock()
			}
		})
	}
	<-reached
	server.Kill()
	wg.Wait()
	server.Restart()
	again := open(t, redisstore.Options{URL: server.URL(), Timeout: 10 * time.Second})
	lost, undone := 0, 0
	for _, id := range saved {
		switch _, err := again.Load(t.Context(), id); {
		case errors.Is(err, tokens.ErrUnknown):
			lost++
		case err != nil:
			t.Fatal(err)
		}
	}
	for _, id := range revoked {
		if _, err := again.Load(t.Context(), id); !errors.Is(err, tokens.ErrUnknown) {
			undone++
		}
	}
	t.Logf("%d of %d tokens lost, %d of %d revocations undone", lost, len(saved), undone, len(revoked))
	if keeps && lost > 0 || !keeps && lost < len(saved) || undone > 0 {
		t.Errorf("%d of %d tokens lost, %d of %d revocations undone", lost, len(saved), undone, len(revoked))
	}
}
