package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of passive health.
const (
	// failuresAllowed is how many failures in a row eject a replica. [Outcome.breaks] says which
	// ones count.
	failuresAllowed = 3
	// firstPause is the time from an ejection to the first probe. Each failed probe doubles it, up
	// to longestPause. After longestPause the result of a probe is no longer waited for.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// panicProbePause is the longest time between two probes while the route is in panic.
	panicProbePause = time.Second
)

// health is the state of one replica: what requests to it and the active checks have shown. The
// zero value is healthy. It is safe for concurrent use.
type health struct {
	suspect     atomic.Bool // there were failures since the last success, or it is out
	ejected     atomic.Bool // taken out for failures
	unhealthy   atomic.Bool // the last check has failed
	checkPassed atomic.Bool // the last check has passed
	recent      tally

	mu        sync.Mutex
	failures  int           // in a row
	byRate    bool          // taken out for its share of failures
	pause     time.Duration // before the next probe
	last      time.Time     // when it was taken out, or probed
	probing   bool          // the one request that may try it is under way
	changed   time.Time     // when out or unfit changed; zero: never
	reason    string        // why it was taken out
	complaint string        // of the check that has failed
	ejections Ejections
}

// healthy reports whether any request may be sent to the replica.
func (h *health) healthy() bool { return !h.ejected.Load() && !h.unhealthy.Load() }

// usable reports whether a route may use the replica. A route in panic ignores ejections and heeds
// only the active checks.
func (h *health) usable(panicking bool) bool {
	return !h.unhealthy.Load() && (panicking || !h.ejected.Load())
}

// due returns when the next probe of an ejected replica may start. In panic that is sooner.
func (h *health) due(hurried bool) time.Time {
	pause := h.pause
	if hurried {
		pause = min(pause, panicProbePause)
	}
	return h.last.Add(pause)
}

// claimProbe reports whether the caller may probe the ejected replica now. One request at a time
// does; the right ends after longestPause, so that a slow client cannot keep the replica out.
func (h *health) claimProbe(now time.Time, hurried bool) bool {
	if !h.ejected.Load() || h.unhealthy.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.probing && now.Before(h.last.Add(longestPause))
	if held || !h.ejected.Load() || now.Before(h.due(hurried)) {
		return false
	}
	h.probing, h.last = true, now
	return true
}

// answered records a valid response. If the replica was ejected meanwhile, the response says
// nothing about it now.
func (h *health) answered() {
	if !h.suspect.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ejected.Load() {
		return
	}
	h.failures = 0
	h.suspect.Store(false)
}

// broke records a failure that counts by itself. It reports whether there were enough in a row to
// eject the replica.
func (h *health) broke() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.suspect.Store(true)
	h.failures++
	return h.failures >= failuresAllowed && !h.ejected.Load()
}

// isBroken reports whether there were enough failures in a row to take the replica out.
func (h *health) isBroken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures >= failuresAllowed
}

// eject ejects the replica because of b, unless it is ejected already. A passed check prevents an
// ejection by rate.
func (h *health) eject(now time.Time, byRate bool, b Outcome, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ejected.Load() || byRate && h.checkPassed.Load() {
		return
	}
	h.byRate, h.probing, h.pause, h.last, h.changed, h.reason = byRate, false, firstPause, now, now, reason
	h.ejections[b.reason()]++
	h.suspect.Store(true)
	h.ejected.Store(true)
}

// tried records the end of a probe. A replica that could not be reached comes back with any valid
// response; one that failed too often needs a good one. A client may know a path that is slow or
// responds with 503, so such an outcome makes the pause longer only after an ejection by rate.
func (h *health) tried(now time.Time, b Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ejected.Load() {
		return
	}
	h.probing = false
	switch {
	case b == Success, b == BadStatus && !h.byRate:
		h.restore(now)
	case b == Unrelated:
	case b == TooSlow && !h.byRate: // a slow path proves nothing, but the next probe has to wait
		h.last = now
	default:
		h.pause = min(2*h.pause, longestPause)
		h.last = now
	}
}

// restore makes the replica healthy and forgets its failures. The caller holds mu.
func (h *health) restore(now time.Time) {
	h.changed, h.reason = now, ""
	h.probing, h.failures, h.pause = false, 0, 0
	h.recent.reset()
	h.suspect.Store(false)
	h.ejected.Store(false)
}

// checked records the result of an active check, nil for a passed one. A passed check ends an
// ejection by rate, and after a failed one it makes the replica healthy. It reports whether the
// result differs from the one before.
func (h *health) checked(now time.Time, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkPassed.Store(err == nil)
	changed = h.unhealthy.Swap(err != nil) != (err != nil)
	if changed {
		h.changed = now
	}
	switch {
	case err != nil:
		if changed {
			h.complaint = err.Error()
			h.ejections[byCheck]++
		}
	case h.ejected.Load() && (changed || h.byRate):
		h.restore(now)
	}
	return changed
}

// unchecked records that the replica is no longer checked. It counts as healthy then.
func (h *health) unchecked(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkPassed.Store(false)
	if h.unhealthy.Swap(false) {
		h.changed = now
	}
}

// timesEjected returns how often the replica was ejected, by reason.
func (h *health) timesEjected() Ejections {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ejections
}

// state returns whether the replica is healthy, since when (zero: from the beginning), and why not.
func (h *health) state() (fit bool, changed time.Time, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.unhealthy.Load():
		reason = h.complaint
	case h.ejected.Load():
		reason = h.reason
	}
	return h.healthy(), h.changed, reason
}
