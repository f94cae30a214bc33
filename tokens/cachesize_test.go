package tokens_test

import (
	"runtime"
	"testing"
	"time"

	"snowgate/tokens"
)

// TestMemoryOfCachedTokens measures the heap memory of each cached token, including the tables, so
// that a change that makes entries larger is noticed. The tokens share their attributes.
func TestMemoryOfCachedTokens(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	const (
		count = 20_000
		most  = 160 // bytes
	)
	g := newGate(t, func(c *tokens.Config) { c.CacheTTL, c.CacheSize = time.Hour, 100_000 })
	texts := make([]string, count)
	for i := range texts {
		texts[i], _ = g.issue(t, grant)
	}
	before := live()
	for _, text := range texts {
		if _, err := g.Validate(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	loads := g.loads()
	grown := (live() - before) / count
	t.Logf("%d bytes for each cached token", grown)
	if grown > most {
		t.Errorf("%d bytes live for each cached token, want at most %d", grown, most)
	}
	for _, text := range texts { // they were really in the cache
		if _, err := g.Validate(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if again := g.loads() - loads; again != 0 {
		t.Errorf("%d of %d tokens were not in the cache", again, count)
	}
}

// live returns how many bytes of the heap are in use.
func live() uint64 {
	runtime.GC()
	runtime.GC() // what the first one found finalizers and empty pools for
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
