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

// TestSharedTripsThatBreak: the server closes its connections again and again while many goroutines
// write and read records of their own, and some give up early. Each gets a result about its own
// record, or ErrUnavailable: never another record, and never that there is none or that its id was
// taken.
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

// roundTrip saves a record that only its id has, and reads it. It reports whether both got a reply.
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

// TestNonsenseAmongOthers: the caller that reads a key with an invalid record gets an error, and
// others in the same round trip do not.
func TestNonsenseAmongOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var shared atomic.Int64
	store := open(t, redisstore.Options{URL: server.URL(), Observe: func(command string, _ time.Duration, kind string) {
		if command == "mget" && kind == "ok" {
			shared.Add(1)
		}
	}})
	const good, damaged, hash, missing = idgen.ID(1), idgen.ID(2), idgen.ID(3), idgen.ID(4)
	record := tokenstest.SampleRecord(1)
	record.Token.ID = good
	if err := store.Save(t.Context(), record, time.Minute); err != nil {
		t.Fatal(err)
	}
	server.Do("SET", "sg:t:"+damaged.String(), "nonsense")
	server.Do("HSET", "sg:t:"+hash.String(), "a", "b")
	var asking sync.WaitGroup
	for i := range 32 {
		asking.Go(func() {
			for shared.Load() < 50 && t.Context().Err() == nil {
				switch id := idgen.ID(1 + i%4); id {
				case good:
					if got, err := store.Load(t.Context(), id); err != nil || !got.Digest.Equal(record.Digest) {
						t.Errorf("Load among others = %v, %v", got, err)
					}
				case missing:
					wantUnknown(t, store, id)
				default:
					wantUnavailable(t, "Load of nonsense among others", load(store, id), redisstore.KindOther)
				}
			}
		})
	}
	asking.Wait()
}
