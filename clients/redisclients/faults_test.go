package redisclients

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"snowgate/clients"
	"snowgate/tokens/tokenstest/redistest"
)

// content returns all stored data about clients, except the last uses and the ends of generations,
// which depend on the time.
func content(t *testing.T, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	all := map[string]string{"v": rdb.HGet(t.Context(), "{sg}:rev", "v").Val()}
	for id, doc := range rdb.HGetAll(t.Context(), "{sg}:c").Val() {
		all["document "+id] = doc
	}
	for _, z := range rdb.ZRangeWithScores(t.Context(), "{sg}:cs", 0, -1).Val() {
		all["change "+z.Member.(string)] = fmt.Sprint(z.Score)
	}
	return all
}

// wantWhole checks that the stored data is consistent.
func wantWhole(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	all := content(t, rdb)
	for id, doc := range rdb.HGetAll(t.Context(), "{sg}:c").Val() {
		c, err := decodeRecord(id, doc)
		if err != nil {
			t.Errorf("the document of %s: %v", id, err)
		}
		if change := all["change "+id]; change != fmt.Sprint(c.Revision) || c.Generation > c.Revision {
			t.Errorf("%s: the document has revision %d and generation %d, its last change %s", id, c.Revision, c.Generation, change)
		}
	}
}

// change is one way to change a client that has the secrets s1 and s2.
type change struct {
	name string
	do   func(t *testing.T, g *gateway, expected uint64) error
	// again is the error of repeating the change after it was made.
	again error
}

var changes = []change{
	{"create", func(t *testing.T, g *gateway, _ uint64) error {
		_, err := g.Create(t.Context(), document("new"), issue())
		return err
	}, clients.ErrExists},
	{"update", func(t *testing.T, g *gateway, expected uint64) error {
		d := document("a")
		d.Disabled = true
		_, err := g.Update(t.Context(), d, expected)
		return err
	}, clients.ErrConflict},
	{"add a secret", func(t *testing.T, g *gateway, expected uint64) error {
		_, err := g.AddSecret(t.Context(), "a", issue(), time.Time{}, expected)
		return err
	}, clients.ErrConflict},
	{"remove a secret", func(t *testing.T, g *gateway, expected uint64) error {
		_, err := g.RemoveSecret(t.Context(), "a", "s1", expected)
		return err
	}, clients.ErrConflict},
	{"delete", func(t *testing.T, g *gateway, expected uint64) error {
		_, err := g.Delete(t.Context(), "a", expected)
		return err
	}, clients.ErrNotFound},
}

// TestCutConnections: a change is made in full or not at all, and at most once, wherever the
// connection is cut, and however often the command is sent.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	clean := connect(t, server.URL())
	for _, ch := range changes {
		for name, what := range map[string]cut{"before": cutBefore, "after": cutAfter} {
			for first := 1; first <= 3; first++ {
				for _, always := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%d/always=%v", ch.name, name, first, always), func(t *testing.T) {
						testCut(t, server, clean, ch, what, first, always)
					})
				}
			}
		}
	}
}

func testCut(t *testing.T, server *redistest.Server, clean *redis.Client, ch change, what cut, first int, always bool) {
	server.FlushAll()
	w := new(wire)
	g, observer := newGateway(cutting(t, server.URL(), w)), newGateway(clean)
	create(t, g, "a")
	two, err := g.AddSecret(t.Context(), "a", issue(), time.Time{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	g.refresh(t, true)
	server.Do("SCRIPT", "FLUSH") // so that there are two commands to cut
	before := content(t, clean)

	w.mu.Lock()
	w.scripts = 0
	w.cut = func(n int) cut {
		if n == first || always && n > first {
			return what
		}
		return intact
	}
	w.mu.Unlock()
	err = ch.do(t, g, two.After.Revision)
	after := content(t, clean)
	wantWhole(t, clean)
	switch {
	case err == nil && after["v"] != "3":
		t.Errorf("it succeeded, and the revision is %s, want 3: it is made once", after["v"])
	case err == nil:
	case !always:
		t.Errorf("one cut is not survived: %v", err)
	case !errors.Is(err, clients.ErrUnavailable):
		t.Errorf("error = %v, want ErrUnavailable", err)
	case what == cutBefore || after["v"] == before["v"]:
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("half made (-want +got):\n%s", diff)
		}
	case after["v"] != "3":
		t.Errorf("the revision is %s, want 3: it is made once", after["v"])
	}
	made := after["v"] == "3"

	// If the operator repeats the change, it is made now, or the error says that it was made.
	w.mu.Lock()
	w.cut = nil
	w.mu.Unlock()
	want := ch.again
	if !made {
		want = nil
	}
	if err := ch.do(t, g, two.After.Revision); !errors.Is(err, want) {
		t.Errorf("done anew = %v, want %v", err, want)
	}
	// All gateways have the same result.
	g.refresh(t, false)
	observer.refresh(t, true)
	if diff := cmp.Diff(observer.known(), g.known()); diff != "" {
		t.Errorf("two gateways (-want +got):\n%s", diff)
	}
	if len(g.reports) > 0 {
		t.Errorf("reports: %v", g.reports)
	}
}

// known returns the clients that the gateway knows from the store.
func (g *gateway) known() map[string]clients.Client {
	all := map[string]clients.Client{}
	page, _ := g.registry.Page("", 1_000_000, nil)
	for _, c := range page {
		all[c.ID] = *c
	}
	return all
}
