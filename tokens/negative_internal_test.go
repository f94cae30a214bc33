package tokens

import (
	"testing"
	"time"

	"snowgate/idgen"
)

// TestGoneIsBounded: the cache never has more entries than its size, and always has the last half
// of those that were added.
func TestGoneIsBounded(t *testing.T) {
	g := negativeCache{ttl: time.Second}
	const count = 5 * goneSize
	for i := range count {
		id := idgen.ID(i)
		g.put(id, missing{digest: digestOf(id)})
		if n := len(g.young) + len(g.old); n > goneSize {
			t.Fatalf("%d tokens are kept, want at most %d", n, goneSize)
		}
	}
	for i := count - goneSize/2; i < count; i++ {
		if id := idgen.ID(i); !g.has(id, digestOf(id), 0, 0) {
			t.Fatalf("that of %d is gone", i)
		}
	}
}

// TestGoneHas: the same token, in time and in the same epoch.
func TestGoneHas(t *testing.T) {
	g := negativeCache{ttl: time.Second}
	g.put(1, missing{digest: digestOf(1), asked: time.Minute, epoch: 7})
	for name, tt := range map[string]struct {
		id     idgen.ID
		digest Digest
		now    time.Duration
		epoch  uint32
		want   bool
	}{
		"the token":      {1, digestOf(1), time.Minute + time.Second - 1, 7, true},
		"too late":       {1, digestOf(1), time.Minute + time.Second, 7, false},
		"another epoch":  {1, digestOf(1), time.Minute, 8, false},
		"another secret": {1, digestOf(2), time.Minute, 7, false},
		"another id":     {2, digestOf(1), time.Minute, 7, false},
	} {
		if got := g.has(tt.id, tt.digest, tt.now, tt.epoch); got != tt.want {
			t.Errorf("%s: has = %t, want %t", name, got, tt.want)
		}
	}
	var off negativeCache
	if off.put(1, missing{}); off.has(1, Digest{}, 0, 0) || off.young != nil {
		t.Error("one that is off keeps tokens")
	}
}
