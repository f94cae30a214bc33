package redislease

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
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
	//go:embed lua/time.lua
	timeLua string

	acquireScript = newScript(registryLua + acquireLua)
	extendScript  = newScript(registryLua + extendLua)
	releaseScript = newScript(registryLua + releaseLua)
	timeScript    = newScript(timeLua)
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
	rdb  redis.Scripter
	keys []string
	old  atomic.Bool
}

func newRunner(rdb redis.Scripter, prefix string) *runner {
	tag := "{" + prefix + "}"
	return &runner{rdb: rdb, keys: []string{tag + ":w", tag + ":wl", tag + ":wa", tag + ":wr"}}
}

// run sends EVALSHA, followed by EVAL if Redis does not know the script yet.
func (r *runner) run(ctx context.Context, s *script, args ...any) *redis.Cmd {
	if !r.old.Load() {
		cmd := s.flagged.Run(ctx, r.rdb, r.keys, args...)
		if !refusesFlags(cmd.Err()) {
			return cmd
		}
		r.old.Store(true)
	}
	return s.plain.Run(ctx, r.rdb, r.keys, args...)
}

func refusesFlags(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "error compiling script")
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

func (r *runner) ask(ctx context.Context, s *script, args ...any) (reply, error) {
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
