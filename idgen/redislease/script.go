package redislease

import (
	"context"
	_ "embed"
	"fmt"

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

// registryKeys returns the keys of the registry scripts. The first one holds the scheme.
func registryKeys(prefix string) []string {
	tag := "{" + prefix + "}"
	return []string{tag + ":w", tag + ":wl", tag + ":wa", tag + ":wr"}
}

// reply is the result of the three registry scripts.
type reply struct {
	status         string
	number         int64
	floor, ceiling int64 // Unix milliseconds, as now
	now            int64
	wait           int64 // milliseconds
	text           string
}

// ask runs one of the registry scripts.
func (s *Source) ask(ctx context.Context, sc *redisscript.Script, args ...any) (reply, error) {
	parts, err := s.scripts.Run(ctx, sc, args...).Slice()
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
