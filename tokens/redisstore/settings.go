package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Settings holds the values in the reply to INFO on which it depends whether Redis loses data. It
// is zero for a server without them, such as the embedded one.
type Settings struct {
	Version    string // such as 7.0.15
	Policy     string // maxmemory-policy
	Memory     int64  // bytes in use
	MaxMemory  int64  // bytes; 0: no limit
	AppendOnly bool   // it keeps an append-only file
	DiskFails  bool   // the last write of the append-only file, or of a snapshot, has failed
	Replicas   int    // connected to it
}

// evicts reports whether Redis removes live tokens when it is full.
func (s Settings) evicts() bool { return s.Policy != "" && s.Policy != "noeviction" }

const (
	// leastVersion is the first release that has all commands of the gateway.
	leastVersion = "6.2"
	// fullShare is the share of maxmemory in use from which there is a remark.
	fullShare = 0.9
)

// Remark is a recommendation to change a setting of Redis.
type Remark struct {
	Name string // one of [RemarkNames]
	Text string // a sentence that begins with Redis
}

// RemarkNames are the names of all remarks, for metrics.
var RemarkNames = []string{"eviction", "append_only", "disk", "memory", "version", "replicas"}

// Remarks returns the recommendations for s. waitReplicas is the number of replicas that must
// confirm a revocation.
func (s Settings) Remarks(waitReplicas int) []Remark {
	if s == (Settings{}) {
		return nil
	}
	var remarks []Remark
	add := func(name string, is bool, format string, args ...any) {
		if is {
			remarks = append(remarks, Remark{name, fmt.Sprintf(format, args...)})
		}
	}
	add("eviction", s.evicts(), "Redis throws keys away when it is full (maxmemory-policy %s), and live tokens with them: set noeviction", s.Policy)
	add("append_only", !s.AppendOnly, "Redis keeps no append-only file: after a restart tokens and revocations are gone, or as old as its last snapshot; set appendonly yes")
	add("disk", s.DiskFails, "Redis could not write to its disk: look at its log")
	add("memory", s.MaxMemory > 0 && float64(s.Memory) > fullShare*float64(s.MaxMemory),
		"Redis uses %d of %d bytes of maxmemory: when it is full, no tokens can be issued", s.Memory, s.MaxMemory)
	add("version", older(s.Version, leastVersion), "Redis %s is older than %s, which the gateway needs", s.Version, leastVersion)
	add("replicas", s.Replicas < waitReplicas, "Redis has %d replicas connected, fewer than the %d of SNOWGATE_WAIT_REPLICAS: revocations are answered with 503", s.Replicas, waitReplicas)
	return remarks
}

// older reports whether version is lower than than, by major and minor version. It returns false
// for a text that is not a version.
func older(version, than string) bool {
	numbers := func(text string) (major, minor int, ok bool) {
		parts := strings.SplitN(text, ".", 3)
		if len(parts) < 2 {
			return 0, 0, false
		}
		major, err1 := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		return major, minor, err1 == nil && err2 == nil
	}
	major, minor, ok1 := numbers(version)
	leastMajor, leastMinor, ok2 := numbers(than)
	return ok1 && ok2 && cmp.Or(cmp.Compare(major, leastMajor), cmp.Compare(minor, leastMinor)) < 0
}

// parseInfo parses the reply to INFO. A field that is missing or invalid stays zero.
func parseInfo(info string) Settings {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
	return Settings{
		Version: fields["redis_version"], Policy: fields["maxmemory_policy"],
		Memory: number("used_memory"), MaxMemory: number("maxmemory"),
		AppendOnly: fields["aof_enabled"] == "1",
		DiskFails:  fields["aof_last_write_status"] == "err" || fields["rdb_last_bgsave_status"] == "err",
		Replicas:   int(min(number("connected_slaves"), 1<<20)),
	}
}

// settings reads the settings of Redis; it returns zero if that fails. In a cluster, each field is
// the worst value of all primaries that reply.
func (s *Store) settings(ctx context.Context) Settings {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return settingsOf(ctx, s.client)
	}
	var (
		mu    sync.Mutex
		worst Settings
	)
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		one := settingsOf(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		worst = worst.worse(one)
		return nil
	})
	return worst
}

func settingsOf(ctx context.Context, node redis.UniversalClient) Settings {
	info, err := node.Info(ctx).Result()
	if err != nil {
		return Settings{} // the embedded Redis has no such sections
	}
	return parseInfo(info)
}

// worse combines the settings of two servers of a cluster.
func (s Settings) worse(other Settings) Settings {
	if s == (Settings{}) || other == (Settings{}) {
		return cmp.Or(s, other)
	}
	if older(other.Version, s.Version) {
		s.Version = other.Version
	}
	if other.evicts() {
		s.Policy = other.Policy
	}
	if float64(other.Memory)*float64(s.MaxMemory) > float64(s.Memory)*float64(other.MaxMemory) {
		s.Memory, s.MaxMemory = other.Memory, other.MaxMemory
	}
	s.AppendOnly = s.AppendOnly && other.AppendOnly
	s.DiskFails = s.DiskFails || other.DiskFails
	s.Replicas = min(s.Replicas, other.Replicas)
	return s
}
