package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of passive health.
const (
	// failuresAllowed is how many failures in a row take a replica out.
	failuresAllowed = 3
	// firstPause is how long a replica is left alone when it is taken out; each
	// probe that fails doubles it, up to longestPause.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// hurry is how often a replica is probed while no other is left.
	hurry = time.Second
)

// health is what is known of how a replica does: from the requests it was sent,
// and from the checks, if there are any. The zero value is a replica of which
// nothing bad is known. It is safe for concurrent use.
type health struct {
	troubled atomic.Bool // there were failures since the last success
	out      atomic.Bool // taken out for failures
	unfit    atomic.Bool // the last check has failed

	mu       sync.Mutex
	failures int           // in a row
	pause    time.Duration // before the next probe
	last     time.Time     // when it was taken out, or probed
	probing  bool          // the one request that may try it is under way
	changed  time.Time     // when out or unfit changed; zero: never
	reason   string        // of that
}

// fit reports whether any request may be sent.
func (h *health) fit() bool { return !h.out.Load() && !h.unfit.Load() }

// due returns when a replica that was taken out may be tried by one request. In a
// hurry, when no other is left, that is sooner.
func (h *health) due(hurried bool) time.Time {
	pause := h.pause
	if hurried {
		pause = min(pause, hurry)
	}
	return h.last.Add(pause)
}

// claim gives the caller the right to be the one request that tries a replica
// that was taken out, if it is time for that.
func (h *health) claim(now time.Time, hurried bool) bool {
	if !h.out.Load() || h.unfit.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probing || !h.out.Load() || now.Before(h.due(hurried)) {
		return false
	}
	h.probing, h.last = true, now
	return true
}

// wait returns how long it takes until a request may be sent at the earliest.
func (h *health) wait(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.due(true).Sub(now), 0)
}

// succeeded notes a good answer. One that was under way when the replica was
// taken out says nothing about it now.
func (h *health) succeeded(now time.Time, probe bool) {
	if !h.troubled.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.out.Load() && !probe {
		return
	}
	if h.out.Swap(false) {
		h.changed, h.reason = now, ""
	}
	h.probing, h.failures, h.pause = false, 0, 0
	h.troubled.Store(false)
}

// failed notes a failure. It reports whether that took the replica out. A replica
// that is alone is never taken out for failures: there is no other to turn to, and
// its own failure tells more than ours would.
func (h *health) failed(now time.Time, probe, alone bool, reason string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.troubled.Store(true)
	if probe {
		h.probing = false
		h.pause = min(2*h.pause, longestPause)
		h.last = now
		return false
	}
	h.failures++
	if h.failures < failuresAllowed || alone || h.out.Load() {
		return false
	}
	h.pause, h.last, h.changed, h.reason = firstPause, now, now, reason
	h.out.Store(true)
	return true
}

// abandoned gives the right to try back, without a verdict.
func (h *health) abandoned(probe bool) {
	if !probe {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
}

// checked notes the result of a check, nil for a good one.
func (h *health) checked(now time.Time, err error) {
	bad := err != nil
	if h.unfit.Load() == bad {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unfit.Store(bad)
	h.changed, h.reason = now, ""
	if bad {
		h.reason = err.Error()
	}
}

// state returns since when the replica is as it is, zero for from the beginning,
// and why, if it is not fit.
func (h *health) state() (fit bool, changed time.Time, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fit(), h.changed, h.reason
}
