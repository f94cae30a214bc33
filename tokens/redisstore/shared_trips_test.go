package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestSharedTripsThatBreak: while the server cuts its connections again and again,
// many write and read records of their own, and some lose patience. Each is told
// about its own record or that nothing is known: never about another record, and
// never that there is none or that its id was taken.
func TestSharedTripsThatBreak(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	admin := redis.NewClient(options)
	defer func() { _ = admin.Close() }()

	const callers, cuts, between = 32, 10, 200
	var asked, answered atomic.Int64
	var working sync.WaitGroup
	for range callers {
		working.Go(func() {
			for answered.Load() < cuts*between {
				n := asked.Add(1)
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if n%8 == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(n%100)*10*time.Microsecond)
				}
				if roundTrip(ctx, t, store, idgen.ID(n)) && answered.Add(1)%between == 0 {
					if err := admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
						t.Errorf("cutting: %v", err)
					}
				}
				cancel()
			}
		})
	}
	working.Wait()
}

// roundTrip saves a record that only its id has, and reads it. It reports
// whether both were answered.
func roundTrip(ctx context.Context, t *testing.T, store *redisstore.Store, id idgen.ID) bool {
	record := tokenstest.SampleRecord(1)
	record.Token.ID = id
	record.Digest = tokens.Digest{byte(id), byte(id >> 8), byte(id >> 16), 1}
	if err := store.Save(ctx, record, time.Minute); err != nil {
		if !errors.Is(err, tokens.ErrUnavailable) {
			t.Errorf("Save(%d) = %v", id, err)
		}
		return false
	}
	got, err := store.Load(ctx, id)
	if err != nil {
		if !errors.Is(err, tokens.ErrUnavailable) || errors.Is(err, tokens.ErrUnknown) {
			t.Errorf("Load(%d) = %v", id, err)
		}
		return false
	}
	if !got.Digest.Equal(record.Digest) {
		t.Errorf("Load(%d) is another record", id)
	}
	return true
}
