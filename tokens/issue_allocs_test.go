package tokens_test

import (
	"context"
	"runtime/debug"
	"testing"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
)

// acceptor is a store that takes every token, keeps none, and costs nothing.
type acceptor struct{ tokens.Store }

func (acceptor) Save(context.Context, tokens.Record, time.Duration) error { return nil }

// issuer returns a service that issues and does nothing else.
func issuer(t testing.TB) *tokens.Service {
	t.Helper()
	s := tokens.NewService(tokens.Config{
		Store: acceptor{}, Keys: tokens.FixedKeyring(gateKey), IDs: &bubbleIDs{worker: 7}, MintTime: mintTime,
		Worker: func(idgen.ID) (int64, bool) { return 7, true }, Timeout: time.Minute,
	})
	t.Cleanup(s.Close)
	return s
}

// The number of allocations of a new token, without the store. It must be exact, so a change that
// saves one updates it.
func TestIssueAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection allocates too
	s := issuer(t)
	// The context with the deadline, the texts of the token and of
	// its id, and the copy of the audience.
	const want = 5
	got := testing.AllocsPerRun(2000, func() {
		if _, _, err := s.Issue(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
	})
	if got != want {
		t.Errorf("%v allocations, want %v", got, want)
	}
}
