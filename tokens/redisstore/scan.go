package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/tokens"
)

// scanAtOnce is how many keys one SCAN looks at: Redis is busy with it for about a millisecond.
const scanAtOnce = 1000

// ScanIDs implements [tokens.Scanner]: one SCAN over the keys of one server, those of other programs
// included. A cluster is walked through shard by shard; shards that join or leave meanwhile may be missed.
func (s *Store) ScanIDs(ctx context.Context, cursor string) (ids []idgen.ID, next string, err error) {
	shard, position, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	const op = "scan the tokens"
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	nodes, err := s.primaries(ctx)
	if err != nil {
		return nil, "", failure(op, err)
	}
	if shard >= len(nodes) {
		return nil, "", fmt.Errorf("%w: there is no shard %d", tokens.ErrCursor, shard)
	}
	prefix := s.prefix + ":t:" // no character of which means anything in a pattern
	keys, position, err := nodes[shard].Scan(ctx, position, prefix+"*", scanAtOnce).Result()
	if err != nil {
		return nil, "", failure(op, err)
	}
	for _, key := range keys {
		if id, err := idgen.Parse(strings.TrimPrefix(key, prefix)); err == nil {
			ids = append(ids, id)
		}
	}
	switch {
	case position != 0:
	case shard+1 < len(nodes):
		shard++
	default:
		return ids, "", nil
	}
	return ids, strconv.Itoa(shard) + "." + strconv.FormatUint(position, 10), nil
}

// parseCursor reads the number of the shard and the cursor of Redis.
func parseCursor(cursor string) (shard int, position uint64, err error) {
	if cursor == "" {
		return 0, 0, nil
	}
	first, second, found := strings.Cut(cursor, ".")
	number, err1 := strconv.ParseUint(first, 10, 16)
	position, err2 := strconv.ParseUint(second, 10, 64)
	if !found || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("%w: %.40q", tokens.ErrCursor, cursor)
	}
	return int(number), position, nil
}

// primaries returns the servers that have tokens, in an order that does not change.
func (s *Store) primaries(ctx context.Context) ([]redis.Cmdable, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{s.client}, nil
	}
	var mu sync.Mutex
	var nodes []*redis.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	list := make([]redis.Cmdable, len(nodes))
	for i, node := range nodes {
		list[i] = node
	}
	return list, err
}
