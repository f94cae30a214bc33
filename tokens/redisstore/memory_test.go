package redisstore_test

import (
	"crypto/rand"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest/redistest"
)

// TestMemoryPerToken measures what a live token takes of Redis's memory, the
// hash tables it is in included. Those are as full as they get: just after they
// have grown, a token takes 16 bytes more for a while. The allocator of Debian's
// redis-server rounds to 16 bytes, that of the official image to 8, where it is
// about 24 bytes less.
func TestMemoryPerToken(t *testing.T) {
	t.Parallel()
	const count = 32_000 // just below 2^15
	server := redistest.Start(t)
	// One connection, the same for both measurements: each takes some 20 KB.
	store := open(t, redisstore.Options{URL: server.URL() + "?pool_size=1", Timeout: 5 * time.Second})
	for _, sample := range []struct {
		name  string
		token tokens.Token
		most  float64 // bytes
	}{
		{"two scopes", tokens.Token{Client: "orders", Scope: scope.Of("orders.read", "orders.write")}, 215},
		{"two scopes, longer client", tokens.Token{Client: "orders-worker", Scope: scope.Of("orders.read", "orders.write")}, 231},
		{"two scopes, client once revoked", tokens.Token{Client: "orders", Scope: scope.Of("orders.read", "orders.write"), Generation: 1000}, 215},
		{"an audience too", tokens.Token{
			Client: "orders-worker", Scope: scope.Of("orders.read", "orders.write"), Audience: []string{"https://orders.example"},
		}, 247},
	} {
		server.FlushAll()
		if err := store.Claim(t.Context(), ours); err != nil { // connects
			t.Fatal(err)
		}
		before := usedMemory(server)
		saveMany(t, store, sample.token, count)
		perToken := float64(usedMemory(server)-before) / count
		t.Logf("%s: %.1f bytes", sample.name, perToken)
		if perToken > sample.most {
			t.Errorf("%s: a live token takes %.1f bytes, want at most %.0f", sample.name, perToken, sample.most)
		}
	}
}

func saveMany(t *testing.T, store *redisstore.Store, token tokens.Token, count int) {
	t.Helper()
	for i := range count {
		r := tokens.Record{Token: token}
		r.Token.ID = idgen.ID(int64(i) << 20)
		r.Token.ExpiresAt = time.Now().Add(time.Hour)
		rand.Read(r.Digest[:])
		if err := store.Save(t.Context(), r, time.Hour+time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

func usedMemory(server *redistest.Server) int { return int(server.Info("memory", "used_memory")) }
