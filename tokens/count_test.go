package tokens_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/idgen"
	"snowgate/tokens"
	"snowgate/tokens/tokenstest"
)

// slowScanner has pages of ids, each of which takes a while.
type slowScanner struct {
	pages [][]idgen.ID
	takes time.Duration
}

func (s slowScanner) ScanIDs(_ context.Context, cursor string) ([]idgen.ID, string, error) {
	page, _ := strconv.Atoi(cursor)
	if page < 0 || page >= len(s.pages) {
		return nil, "", tokens.ErrCursor
	}
	time.Sleep(s.takes)
	if page+1 == len(s.pages) {
		return s.pages[page], "", nil
	}
	return s.pages[page], strconv.Itoa(page + 1), nil
}

type noIDs struct{}

func (noIDs) Next(context.Context) (idgen.ID, error) { return 0, tokens.ErrUnavailable }

// countingService is a service whose ids are milliseconds and the worker as the last digit.
func countingService(s tokens.Scanner) *tokens.Service {
	return tokens.NewService(tokens.Config{
		Store: tokenstest.NewStore(time.Now), Scanner: s, Keys: tokens.FixedKeyring(tokens.NewKey()), IDs: noIDs{},
		MintTime: func(id idgen.ID) time.Time { return time.UnixMilli(int64(id) / 10) },
		Worker:   func(id idgen.ID) (int64, bool) { return int64(id) % 10, id != 999 },
	})
}

func TestCountRule(t *testing.T) {
	at := time.UnixMilli
	pages := [][]idgen.ID{{101, 102, 201, 202}, {101, 301, 999}, {}, {401}}
	tests := []struct {
		why  string
		rule tokens.Rule
		want int
	}{
		{"a worker, from the first instant to before the last", tokens.WorkerRule(1, at(10), at(30)), 2},
		{"another worker", tokens.WorkerRule(2, at(0), at(1000)), 2},
		{"a worker without tokens", tokens.WorkerRule(3, at(0), at(1000)), 0},
		{"everything before an instant", tokens.BeforeRule(at(20)), 2},
	}
	for _, tt := range tests {
		got, err := countingService(slowScanner{pages: pages}).CountRule(t.Context(), tt.rule, "")
		if err != nil || got.Tokens != tt.want || got.Seen != 8 || got.Next != "" {
			t.Errorf("%s: %+v, %v, want %d of 8", tt.why, got, err, tt.want)
		}
	}
	s := countingService(slowScanner{pages: pages})
	if _, err := s.CountRule(t.Context(), tokens.ClientRule("a"), ""); !errors.Is(err, tokens.ErrRule) {
		t.Errorf("a client: %v", err)
	}
	if _, err := s.CountRule(t.Context(), tests[0].rule, "9"); !errors.Is(err, tokens.ErrCursor) {
		t.Errorf("a cursor: %v", err)
	}
	if _, err := countingService(nil).CountRule(t.Context(), tests[0].rule, ""); !errors.Is(err, tokens.ErrUnavailable) {
		t.Errorf("without a scanner: %v", err)
	}
}

// A step ends after about a second, half of which the store is left alone.
func TestCountRuleInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := make([][]idgen.ID, 12)
		for i := range pages {
			pages[i] = []idgen.ID{idgen.ID(10*i + 1)}
		}
		s := countingService(slowScanner{pages: pages, takes: 100 * time.Millisecond})
		first, err := s.CountRule(t.Context(), tokens.BeforeRule(time.UnixMilli(1000)), "")
		if err != nil || first.Tokens != 6 || first.Next != "6" {
			t.Errorf("first step: %+v, %v, want 6 tokens", first, err)
		}
		second, err := s.CountRule(t.Context(), tokens.BeforeRule(time.UnixMilli(1000)), first.Next)
		if err != nil || second.Tokens != 6 || second.Next != "" {
			t.Errorf("second step: %+v, %v, want 6 more and the end", second, err)
		}
	})
}
