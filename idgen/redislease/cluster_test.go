package redislease

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/tokens/tokenstest/redistest"
)

// gang is a group of generators on one registry that issue ids all the time.
type gang struct {
	sources    []*Source
	generators []*idgen.Generator
	stop       chan struct{}
	done       sync.WaitGroup

	mu      sync.Mutex
	ids     [][]idgen.ID // by generator
	refused []error
}

// startGang starts a generator at each address.
func startGang(t *testing.T, rdb redis.Scripter, o Options, addresses ...string) *gang {
	t.Helper()
	g := &gang{stop: make(chan struct{}), ids: make([][]idgen.ID, len(addresses))}
	for i, address := range addresses {
		o.Address = address
		src := source(t, rdb, Any(), o)
		generator := generatorOn(t, rdb, src)
		g.sources, g.generators = append(g.sources, src), append(g.generators, generator)
		g.done.Go(func() { g.issue(i, generator) })
	}
	return g
}

// issue issues an id about every half a millisecond.
func (g *gang) issue(i int, generator *idgen.Generator) {
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for {
		select {
		case <-g.stop:
			return
		case <-tick.C:
		}
		id, err := generator.Next()
		g.mu.Lock()
		if err != nil {
			g.refused = append(g.refused, err)
		} else {
			g.ids[i] = append(g.ids[i], id)
		}
		g.mu.Unlock()
	}
}

// issued returns the smallest number of ids that a generator has issued.
func (g *gang) issued() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	least := len(g.ids[0])
	for _, ids := range g.ids {
		least = min(least, len(ids))
	}
	return least
}

func (g *gang) refusals() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.refused)
}

// reclaimed reports whether every generator has reclaimed its number that many times.
func (g *gang) reclaimed(times int64) bool {
	return !slices.ContainsFunc(g.sources, func(s *Source) bool { return s.State().Reclaims < times })
}

// end stops the generators, and checks their ids and that no number was lost.
func (g *gang) end(t *testing.T) {
	t.Helper()
	close(g.stop)
	g.done.Wait()
	seen := make(map[idgen.ID]bool)
	total := 0
	for i, ids := range g.ids {
		total += len(ids)
		if !slices.IsSorted(ids) {
			t.Errorf("the ids of generator %d do not rise", i)
		}
		for _, id := range ids {
			seen[id] = true
		}
		if st := g.sources[i].State(); !st.Held || st.Worker != int64(i) || st.Losses != 0 {
			t.Errorf("generator %d: %+v, want number %d held and never lost", i, st, i)
		}
	}
	if len(seen) != total {
		t.Errorf("%d of %d ids were issued twice", total-len(seen), total)
	}
}

// TestClusterMovesTheRegistry moves the slot of the registry from node to node
// while generators hold numbers in it and renew them.
func TestClusterMovesTheRegistry(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Password: c.Password(), ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = rdb.Close() })
	sc := scheme(t, layoutA)

	t.Run("under load", func(t *testing.T) {
		t.Parallel()
		settleOn(t, rdb, sc, "sg")
		g := startGang(t, rdb, Options{Lead: 2 * time.Second, Skew: 100 * time.Millisecond}, "a", "b", "c")
		moves := int64(0)
		for _, to := range []int{0, 1, 2, 0} {
			if c.Owner("{sg}") == c.Nodes[to] {
				continue
			}
			begun := g.issued()
			c.Move("{sg}", c.Nodes[to], func() {
				eventually(t, "ids are issued while the registry is on its way", func() bool { return g.issued() > begun+10 })
			})
			moves++
			eventually(t, "all return to their numbers", func() bool { return g.reclaimed(moves) })
		}
		if moves < 2 {
			t.Fatalf("the registry moved %d times", moves)
		}
		if refused := g.refusals(); len(refused) > 0 {
			t.Errorf("%d calls were refused, the first with %v", len(refused), refused[0])
		}
		// The last node gives out numbers, too, after its quarantine.
		late := acquire(t, source(t, rdb, Any(), quick("d")), sc)
		if n := late.Worker().Number; n != 3 {
			t.Errorf("a newcomer got number %d, want 3", n)
		}
		g.end(t)
	})

	// Redis refuses scripts whose keys are partly on another node. So a slot whose move was not
	// completed stops the issuing of ids, but nothing else.
	t.Run("stuck", func(t *testing.T) {
		const prefix = "stuck"
		settleOn(t, rdb, sc, prefix)
		o := quick("")
		o.Prefix = prefix
		g := startGang(t, rdb, o, "a", "b")
		owner := c.Owner("{stuck}")
		c.Move("{stuck}", c.Other(owner), func() {
			eventually(t, "the ceiling is reached", func() bool { return len(g.refusals()) > 0 })
		})
		for _, err := range g.refusals() {
			if !errors.Is(err, idgen.ErrCeiling) {
				t.Fatalf("a call was refused with %v, want ErrCeiling", err)
			}
		}
		before := g.issued()
		eventually(t, "ids are issued again", func() bool { return g.issued() > before+10 })
		g.end(t)
	})
}
