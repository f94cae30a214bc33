package redisclients

import (
	"context"
	_ "embed"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/shared.lua
	sharedLua string
	//go:embed lua/put.lua
	putLua string
	//go:embed lua/delete.lua
	deleteLua string
	//go:embed lua/changes.lua
	changesLua string
	//go:embed lua/read.lua
	readLua string
	//go:embed lua/restore.lua
	restoreLua string
	//go:embed lua/touch.lua
	touchLua string

	putScript     = newScript(sharedLua + putLua)
	deleteScript  = newScript(sharedLua + deleteLua)
	changesScript = newScript(sharedLua + changesLua)
	readScript    = newScript(sharedLua + readLua)
	restoreScript = newScript(sharedLua + restoreLua)
	touchScript   = newScript(sharedLua + touchLua)
)

// script is a Lua script that must work while Redis is full, which takes a
// first line that only Redis 7 and later understand. Redis 6 and miniredis
// refuse to compile it; they get the script without.
type script struct {
	flagged, plain *redis.Script
}

func newScript(text string) *script {
	return &script{redis.NewScript("#!lua flags=allow-oom\n" + text), redis.NewScript(text)}
}

// runner runs scripts on one Redis and remembers whether it is an old one.
type runner struct {
	rdb     redis.UniversalClient
	keys    []string
	channel string
	timeout time.Duration
	old     atomic.Bool
}

func newRunner(rdb redis.UniversalClient, prefix string, timeout time.Duration) *runner {
	tag := "{" + prefix + "}:"
	return &runner{
		rdb: rdb, keys: []string{tag + "rev", tag + "c", tag + "cs", tag + "cu", tag + "cm"},
		channel: tag + "push", timeout: timeout,
	}
}

// documentsKey is the key of the hash of documents.
func (r *runner) documentsKey() string { return r.keys[1] }

// usedKey is the key of the hash of last uses.
func (r *runner) usedKey() string { return r.keys[3] }

// run sends EVALSHA, followed by EVAL if Redis does not know the script yet.
func (r *runner) run(ctx context.Context, s *script, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	args = append([]any{r.channel}, args...)
	if !r.old.Load() {
		reply, err := s.flagged.Run(ctx, r.rdb, r.keys, args...).StringSlice()
		if !refusesFlags(err) {
			return reply, err
		}
		r.old.Store(true)
	}
	return s.plain.Run(ctx, r.rdb, r.keys, args...).StringSlice()
}

func refusesFlags(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "error compiling script")
}
