package redisclients

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/clients"
	"snowgate/tokens/tokenstest/redistest"
)

// BenchmarkRefresh measures what 100 000 clients cost a gateway at its start, at every push, and
// after every interruption of the pushes.
func BenchmarkRefresh(b *testing.B) {
	const many = 100_000
	rdb := connect(b, redistest.Start(b).URL())
	fill(b, rdb, many)
	g := newGateway(rdb)
	begin := time.Now()
	if err := g.Refresh(b.Context()); err != nil || g.registry.Len() != many {
		b.Fatalf("%d clients, %v", g.registry.Len(), err)
	}
	b.Logf("first load: %s", time.Since(begin))
	b.Run("one change", func(b *testing.B) {
		other := newGateway(rdb)
		for b.Loop() {
			if _, err := other.Update(b.Context(), document("c000007"), 0); err != nil {
				b.Fatal(err)
			}
			if err := g.Poll(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("full", func(b *testing.B) {
		for b.Loop() {
			if err := g.Refresh(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("given back", func(b *testing.B) {
		for b.Loop() {
			if err := rdb.FlushAll(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
			if err := g.Refresh(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func fill(b *testing.B, rdb redis.UniversalClient, many int) {
	b.Helper()
	_, credential := clients.Issue("s1", noon, time.Time{})
	pipe := rdb.Pipeline()
	for i := range many {
		c := clients.Client{ID: fmt.Sprintf("c%06d", i), Revision: uint64(i + 1), Secrets: []clients.Secret{credential.Secret()}}
		d := document(c.ID)
		d.ApplyTo(&c)
		text, err := encodeRecord(&c)
		_, err2 := pipe.HSet(b.Context(), "{sg}:c", c.ID, text), pipe.ZAdd(b.Context(), "{sg}:cs", redis.Z{Score: float64(i + 1), Member: c.ID}).Err()
		if err := errors.Join(err, err2); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			if _, err := pipe.Exec(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := rdb.HSet(b.Context(), "{sg}:rev", "v", many).Err(); err != nil {
		b.Fatal(err)
	}
}
