// Package embedded runs a Redis inside the process, for trying snowgate out
// without installing anything. It is miniredis behind the same client code as a
// real Redis: it keeps nothing on disk, serves this process only, and is gone
// with it.
//
// It listens on a random port of 127.0.0.1 with a random password. Keys expire
// because a goroutine moves miniredis's clock, which walks over all keys. It
// paces itself to five percent of a core: with a few hundred keys it moves the
// clock 20 times a second, with [MaxKeys] about every 0.6 s. By as much a key may
// expire late or, if it was written since the clock last moved, early; records
// outlive their tokens by a second, so no token ends early. miniredis also keeps a
// few bytes of every key it has ever seen.
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

// MaxKeys is how many keys the server holds before it refuses further ones, as
// a Redis with noeviction does when it is full.
const MaxKeys = 50_000

// testPassword is empty in every build but those of the integration tests, whose linker sets it. They
// look into the server of a running gateway, to see that it holds no secret.
var testPassword string

// How the clock is paced: it moves at most every minTick, and at least tickShare
// times as long is left between two moves as one takes.
const (
	minTick   = 50 * time.Millisecond
	tickShare = 20
)

// Server is a running embedded Redis. Its methods are safe for concurrent use.
type Server struct {
	redis    *miniredis.Miniredis
	url      string
	limit    int64
	keys     atomic.Int64 // an upper bound of the keys there are
	stop     context.CancelFunc
	stopOnce sync.Once
	wg       sync.WaitGroup
}

// Start starts a server. The caller must Close it.
func Start() (*Server, error) { return start(MaxKeys) }

func start(limit int64) (*Server, error) {
	redis := miniredis.NewMiniRedis()
	password := cmp.Or(testPassword, rand.Text())
	redis.RequireAuth(password) // before anybody can connect
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

// URL returns the address of the server with its password, as
// redisstore.Options takes it.
func (s *Server) URL() string { return s.url }

// Close stops the server and forgets everything in it. Closing twice is no
// error.
func (s *Server) Close() {
	s.stopOnce.Do(func() {
		s.stop()
		s.wg.Wait()
		s.redis.Close()
	})
}

// moveClock lets keys expire until ctx ends.
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

// refuseWhenFull runs before every command. It counts commands that may add a
// string key as if they did, until the clock moves and the keys are counted
// anew: the bound holds at every moment, and is reached early rather than late.
// Only tokens are stored as strings in numbers; what all gateways share, and
// scripts, must work when Redis is full and passes.
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
