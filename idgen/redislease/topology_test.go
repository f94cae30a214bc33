package redislease

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/tokens/tokenstest/redistest"
)

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

func TestCluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	server.Eventually("have a working cluster", func() bool {
		return strings.Contains(server.Do("CLUSTER", "INFO"), "cluster_state:ok")
	})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}, Password: server.Password()})
	defer rdb.Close()
	sc := scheme(t, layoutA)
	clock := NewClock(rdb, "")
	if err := clock.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := acquire(t, source(t, rdb, Registered(), quick("a")), sc)
	extend(t, l, sc)
	if err := l.Release(t.Context(), now(sc)); err != nil {
		t.Error(err)
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.Start(t)
	replica.Do("CONFIG", "SET", "masterauth", primary.Password(), "requirepass", primary.Password())
	host, port, _ := strings.Cut(primary.Addr(), ":")
	tryReplica := connect(t, "redis://:"+primary.Password()+"@"+replica.Addr())
	if err := tryReplica.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is in sync", func() bool {
		return strings.Contains(tryReplica.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	sentinel := redistest.StartSentinel(t, "sg", primary)
	eventually(t, "the sentinel knows the replica", func() bool {
		return strings.Contains(sentinel.Do("SENTINEL", "REPLICAS", "sg"), replica.Addr())
	})
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "sg", SentinelAddrs: []string{sentinel.Addr()}, Password: primary.Password(),
		ContextTimeoutEnabled: true,
	})
	defer rdb.Close()

	sc := scheme(t, layoutA)
	o := Options{Address: "a", Lead: 20 * time.Second, Skew: time.Second} // longer than a failover
	settle(t, store{rdb: rdb}, sc)
	living := source(t, rdb, Any(), o)
	l := acquire(t, living, sc)
	extend(t, l, sc)
	primary.Kill()
	eventually(t, "the new primary takes an extension", func() bool {
		_, err := l.Extend(t.Context(), now(sc))
		return err == nil
	})
	if st := living.State(); st.Reclaims != 1 || !st.Held {
		t.Errorf("State() = %+v, want one re-claim: the new primary may have missed something", st)
	}
}
