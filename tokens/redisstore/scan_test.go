package redisstore_test

import (
	"errors"
	"slices"
	"testing"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest/redistest"
)

// walk collects all ids, and how many calls that took.
func walk(t *testing.T, store *redisstore.Store) (ids []idgen.ID, calls int) {
	t.Helper()
	for cursor := ""; ; calls++ {
		page, next, err := store.ScanIDs(t.Context(), cursor)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, page...)
		if cursor = next; next == "" {
			slices.Sort(ids)
			return slices.Compact(ids), calls + 1
		}
	}
}

func TestScanFindsTheTokensOnly(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, redisstore.Options{URL: server.URL()})
	var want []idgen.ID
	for id := idgen.ID(1); id <= 2500; id++ {
		want = append(want, id)
	}
	together(want, func(id idgen.ID) {
		if err := saveID(t, store, id); err != nil {
			t.Error(err)
		}
	})
	for _, other := range []string{"sg:t:t:00000000001", "sg2:t:00000000001", "sg:t:x", "else"} {
		server.Do("SET", other, "1")
	}
	got, calls := walk(t, store)
	if !slices.Equal(got, want) || calls < 3 {
		t.Errorf("%d ids in %d calls, want %d in several", len(got), calls, len(want))
	}
	for _, cursor := range []string{"1.0", "x", "0", "0.x", "-1.0", "0.99999999999999999999"} {
		if _, _, err := store.ScanIDs(t.Context(), cursor); !errors.Is(err, tokens.ErrCursor) {
			t.Errorf("the cursor %q: %v", cursor, err)
		}
	}
	server.Kill()
	if _, _, err := store.ScanIDs(t.Context(), ""); !errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("without Redis: %v", err)
	}
}

func TestScanOfACluster(t *testing.T) {
	t.Parallel()
	s := startShards(t)
	var want []idgen.ID
	for _, ids := range s.known {
		want = append(want, ids...)
	}
	slices.Sort(want)
	if got, calls := walk(t, s.store); !slices.Equal(got, want) || calls < 3 {
		t.Errorf("%d ids in %d calls, want %d from three shards", len(got), calls, len(want))
	}
}
