package redisstore_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// startCluster starts a cluster of one node that holds all slots.
func startCluster(t *testing.T) string {
	t.Helper()
	_, address := clusterNode(t)
	return address
}

func clusterNode(t *testing.T) (*redistest.Server, string) {
	t.Helper()
	server := redistest.Start(t, "--cluster-enabled", "yes", "--appendonly", "no")
	server.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	server.Eventually("form a cluster", func() bool {
		return strings.Contains(server.Do("CLUSTER", "INFO"), "cluster_state:ok")
	})
	return server, strings.Replace(server.URL(), "redis://", "redis+cluster://", 1)
}

func TestClusterWithoutSlots(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	store := open(t, redisstore.Options{URL: strings.Replace(server.URL(), "redis://", "redis+cluster://", 1)})
	wantUnavailable(t, "Load from a cluster without slots", load(store, 1))
	wantUnavailable(t, "Save to a cluster without slots", store.Save(t.Context(), tokenstest.SampleRecord(1), time.Minute))
}

func TestClusterRecovers(t *testing.T) {
	t.Parallel()
	server, address := clusterNode(t)
	store := open(t, redisstore.Options{URL: address})
	testRecovery(t, server, store, func() {
		// A node that comes back keeps quiet for two seconds of its own.
		server.Eventually("rejoin its cluster", func() bool {
			return strings.Contains(server.Do("CLUSTER", "INFO"), "cluster_state:ok")
		})
	})
}

// sentinelURL is the address of sentinel, with the password of the servers it
// watches.
func sentinelURL(sentinel, primary *redistest.Server, name string) string {
	query := url.Values{"master_name": {name}, "password": {primary.Password()}}
	return "redis+sentinel://" + sentinel.Addr() + "?" + query.Encode()
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	sentinel := redistest.StartSentinel(t, "mymaster", primary)
	sentinel.Eventually("find the replica", func() bool {
		return strings.Contains(sentinel.Do("SENTINEL", "MASTER", "mymaster"), "num-slaves\n1")
	})
	store := open(t, redisstore.Options{URL: sentinelURL(sentinel, primary, "mymaster")})
	r := tokenstest.SampleRecord(1)
	if err := store.Save(t.Context(), r, time.Hour); err != nil {
		t.Fatalf("Save through Sentinel = %v", err)
	}
	replica.Eventually("receive the token", func() bool {
		return replica.Do("EXISTS", "sg:t:"+r.Token.ID.String()) == "1"
	})

	primary.Kill()
	replica.Eventually("become the primary", func() bool {
		wantUnavailableOrNil(t, "Load during the failover", load(store, r.Token.ID))
		wantUnavailableOrNil(t, "Delete during the failover", store.Delete(t.Context(), 4711))
		// Sentinel closes the connections of the server it promotes, so this
		// one may end in the middle of a question.
		role, err := replica.TryDo("ROLE")
		return err == nil && strings.Contains(role, "master")
	})
	// The time until Sentinel reports the new primary is not part of the test.
	sentinel.Eventually("tell of the new primary", func() bool {
		return strings.Contains(sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"), strings.TrimPrefix(replica.Addr(), "127.0.0.1:"))
	})
	begin := time.Now()
	replica.Eventually("serve the store", func() bool { return store.Delete(t.Context(), 4711) == nil })
	if took := time.Since(begin); took > time.Second {
		t.Errorf("the store needed %s to find the new primary, want at most 1 s", took)
	}
	if err := load(store, r.Token.ID); err != nil {
		t.Errorf("Load from the new primary = %v, want the token", err)
	}
}

func wantUnavailableOrNil(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		wantUnavailable(t, what, err)
	}
}

// TestSentinelThatKnowsNoPrimary: its reply is "nil", which must not be taken for the reply that a
// token does not exist.
func TestSentinelThatKnowsNoPrimary(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, "mymaster", primary)
	store := open(t, redisstore.Options{URL: sentinelURL(sentinel, primary, "another")})
	for range 5 {
		err := load(store, 1)
		wantUnavailable(t, "Load", err)
		if errors.Is(err, tokens.ErrUnknown) {
			t.Errorf("Load = %v", err)
		}
	}
}
