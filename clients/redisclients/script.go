package redisclients

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/redisscript"
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

	putScript     = redisscript.New(sharedLua, putLua)
	deleteScript  = redisscript.New(sharedLua, deleteLua)
	changesScript = redisscript.New(sharedLua, changesLua)
	readScript    = redisscript.New(sharedLua, readLua)
	restoreScript = redisscript.New(sharedLua, restoreLua)
	touchScript   = redisscript.New(sharedLua, touchLua)
)

// runner runs scripts on one Redis.
type runner struct {
	rdb     redis.UniversalClient
	keys    []string
	channel string
	timeout time.Duration
	dialect redisscript.Dialect
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
func (r *runner) run(ctx context.Context, s *redisscript.Script, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	args = append([]any{r.channel}, args...)
	return r.dialect.Run(ctx, r.rdb, s, r.keys, args...).StringSlice()
}
