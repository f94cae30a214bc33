package proxy

import (
	"testing"
	"time"
)

// TestLateAnswersSayNothing: what was under way when a replica was taken out
// neither brings it back nor makes its pause longer.
func TestLateAnswersSayNothing(t *testing.T) {
	var h health
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for i := range failuresAllowed {
		if out := h.failed(now, false, false, "test"); out != (i == failuresAllowed-1) {
			t.Fatalf("failure %d: taken out %v", i+1, out)
		}
	}
	h.succeeded(now, false)
	for range 5 {
		h.failed(now.Add(900*time.Millisecond), false, false, "test")
	}
	if h.fit() {
		t.Error("a late answer has brought it back")
	}
	if h.claim(now.Add(firstPause-1), false) {
		t.Error("it is tried too early")
	}
	now = now.Add(firstPause)
	if !h.claim(now, false) {
		t.Fatal("late failures have made the pause longer")
	}
	if h.claim(now.Add(time.Hour), false) {
		t.Error("two requests try it at once")
	}
	h.abandoned(true)
	if !h.claim(now.Add(firstPause), false) {
		t.Error("a probe without a verdict is the last one")
	}
	if h.succeeded(now, true); !h.fit() {
		t.Error("a good probe does not bring it back")
	}
}

// TestScatteredFailures: only failures in a row count.
func TestScatteredFailures(t *testing.T) {
	var h health
	for range 10 {
		for range failuresAllowed - 1 {
			h.failed(time.Time{}, false, false, "test")
		}
		h.succeeded(time.Time{}, false)
	}
	if !h.fit() {
		t.Error("it was taken out")
	}
}
