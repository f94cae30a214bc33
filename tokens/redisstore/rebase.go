package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/internal/redisscript"
	"snowgate/tokens"
)

//go:embed lua/rebase.lua
var rebaseLua string

var rebaseScript = redisscript.New(revLua, rebaseLua)

// Change is the change of an [Installation], see [Store.Rebase].
type Change struct {
	From, To Installation
	Scheme   string        // fingerprint of the new [idgen.Scheme]
	Wait     time.Duration // before worker numbers are given out: the lead and the skew of their leases
	Rule     tokens.Rule   // revokes what was issued before
}

// ErrChanged is returned by [Store.Rebase] if the installation was changed after the caller read
// it.
var ErrChanged = errors.New("redisstore: the installation was changed meanwhile; look again")

// Rebase changes an installation in one step: what is recorded, the registry of worker numbers,
// which begins anew, and the rule. Gateways that run are told, and find out that they are not part
// of it any more before they learn of the rule.
func (s *Store) Rebase(ctx context.Context, c Change) error {
	const op = "change the installation"
	field, value, err := encodeInterval(c.Rule)
	if err != nil {
		return failure(op, err)
	}
	keys := []string{s.sharedKey("rev"), s.sharedKey("tagkey"), s.sharedKey("epoch"), s.sharedKey("installation")}
	for _, name := range []string{"w", "wl", "wa", "wr"} {
		keys = append(keys, s.sharedKey(name))
	}
	args := []any{
		s.longest.Load(), graceMilli, unknownLongest.Milliseconds(),
		c.From.Epoch, c.From.Layout, c.From.TokenKey, c.To.Epoch, c.To.Layout, c.To.TokenKey,
		c.Scheme, c.Wait.Milliseconds(),
		field, c.Rule.Until.UnixMilli(), strings.TrimPrefix(value, `{"end":0,"created":0,`),
	}
	var reply []string
	err = s.durably(ctx, "", func(ctx context.Context, rdb server) (err error) {
		reply, err = s.scripts.On(rdb).With(keys...).Run(ctx, rebaseScript, args...).StringSlice()
		return err
	})
	switch {
	case err != nil:
		return failure(op, err)
	case len(reply) != 2:
		return failure(op, fmt.Errorf("a script returned %d values instead of 2", len(reply)))
	case reply[0] != "done":
		return ErrChanged
	}
	s.reportPush(reply[1])
	return nil
}

// Time returns the time of the Redis node that keeps what all gateways share.
func (s *Store) Time(ctx context.Context) (time.Time, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	node, err := s.clockNode(ctx)
	if err != nil {
		return time.Time{}, failure("read the clock", err)
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return time.Time{}, failure("read the clock", err)
	}
	return now, nil
}

// EachToken calls f for every token that has a record, with the remaining lifetime of the record.
// It scans all keys of Redis, which may take long. It may miss a token that is issued or ends
// during the scan, and may report a token twice. Calls of f do not overlap.
func (s *Store) EachToken(ctx context.Context, f func(id idgen.ID, left time.Duration)) error {
	const op = "list the tokens"
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		if err := s.eachToken(ctx, s.client, f); err != nil {
			return failure(op, err)
		}
		return nil
	}
	one := make(chan struct{}, 1)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		one <- struct{}{}
		defer func() { <-one }()
		return s.eachToken(ctx, node, f)
	})
	if err != nil {
		return failure(op, err)
	}
	return nil
}

func (s *Store) eachToken(ctx context.Context, node redis.Cmdable, f func(idgen.ID, time.Duration)) error {
	prefix := s.prefix + ":t:"
	var cursor uint64
	for {
		keys, next, err := node.Scan(ctx, cursor, prefix+"*", scanAtOnce).Result()
		if err != nil {
			return err
		}
		pipe := node.Pipeline()
		lives := make([]*redis.DurationCmd, len(keys))
		for i, key := range keys {
			lives[i] = pipe.PTTL(ctx, key)
		}
		if _, err := pipe.Exec(ctx); err != nil && len(keys) > 0 {
			return err
		}
		for i, key := range keys {
			id, err := idgen.Parse(strings.TrimPrefix(key, prefix))
			if left := lives[i].Val(); err == nil && left > 0 {
				f(id, left)
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
