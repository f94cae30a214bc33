package redisstore

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/redisscript"
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

	ruleLoadScript    = redisscript.New(revLua, ruleLoadLua)
	ruleAddScript     = redisscript.New(revLua, ruleAddLua)
	ruleRestoreScript = redisscript.New(revLua, ruleRestoreLua)
	versionScript     = redisscript.New(revLua, versionLua)
	keyAddScript      = redisscript.New(revLua, keyAddLua)
	keyRemoveScript   = redisscript.New(revLua, keyRemoveLua)
	tokenDeleteScript = redisscript.New(tokenDeleteLua)
)

// revision runs a script on the shared data about revocation.
func (s *Store) revision(ctx context.Context, rdb redis.Scripter, sc *redisscript.Script, args ...any) ([]string, error) {
	first := []any{s.longest.Load(), graceMilli, unknownLongest.Milliseconds()}
	return s.scripts.On(rdb).Run(ctx, sc, append(first, args...)...).StringSlice()
}

// change runs a script that changes shared data. The last of the count values that the script
// returns says whether the push could be sent; if not, change reports that.
func (s *Store) change(ctx context.Context, rdb redis.Scripter, sc *redisscript.Script, count int, args ...any) ([]string, error) {
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

// write is change, with the timeout that leaves time for a new connection.
func (s *Store) write(ctx context.Context, op string, sc *redisscript.Script, args ...any) error {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	if _, err := s.change(ctx, s.client, sc, 2, args...); err != nil {
		return failure(op, err)
	}
	return nil
}

// server is a Redis, or one connection to it.
type server interface {
	redis.Scripter
	Process(ctx context.Context, cmd redis.Cmder) error
}

// durably runs a write of key within the timeout of the store; an empty key stands for the shared
// data. If the options require it, durably then waits on the same connection until replicas have
// the write. If a cluster has moved the key meanwhile, durably finds the new owner and tries once
// more.
func (s *Store) durably(ctx context.Context, key string, write func(context.Context, server) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout+s.waitTimeout)
	defer cancel()
	if s.waitReplicas == 0 {
		return write(ctx, s.client)
	}
	err := s.writeAndWait(ctx, key, write)
	if cluster, ok := s.client.(*redis.ClusterClient); ok && Kind(err) == KindCluster {
		cluster.ReloadState(ctx)
		err = s.writeAndWait(ctx, key, write)
	}
	return err
}

func (s *Store) writeAndWait(ctx context.Context, key string, write func(context.Context, server) error) error {
	node, err := s.nodeOf(ctx, key)
	if err != nil {
		return err
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

// replicasError is the error of a write that was made, but that too few replicas have confirmed.
type replicasError struct {
	have int64
	want int
}

func (e *replicasError) Error() string {
	return fmt.Sprintf("the write was made, but only %d of %d replicas have confirmed it", e.have, e.want)
}
func (e *replicasError) kind() string { return KindTimeout }

// reportPush counts a push that Redis refused to send, under the name of the command. The write has
// succeeded all the same: other gateways read the revision twice a second, and no cached token is
// used for longer than CACHE_TTL.
func (s *Store) reportPush(refusal string) {
	if refusal != "" && s.observe != nil {
		s.observe("publish", 0, serverKind(refusal))
	}
}
