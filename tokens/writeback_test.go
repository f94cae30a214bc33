package tokens_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
)

// TestRevocationsAreWrittenBack: a failover undoes revocations of single tokens. Those that were made
// here lately are made again. An older one, good tokens, and one whose revocation was only heard of
// stay as they are: whoever can forge a push must not be able to delete a token.
func TestRevocationsAreWrittenBack(t *testing.T) {
	for name, lost := range map[string]func(*gate){
		"after a gap":           func(g *gate) { g.Gap() },
		"after a lost revision": func(g *gate) { g.WritesLost() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var again atomic.Int32
				g := newGate(t, func(c *tokens.Config) { c.OnWriteBack = func(idgen.ID) { again.Add(1) } })
				mine, _ := g.issue(t, grant)
				twice, _ := g.issue(t, grant)
				theirs, heard := g.issue(t, grant)
				good, _ := g.issue(t, grant)
				old, _ := g.issue(t, grant)
				rollback := g.store.Snapshot()
				if err := g.Revoke(t.Context(), old, grant.Client); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				for _, text := range []string{mine, twice, mine, twice} {
					if err := g.Revoke(t.Context(), text, grant.Client); err != nil {
						t.Fatal(err)
					}
				}
				g.Dropped(heard.ID)
				rollback()
				down := errors.New("down")
				g.store.Fail(func(string) error { return down })
				lost(g)
				time.Sleep(3 * time.Second)
				g.store.Fail(nil)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				g.want(t, "revoked here", mine, "unknown")
				g.want(t, "revoked here twice", twice, "unknown")
				g.want(t, "revoked by a push alone", theirs, "ok")
				g.want(t, "never revoked", good, "ok")
				g.want(t, "revoked two minutes before", old, "ok")
				if n := again.Load(); n != 2 {
					t.Errorf("%d revocations were reported as made again, want 2", n)
				}
				lost(g)
				synctest.Wait()
				if n := again.Load(); n != 2 {
					t.Errorf("a second time, %d revocations were reported, want still 2", n)
				}
			})
		})
	}
}

// TestWriteBackIsBounded: of very many revocations the latest are remembered.
func TestWriteBackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		for id := range idgen.ID(20_000) {
			if err := g.RevokeID(t.Context(), id+1); err != nil {
				t.Fatal(err)
			}
		}
		before := g.loads()
		g.Gap()
		synctest.Wait()
		if n := g.loads() - before; n < 2000 || n > 5000 {
			t.Errorf("%d records were looked for, want some thousands", n)
		}
	})
}

// TestMissingTokens: a cached token whose record is gone early is reported, one that was revoked or
// has expired is not.
func TestMissingTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var missing []idgen.ID
		g := newGate(t, func(c *tokens.Config) { c.OnMissing = func(id idgen.ID) { missing = append(missing, id) } })
		lost, record := g.issue(t, grant)
		heard, dropped := g.issue(t, grant)
		revoked, _ := g.issue(t, grant)
		for _, text := range []string{lost, heard, revoked} {
			g.want(t, "a new token", text, "ok")
		}
		for _, token := range []tokens.Token{record, dropped} {
			if err := g.store.Delete(t.Context(), token.ID); err != nil {
				t.Fatal(err)
			}
		}
		g.Dropped(dropped.ID)
		if err := g.Revoke(t.Context(), revoked, grant.Client); err != nil {
			t.Fatal(err)
		}
		time.Sleep(cacheTTL + time.Second)
		for _, text := range []string{lost, heard, revoked, lost} {
			g.want(t, "a token that is gone", text, "unknown")
		}
		if len(missing) != 1 || missing[0] != record.ID {
			t.Errorf("missing = %v, want %v once", missing, record.ID)
		}
	})
}
