package redisclients

import (
	"context"
	_ "embed"

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

// keys are the names of the Redis keys and the channel.
type keys struct{ revision, documents, secrets, uses, marks, channel string }

func newKeys(prefix string) keys {
	tag := "{" + prefix + "}:"
	return keys{tag + "rev", tag + "c", tag + "cs", tag + "cu", tag + "cm", tag + "push"}
}

// runner returns a runner whose scripts get all keys, and the channel as their first argument.
func (k *keys) runner(rdb redis.Scripter) *redisscript.Runner {
	return redisscript.NewRunner(rdb, []string{k.revision, k.documents, k.secrets, k.uses, k.marks}, k.channel)
}

// ask runs a script within the timeout of one operation.
func (s *Store) ask(ctx context.Context, sc *redisscript.Script, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	return s.scripts.Run(ctx, sc, args...).StringSlice()
}
