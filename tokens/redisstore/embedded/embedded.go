// Package embedded runs a Redis inside the process, for trying snowgate without installing
// anything. It is miniredis behind the same client code as a real Redis. It keeps its data in
// memory, serves only this process, and ends with it.
//
// It listens on a random port of 127.0.0.1 with a random password. miniredis does not expire keys
// by itself. A goroutine moves its clock, which scans all keys, and limits itself to five percent
// of a core. With a few hundred keys it moves the clock 20 times a second, with [MaxKeys] about
// every 0.6 s. Up to that time, a key may expire late or, if it was written since the clock last
// moved, early. Records outlive their tokens by a second, so no token ends early. miniredis also
// keeps a few bytes of every key that it has ever had.
package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

// MaxKeys is the maximum number of keys. The server then refuses further keys, like a full Redis
// with noeviction.
const MaxKeys = 50_000

// testPassword is set by the linker for the integration tests only, and empty in every other build.
// These tests examine the server of a running gateway, to check that it holds no secret.
var testPassword string

// The clock moves at most every minTick, and between two moves there are at least tickShare times
// the duration of one.
const (
	minTick   = 50 * time.Millisecond
	tickShare = 20
)

// Server is a running embedded Redis. Its methods are safe for concurrent use.
type Server struct {
	redis    *miniredis.Miniredis
	url      string
	limit    int64
	keys     atomic.Int64 // an upper bound of the number of keys
	stop     context.CancelFunc
	stopOnce sync.Once
	wg       sync.WaitGroup
}

// Start starts a server. The caller must Close it.
func Start() (*Server, error) { return start(MaxKeys) }

func start(limit int64) (*Server, error) {
	redis := miniredis.NewMiniRedis()
	password := cmp.Or(testPassword, rand.Text())
	redis.RequireAuth(password) // before any client can connect
	if err := redis.Start(); err != nil {
		return nil, fmt.Errorf("embedded: cannot start the embedded Redis: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		redis: redis,
		url:   (&url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: redis.Addr()}).String(),
		limit: limit,
		stop:  cancel,
	}
	redis.Server().SetPreHook(s.refuseWhenFull)
	s.wg.Go(func() { panics.Keep(ctx, panics.Redis, s.moveClock) })
	return s, nil
}

// URL returns the address of the server with its password, for redisstore.Options.
func (s *Server) URL() string { return s.url }

// Close stops the server and deletes all data. It may be called more than once.
func (s *Server) Close() {
	s.stopOnce.Do(func() {
		s.stop()
		s.wg.Wait()
		s.redis.Close()
	})
}

// moveClock makes keys expire until ctx ends.
func (s *Server) moveClock(ctx context.Context) {
	pause, last := minTick, time.Now()
	for {
		if deadline.Sleep(ctx, pause) != nil {
			return
		}
		begin := time.Now()
		s.redis.FastForward(begin.Sub(last))
		last = begin
		s.keys.Store(int64(len(s.redis.DB(0).Keys())))
		pause = max(minTick, tickShare*time.Since(begin))
	}
}

// refuseWhenFull runs before every command. Until the clock moves and the keys are counted again,
// it counts each command that may add a string key as if it did. So the limit holds at every
// moment, and may be reached early. Only tokens are stored as many strings. Shared data and scripts
// must work while Redis is full, and are not refused.
func (s *Server) refuseWhenFull(peer *server.Peer, command string, _ ...string) bool {
	switch command {
	case "SET", "SETNX", "SETEX", "PSETEX", "MSET", "MSETNX", "GETSET", "APPEND", "COPY", "INCR", "INCRBY":
	default:
		return false
	}
	if s.keys.Add(1) <= s.limit {
		return false
	}
	s.keys.Add(-1)
	peer.WriteError("OOM command not allowed when used memory > 'maxmemory'.")
	return true
}
