package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of passive health.
const (
	// failuresAllowed is how many failures in a row take a replica out. What counts as one is
	// said by [blame.breaks].
	failuresAllowed = 3
	// firstPause is how long a replica is left alone when it is taken out; each
	// probe that fails doubles it, up to longestPause. A probe that takes longer than
	// longestPause is no longer waited for.
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// panicProbePause is how often a replica is probed while the route is in panic.
	panicProbePause = time.Second
)

// health is what is known of how a replica does: from the requests it was sent,
// and from the checks, if there are any. The zero value is a replica of which
// nothing bad is known. It is safe for concurrent use.
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

// healthy reports whether any request may be sent.
func (h *health) healthy() bool { return !h.ejected.Load() && !h.unhealthy.Load() }

// usable is fit, for a route that may be in panic: then it does not heed what was found out
// from requests, only what the checks say.
func (h *health) usable(panicking bool) bool {
	return !h.unhealthy.Load() && (panicking || !h.ejected.Load())
}

// due returns when a replica that was taken out may be tried by one request. In a
// hurry, when too few others are left, that is sooner.
func (h *health) due(hurried bool) time.Time {
	pause := h.pause
	if hurried {
		pause = min(pause, panicProbePause)
	}
	return h.last.Add(pause)
}

// claimProbe gives the caller the right to be the one request that tries a replica
// that was taken out, if it is time for that. Nobody keeps the right for longer than
// longestPause: a client that is slow could keep the replica out for as long as it likes.
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

// answered notes a valid response. One that was under way when the replica was taken out says
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

// broke notes a failure of those that count by themselves. It reports whether there have been
// so many in a row that the replica is to be taken out.
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

// eject takes the replica out because of b, unless it is, or a check vouches for it, which outranks the
// rate.
func (h *health) eject(now time.Time, byRate bool, b Blame, reason string) {
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

// tried notes how the request has ended that tried the replica. What took it out decides what
// brings it back: who could not be reached needs to give any valid response, who failed too
// often a good one. A client may know a request that takes long or is answered 503, so only
// the second kind is left alone for longer because of that.
func (h *health) tried(now time.Time, b Blame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ejected.Load() {
		return
	}
	h.probing = false
	switch {
	case b == Good, b == BadStatus && !h.byRate:
		h.restore(now)
	case b == Nobody:
	case b == TooSlow && !h.byRate: // a slow path proves nothing, but the next probe has to wait
		h.last = now
	default:
		h.pause = min(2*h.pause, longestPause)
		h.last = now
	}
}

// restore brings the replica back, with nothing bad known of it. The caller holds the lock.
func (h *health) restore(now time.Time) {
	h.changed, h.reason = now, ""
	h.probing, h.failures, h.pause = false, 0, 0
	h.recent.reset()
	h.suspect.Store(false)
	h.ejected.Store(false)
}

// checked notes the result of a check, nil for a good one. A good one outranks the rate, and
// after a bad one it is a new beginning. It reports whether the result differs from that before.
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

// unchecked says that nobody checks the replica any more. It is given the benefit of the doubt.
func (h *health) unchecked(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkPassed.Store(false)
	if h.unhealthy.Swap(false) {
		h.changed = now
	}
}

// timesEjected returns how often the replica was taken out.
func (h *health) timesEjected() Ejections {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ejections
}

// state returns since when the replica is as it is, zero for from the beginning,
// and why, if it is not fit.
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
