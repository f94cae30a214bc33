package upstream

import (
	"errors"
	"testing"
	"time"
)

// ejected returns a replica that was taken out for failures in a row, or by rate.
func ejected(now time.Time, byRate bool) *health {
	h := new(health)
	h.eject(now, byRate, Unreachable, "test")
	return h
}

// TestLateResponsesSayNothing: what was under way when a replica was taken out
// neither brings it back nor makes its pause longer.
func TestLateResponsesSayNothing(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	h := ejected(now, false)
	h.answered()
	for range 5 {
		h.broke()
	}
	if h.healthy() {
		t.Error("a late answer has brought it back")
	}
	if h.claimProbe(now.Add(firstPause-1), false) {
		t.Error("it is tried too early")
	}
	now = now.Add(firstPause)
	if !h.claimProbe(now, false) {
		t.Fatal("late failures have made the pause longer")
	}
	if h.claimProbe(now.Add(longestPause-1), false) {
		t.Error("two requests try it at once")
	}
	if !h.claimProbe(now.Add(longestPause), false) {
		t.Error("a probe that does not end keeps it out")
	}
	h.tried(now, Unrelated)
	if !h.claimProbe(now.Add(2*longestPause), false) {
		t.Error("a probe without a verdict is the last one")
	}
	if h.tried(now, Success); !h.healthy() {
		t.Error("a good probe does not bring it back")
	}
}

// TestScatteredFailures: only failures in a row count.
func TestScatteredFailures(t *testing.T) {
	var h health
	for range 10 {
		for range failuresAllowed - 1 {
			if h.broke() {
				t.Fatal("it is to be taken out")
			}
		}
		h.answered()
	}
}

// TestWhatBringsBack: who could not be reached needs any response, who failed too often a good one.
func TestWhatBringsBack(t *testing.T) {
	for _, test := range []struct {
		byRate  bool
		outcome Outcome
		back    bool
	}{
		{false, Success, true}, {false, BadStatus, true}, {false, TooSlow, false}, {false, Invalid, false},
		{true, Success, true}, {true, BadStatus, false}, {true, TooSlow, false}, {true, Unreachable, false},
	} {
		h := ejected(time.Time{}, test.byRate)
		if h.tried(time.Time{}, test.outcome); h.healthy() != test.back {
			t.Errorf("by rate %t, probe %d: back %t, want %t", test.byRate, test.outcome, h.healthy(), test.back)
		}
	}
}

// TestCheckOutranksTheRate: in both directions.
func TestCheckOutranksTheRate(t *testing.T) {
	var now time.Time
	h := ejected(now, true)
	if h.checked(now, nil); !h.healthy() {
		t.Error("the check passes, and the rate keeps it out")
	}
	if h.eject(now, true, BadStatus, "test"); !h.healthy() {
		t.Error("the check passes, and the rate takes it out")
	}
	h.checked(now, errors.New("ill"))
	if h.answered(); h.usable(true) {
		t.Error("the check fails, and requests bring it back")
	}
	h.checked(now, nil)
	h.eject(now, false, Unreachable, "test")
	if h.checked(now, nil); h.healthy() {
		t.Error("a check has brought back who breaks connections")
	}
}

// TestOutlier: a share like that of the others is no outlier, nor is one of few requests.
func TestOutlier(t *testing.T) {
	for _, test := range []struct {
		own, others counts
		want        bool
	}{
		{counts{0, 49}, counts{50, 0}, false},
		{counts{0, 50}, counts{49, 0}, false},
		{counts{0, 50}, counts{50, 0}, true},
		{counts{0, 500}, counts{0, 500}, false},
		{counts{0, 500}, counts{200, 300}, false},
		{counts{250, 250}, counts{500, 0}, true},
	} {
		if got := isOutlier(test.own, test.others); got != test.want {
			t.Errorf("%+v beside %+v: %t, want %t", test.own, test.others, got, test.want)
		}
	}
}

// TestSlowProbe: a probe that is not answered in time neither brings the replica back nor makes its
// pause longer, and the next one waits for the pause.
func TestSlowProbe(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	h := ejected(now, false)
	for range 3 {
		now = now.Add(firstPause)
		if !h.claimProbe(now, false) {
			t.Fatal("no probe after the pause")
		}
		now = now.Add(3 * time.Second)
		h.tried(now, TooSlow)
		if h.healthy() {
			t.Fatal("a slow probe has brought it back")
		}
		if h.claimProbe(now.Add(firstPause-1), false) {
			t.Error("the next probe did not wait")
		}
	}
}
