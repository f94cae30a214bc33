// Package redisscript runs Lua scripts that must work while Redis is full.
//
// Such a script says so in a first line that only Redis 7 and later understand;
// Redis 6 and miniredis refuse to compile it, and get the script without.
package redisscript

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script in both forms, each of which is made when it is first run: a gateway
// needs few of its scripts. It is immutable and safe for concurrent use.
type Script struct {
	flagged, plain func() *redis.Script
}

// New returns the script whose text is that of all parts, which have no first line of flags.
func New(parts ...string) *Script {
	form := func(first string) func() *redis.Script {
		return sync.OnceValue(func() *redis.Script { return redis.NewScript(first + strings.Join(parts, "")) })
	}
	return &Script{flagged: form("#!lua flags=allow-oom\n"), plain: form("")}
}

// Dialect remembers whether one Redis is too old for flags. The zero value
// supposes that it is not, and finds out. It is safe for concurrent use.
type Dialect struct{ plain atomic.Bool }

// SupposeOld makes d take its Redis for one that is too old for flags.
func (d *Dialect) SupposeOld() { d.plain.Store(true) }

// Run sends EVALSHA, followed by EVAL if Redis does not know the script yet.
func (d *Dialect) Run(ctx context.Context, rdb redis.Scripter, s *Script, keys []string, args ...any) *redis.Cmd {
	if !d.plain.Load() {
		cmd := s.flagged().Run(ctx, rdb, keys, args...)
		if !refusesFlags(cmd.Err()) {
			return cmd
		}
		d.SupposeOld()
	}
	return s.plain().Run(ctx, rdb, keys, args...)
}

func refusesFlags(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "error compiling script")
}
