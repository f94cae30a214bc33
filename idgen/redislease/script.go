package redislease

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/redisscript"
)

var (
	//go:embed lua/registry.lua
	registryLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/free.lua
	freeLua string
	//go:embed lua/time.lua
	timeLua string

	acquireScript = redisscript.New(registryLua, acquireLua)
	extendScript  = redisscript.New(registryLua, extendLua)
	releaseScript = redisscript.New(registryLua, releaseLua)
	freeScript    = redisscript.New(registryLua, freeLua)
	timeScript    = redisscript.New(timeLua)
)

// runner runs scripts on one Redis.
type runner struct {
	rdb  redis.Scripter
	keys []string

	dialect redisscript.Dialect
}

func newRunner(rdb redis.Scripter, prefix string) *runner {
	tag := "{" + prefix + "}"
	return &runner{rdb: rdb, keys: []string{tag + ":w", tag + ":wl", tag + ":wa", tag + ":wr"}}
}

// run sends EVALSHA, followed by EVAL if Redis does not know the script yet.
func (r *runner) run(ctx context.Context, s *redisscript.Script, args ...any) *redis.Cmd {
	return r.dialect.Run(ctx, r.rdb, s, r.keys, args...)
}

// reply is what the three registry scripts return.
type reply struct {
	status         string
	number         int64
	floor, ceiling int64 // Unix milliseconds, as now
	now            int64
	wait           int64 // milliseconds
	text           string
}

func (r *runner) ask(ctx context.Context, s *redisscript.Script, args ...any) (reply, error) {
	parts, err := r.run(ctx, s, args...).Slice()
	if err != nil {
		return reply{}, err
	}
	if len(parts) != 7 {
		return reply{}, fmt.Errorf("a script returned %d values instead of 7", len(parts))
	}
	var v reply
	var ok [7]bool
	v.status, ok[0] = parts[0].(string)
	v.number, ok[1] = parts[1].(int64)
	v.floor, ok[2] = parts[2].(int64)
	v.ceiling, ok[3] = parts[3].(int64)
	v.now, ok[4] = parts[4].(int64)
	v.wait, ok[5] = parts[5].(int64)
	v.text, ok[6] = parts[6].(string)
	if ok != [7]bool{true, true, true, true, true, true, true} {
		return reply{}, fmt.Errorf("a script returned %v", parts)
	}
	return v, nil
}
