package panics_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/internal/panics"
)

// told collects the panics that the test reports.
func told(t *testing.T) *[]*panics.Panic {
	t.Helper()
	var list []*panics.Panic
	panics.Notify(func(p *panics.Panic) { list = append(list, p) })
	return &list
}

func index(list []int, i int) int { return list[i] }

func TestCatchEndsTheExchangeAndCounts(t *testing.T) {
	list := told(t)
	before := panics.Count(panics.Upload)
	var ended []error
	for range 3 {
		func() {
			defer panics.Catch(panics.Upload, func(err error) { ended = append(ended, err) })
			index(nil, 7)
		}()
	}
	if got := panics.Count(panics.Upload) - before; got != 3 || len(ended) != 3 {
		t.Errorf("%d panics counted and %d exchanges ended, want 3", got, len(ended))
	}
	var p *panics.Panic
	if !errors.As(ended[0], &p) || ended[0].Error() != "panic in upload: runtime error: index out of range [7] with length 0" {
		t.Errorf("the exchange ended with %v", ended[0])
	}
	if len(*list) != 1 {
		t.Fatalf("%d panics of one place told, want 1", len(*list))
	}
	first, _, _ := strings.Cut((*list)[0].Stack, "\n")
	if !strings.HasPrefix(first, "snowgate/internal/panics_test.index (panics_test.go:") {
		t.Errorf("the stack begins with %q", first)
	}
}

// TestNothingOfACallerIsTold: reports contain neither the text of a panic nor an argument.
func TestNothingOfACallerIsTold(t *testing.T) {
	list := told(t)
	const secret = "sgt_secret\x1b[31m"
	for _, value := range []any{secret, errors.New(secret), []byte(secret)} {
		func() {
			defer panics.Catch(panics.Handler, nil)
			func(string) { panic(value) }(secret)
		}()
	}
	for _, p := range *list {
		if text := p.Error() + p.Stack; strings.Contains(text, "sgt_") || strings.Contains(text, "0x") || strings.Contains(text, "\x1b") {
			t.Errorf("a panic is told as %q", text)
		}
	}
	if len(*list) != 1 {
		t.Errorf("%d panics told, want 1", len(*list))
	}
}

func TestBrokenMayPanic(t *testing.T) {
	told(t)
	before := panics.Count(panics.Tunnel)
	func() {
		defer panics.Catch(panics.Tunnel, func(error) { panic("again") })
		panic("once")
	}()
	if got := panics.Count(panics.Tunnel) - before; got != 2 {
		t.Errorf("%d panics counted, want 2", got)
	}
}

// TestKeepGoesOn: a loop that panics starts again, after longer and longer pauses. The place is
// reported once a minute.
func TestKeepGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := told(t)
		begin, runs := time.Now(), 0
		var at []time.Duration
		panics.Keep(t.Context(), panics.Feed, func(context.Context) {
			at = append(at, time.Since(begin))
			if runs++; runs < 20 {
				panic("x")
			}
		})
		if runs != 20 || at[1] != 50*time.Millisecond || at[2] != 150*time.Millisecond || at[19]-at[18] != 10*time.Second {
			t.Errorf("%d runs, at %v", runs, at)
		}
		if n := len(*list); n < 2 || n > 3 || (*list)[1].Untold == 0 {
			t.Errorf("%d panics told in %v", n, at[19])
		}
	})
}

func TestKeepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told(t)
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		panics.Keep(ctx, panics.Feed, func(context.Context) {
			runs++
			cancel()
			panic("x")
		})
		if runs != 1 {
			t.Errorf("%d runs after the end", runs)
		}
	})
}
