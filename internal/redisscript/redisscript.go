// Package redisscript runs Lua scripts that must work while Redis is full.
//
// Such a script says so in a first line, which only Redis 7 and later understand. Redis 6 and
// miniredis refuse to compile that line; they are sent the script without it.
package redisscript

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua script in both forms. Each form is made when it is first run, because a gateway
// runs few of its scripts. A Script is immutable and safe for concurrent use.
type Script struct {
	flagged, plain func() *redis.Script
}

// New returns the script whose text is parts, one after the other. They must not begin with a line of flags.
func New(parts ...string) *Script {
	form := func(first string) func() *redis.Script {
		return sync.OnceValue(func() *redis.Script { return redis.NewScript(first + strings.Join(parts, "")) })
	}
	return &Script{flagged: form("#!lua flags=allow-oom\n"), plain: form("")}
}

// Runner runs scripts on one Redis. All of them get the same keys, and the same first arguments.
// It is immutable and safe for concurrent use.
type Runner struct {
	rdb   redis.Scripter
	keys  []string
	first []any
	plain *atomic.Bool // Redis is too old for flags; shared with every Runner made of this one
}

// NewRunner returns a Runner for scripts that get keys, and first in front of their own arguments.
func NewRunner(rdb redis.Scripter, keys []string, first ...any) *Runner {
	return &Runner{rdb: rdb, keys: keys, first: first, plain: new(atomic.Bool)}
}

// On returns a Runner that runs the same scripts on rdb, which is a connection to the same Redis.
func (r *Runner) On(rdb redis.Scripter) *Runner {
	on := *r
	on.rdb = rdb
	return &on
}

// With returns a Runner whose scripts get other keys.
func (r *Runner) With(keys ...string) *Runner {
	with := *r
	with.keys = keys
	return &with
}

// Keys returns the keys that the scripts get.
func (r *Runner) Keys() []string { return r.keys }

// AssumeOld makes r send the form without flags, as to a Redis that has refused them.
func (r *Runner) AssumeOld() { r.plain.Store(true) }

// Run sends EVALSHA, and EVAL after it if Redis does not have the script yet. Errors are those of
// go-redis. The first call on a Redis that is too old for flags takes more round trips.
func (r *Runner) Run(ctx context.Context, s *Script, args ...any) *redis.Cmd {
	args = slices.Concat(r.first, args)
	if !r.plain.Load() {
		cmd := s.flagged().Run(ctx, r.rdb, r.keys, args...)
		if !refusesFlags(cmd.Err()) {
			return cmd
		}
		r.AssumeOld()
	}
	return s.plain().Run(ctx, r.rdb, r.keys, args...)
}

func refusesFlags(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "error compiling script")
}
