package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// need is a list of commands that the gateway must be allowed to run on one key, or without a key.
type need struct {
	key      string   // empty: these commands have no key
	commands []string // with their arguments; KEY stands for the key
}

// needs returns all commands of the gateway, including those within its scripts, with keys of each
// kind.
func (s *Store) needs() []need {
	shared := func(name string, commands ...string) need { return need{s.sharedKey(name), commands} }
	return []need{
		{"", []string{"PING", "TIME", "INFO", "EVALSHA 0 0", "EVAL 0 0",
			"PUBLISH " + s.pushChannel() + " x", "PUBLISH " + s.pushChannel() + ":x x",
			"SUBSCRIBE " + s.pushChannel() + " " + s.pushChannel() + ":x"}},
		{s.prefix + ":t:x", []string{"GET KEY", "GETEX KEY", "MGET KEY", "SET KEY x", "DEL KEY"}},
		{s.prefix + ":l:x", []string{"GET KEY", "SET KEY x"}},
		shared("epoch", "GETEX KEY", "EXISTS KEY", "SET KEY x"),
		shared("installation", "HGET KEY x", "HMGET KEY x", "HLEN KEY", "HSET KEY x x"),
		shared("w", "HGET KEY x", "HSET KEY x x"),
		shared("wl", "ZADD KEY 0 x", "ZSCORE KEY x", "ZRANGE KEY 0 0", "ZRANGEBYSCORE KEY 0 0"),
		shared("wa", "HGET KEY x", "HSET KEY x x"),
		shared("wr", "HGET KEY x", "HSET KEY x x"),
		shared("rev", "HGET KEY x", "HGETALL KEY", "HSET KEY x x", "HDEL KEY x", "HSCAN KEY 0"),
		shared("tagkey", "HGETALL KEY", "HSETNX KEY x x", "HDEL KEY x", "EXISTS KEY"),
		shared("c", "HGET KEY x", "HGETALL KEY", "HSET KEY x x", "HDEL KEY x", "HEXISTS KEY x", "HLEN KEY"),
		shared("cs", "ZADD KEY 0 x", "ZSCORE KEY x", "ZCARD KEY", "ZRANGEBYSCORE KEY 0 0"),
		shared("cu", "HGET KEY x", "HGETALL KEY", "HSET KEY x x", "HDEL KEY x"),
		shared("cm", "HGET KEY x", "HSET KEY x x"),
	}
}

// ErrRightsUnknown is returned if the rights cannot be checked, which requires MULTI or ACL.
var ErrRightsUnknown = errors.New("redisstore: the user may neither use MULTI nor ACL, so its rights cannot be looked at")

// MissingRights returns the rights that the gateway needs and the user of the configured URL lacks,
// each as a command and its key or channel. It executes nothing: Redis checks the rights of a
// command when it is queued in a transaction, and MissingRights discards the transaction. If the
// user may not use MULTI, it uses ACL DRYRUN, which requires Redis 7.
func (s *Store) MissingRights(ctx context.Context) ([]string, error) {
	const op = "look at the rights"
	needs := s.needs()
	if s.waitReplicas > 0 {
		needs = append(needs, need{"", []string{"WAIT 0 0"}})
	}
	var all []string
	for _, n := range needs {
		missing, err := s.missing(ctx, n)
		if errors.Is(err, ErrRightsUnknown) {
			return nil, err
		}
		if err != nil {
			return nil, failure(op, err)
		}
		all = append(all, missing...)
	}
	return all, nil
}

// missing checks the commands of one need.
func (s *Store) missing(ctx context.Context, n need) ([]string, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	node, err := s.nodeOf(ctx, n.key)
	if err != nil {
		return nil, err
	}
	conn := node.Conn()
	defer func() { _ = conn.Close() }()
	may := queued
	err = conn.Do(ctx, "discard").Err() // an error without MULTI; which one tells whether it may be called
	if Kind(err) != KindAuth {
		err = conn.Do(ctx, "multi").Err()
	}
	switch {
	case err == nil:
		defer conn.Do(ctx, "discard")
	case Kind(err) == KindAuth:
		if may, err = dryRun(ctx, conn); err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	var missing []string
	for _, command := range n.commands {
		var args []any
		for _, word := range strings.Fields(command) {
			if word == "KEY" {
				word = n.key
			}
			args = append(args, word)
		}
		ok, err := may(ctx, conn, args)
		if err != nil {
			return nil, err
		}
		if !ok {
			missing = append(missing, strings.TrimSpace(strings.Fields(command)[0]+" "+n.subject(args)))
		}
	}
	return missing, nil
}

// judge reports whether the user of conn may run a command.
type judge func(ctx context.Context, conn *redis.Conn, command []any) (bool, error)

// queued is the judge within a transaction.
func queued(ctx context.Context, conn *redis.Conn, command []any) (bool, error) {
	err := conn.Do(ctx, command...).Err()
	if err != nil && Kind(err) == KindAuth {
		return false, nil
	}
	return err == nil, err
}

// dryRun returns the judge that asks ACL DRYRUN about the user of conn.
func dryRun(ctx context.Context, conn *redis.Conn) (judge, error) {
	user, err := conn.Do(ctx, "acl", "whoami").Text()
	if err != nil {
		return nil, ErrRightsUnknown
	}
	if err := conn.Do(ctx, "acl", "dryrun", user, "ping").Err(); err != nil {
		return nil, ErrRightsUnknown
	}
	return func(ctx context.Context, conn *redis.Conn, command []any) (bool, error) {
		verdict, err := conn.Do(ctx, append([]any{"acl", "dryrun", user}, command...)...).Text()
		return verdict == "OK", err
	}, nil
}

// subject returns the key or channel of a command.
func (n need) subject(args []any) string {
	if n.key == "" && len(args) > 1 {
		if name, _ := args[1].(string); name != "0" {
			return name
		}
	}
	return n.key
}

// nodeOf returns the server of a key, or that of the shared keys if key is empty.
func (s *Store) nodeOf(ctx context.Context, key string) (*redis.Client, error) {
	switch client := s.client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		if key == "" {
			key = s.sharedKey("epoch")
		}
		return client.MasterForKey(ctx, key)
	default:
		return nil, fmt.Errorf("a client of type %T has no nodes", client)
	}
}

// Settings reads the settings of Redis, for a check.
func (s *Store) Settings(ctx context.Context) Settings { return s.settings(ctx) }
