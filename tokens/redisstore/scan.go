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

// scanAtOnce is the number of keys that one SCAN examines, which takes Redis about a millisecond.
const scanAtOnce = 1000

// ScanIDs implements [tokens.Scanner] with one SCAN over all keys of one server, including keys of
// other programs. In a cluster it scans shard after shard; it may miss shards that join or leave
// during the scan.
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
	prefix := s.prefix + ":t:" // it has no character with a special meaning in a pattern
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

// parseCursor parses the number of the shard and the cursor of Redis.
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

// primaries returns the servers that have tokens, always in the same order.
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
