package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/rev.lua
	revLua string
	//go:embed lua/rule_load.lua
	ruleLoadLua string
	//go:embed lua/rule_add.lua
	ruleAddLua string
	//go:embed lua/rule_restore.lua
	ruleRestoreLua string
	//go:embed lua/version.lua
	versionLua string
	//go:embed lua/key_add.lua
	keyAddLua string
	//go:embed lua/key_remove.lua
	keyRemoveLua string
	//go:embed lua/token_delete.lua
	tokenDeleteLua string

	ruleLoadScript    = newScript(revLua + ruleLoadLua)
	ruleAddScript     = newScript(revLua + ruleAddLua)
	ruleRestoreScript = newScript(revLua + ruleRestoreLua)
	versionScript     = newScript(revLua + versionLua)
	keyAddScript      = newScript(revLua + keyAddLua)
	keyRemoveScript   = newScript(revLua + keyRemoveLua)
	tokenDeleteScript = newScript(tokenDeleteLua)
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

// dialect remembers whether Redis is too old for flags.
type dialect struct{ plain atomic.Bool }

// run sends EVALSHA, followed by EVAL if Redis does not know the script yet.
func (d *dialect) run(ctx context.Context, rdb redis.Scripter, s *script, keys []string, args ...any) *redis.Cmd {
	if !d.plain.Load() {
		cmd := s.flagged.Run(ctx, rdb, keys, args...)
		if !refusesFlags(cmd.Err()) {
			return cmd
		}
		d.plain.Store(true)
	}
	return s.plain.Run(ctx, rdb, keys, args...)
}

func refusesFlags(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "error compiling script")
}

// revision runs a script on what all gateways share about revocation.
func (s *Store) revision(ctx context.Context, rdb redis.Scripter, sc *script, args ...any) ([]string, error) {
	keys := []string{s.sharedKey("rev"), s.sharedKey("tagkey")}
	head := []any{s.pushChannel(), s.longest.Load(), graceMilli, unknownLongest.Milliseconds()}
	return s.dialect.run(ctx, rdb, sc, keys, append(head, args...)...).StringSlice()
}

// change runs a script that changes what is shared, and reports a push that
// could not be sent: it is the last of the count values that the script returns.
func (s *Store) change(ctx context.Context, rdb redis.Scripter, sc *script, count int, args ...any) ([]string, error) {
	reply, err := s.revision(ctx, rdb, sc, args...)
	if err != nil {
		return nil, err
	}
	if len(reply) != count {
		return nil, fmt.Errorf("a script returned %d values instead of %d", len(reply), count)
	}
	s.reportPush(reply[count-1])
	return reply, nil
}

// write is change within the store's timeout.
func (s *Store) write(ctx context.Context, op string, sc *script, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if _, err := s.change(ctx, s.client, sc, 2, args...); err != nil {
		return failure(op, err)
	}
	return nil
}

// durably runs a revocation within the store's timeout and then, if that is
// asked for, waits for replicas to have it. That has to be on the same connection.
func (s *Store) durably(ctx context.Context, write func(context.Context, redis.Scripter) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+s.waitTimeout)
	defer cancel()
	node, ok := s.client.(*redis.Client)
	if s.waitReplicas == 0 || !ok {
		return write(ctx, s.client)
	}
	conn := node.Conn()
	defer func() { _ = conn.Close() }()
	if err := write(ctx, conn); err != nil {
		return err
	}
	have, err := conn.Wait(ctx, s.waitReplicas, s.waitTimeout).Result()
	if err == nil && have < int64(s.waitReplicas) {
		err = &replicasError{have: have, want: s.waitReplicas}
	}
	return err
}

// replicasError says that a write was made and is not yet safe.
type replicasError struct {
	have int64
	want int
}

func (e *replicasError) Error() string {
	return fmt.Sprintf("the write was made, but only %d of %d replicas have confirmed it", e.have, e.want)
}
func (e *replicasError) kind() string { return KindTimeout }

// reportPush counts a push that Redis would not send, by the name of the
// command, where the observer counts everything else. It is no failure of the
// write: the others look once a second, and no cached token outlives CACHE_TTL.
func (s *Store) reportPush(refusal string) {
	if refusal != "" && s.observe != nil {
		s.observe("publish", 0, serverKind(refusal))
	}
}
