package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"snowgate/config"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/idgen/redislease"
	"snowgate/tokens"
)

// numberBound is how long a gateway stays ready that has lost its worker number and finds no other:
// as long as a number stays leased whose holder is gone.
const numberBound = time.Minute

// numberWatch records when the worker number was lost, and why. It is safe for concurrent use.
type numberWatch struct {
	lost    atomic.Int64 // since when there is none, in Unix milliseconds; 0: there is one
	trouble atomic.Pointer[trouble]

	takenUntil time.Time // the lease of whoever has the only number in question; for the heartbeat
}

// trouble is a failure of the generator's heartbeat.
type trouble struct {
	at  time.Time
	err error
}

// acquired records that a number was taken.
func (w *numberWatch) acquired() { w.lost.Store(0) }

// failed records a failure of the heartbeat at an instant, and whether a number is held.
func (w *numberWatch) failed(now time.Time, err error, held bool) {
	w.trouble.Store(&trouble{now, err})
	if !held {
		w.lost.CompareAndSwap(0, now.UnixMilli())
	}
}

// lostFor returns for how long there has been no number, 0 if there is one.
func (w *numberWatch) lostFor(now time.Time) time.Duration {
	if lost := w.lost.Load(); lost != 0 {
		return now.Sub(time.UnixMilli(lost))
	}
	return 0
}

// renewed reports whether the lease of another gateway, which ends at an instant of Redis, was extended
// since the last call: then its holder lives.
func (w *numberWatch) renewed(end time.Time) bool {
	before := w.takenUntil
	if before.IsZero() {
		w.takenUntil = end
		return false
	}
	return end.After(before)
}

// since returns the failure that explains why no id is issued by a generator whose last success was
// at an instant; nil if there is none.
func (w *numberWatch) since(success time.Time) error {
	if t := w.trouble.Load(); t != nil && t.at.After(success) {
		return t.err
	}
	return nil
}

// noticeLease is called for every event of the worker number in Redis.
func (g *ids) noticeLease(e redislease.Event) {
	if e.Kind == redislease.EventAcquired {
		g.number.acquired()
	}
	logLease(g.log, e)
}

// reportNumber is called for every failure of the generator's heartbeat. A gateway that never had a
// number, and will not get one as it is configured, does not start.
func (g *ids) reportNumber(err error) {
	reportIDs(g.log, err)
	h, started := g.health()
	g.number.failed(time.Now(), err, started && h.Held)
	if started && !h.Heartbeat.IsZero() {
		return
	}
	if reason := g.number.hopeless(g.cfg, err); reason != nil {
		select {
		case g.refused <- &ConfigError{reason}:
		default: // it has been told
		}
	}
}

// hopeless returns the reason why trying again cannot help, nil if it may.
func (w *numberWatch) hopeless(cfg config.Config, err error) error {
	if taken, ok := errors.AsType[*redislease.TakenError](err); ok {
		if !w.renewed(taken.Until) {
			return nil // who had it may be gone, then it is free when the lease ends
		}
		return fmt.Errorf("%sWORKER_ID=%s cannot be had: %w; stop that gateway, give one of the two another number or address, or set %sWORKER_ID=lease",
			config.Prefix, cfg.WorkerID, err, config.Prefix)
	}
	if _, file := errors.AsType[*fs.PathError](err); file {
		return fmt.Errorf("%sSTATE_FILE=%s cannot be used: %w; the directory must be there and writable", config.Prefix, cfg.StateFile, err)
	}
	for _, final := range []error{idgen.ErrSchemeMismatch, idgen.ErrCorrupt, idgen.ErrLocked, idgen.ErrFieldRange, redislease.ErrExhausted} {
		if errors.Is(err, final) {
			return fmt.Errorf("no worker number can be had: %w", err)
		}
	}
	return nil
}

// shownReasons are the reasons that /readyz shows, which anybody may read. The log has more.
var shownReasons = []error{
	redislease.ErrAllTaken, redislease.ErrTaken, redislease.ErrExhausted, redislease.ErrQuarantine,
	idgen.ErrSchemeMismatch, idgen.ErrLeaseLost, idgen.ErrClock, idgen.ErrCeiling, idgen.ErrNoWorker,
}

func shownReason(err error) string {
	for _, reason := range shownReasons {
		if errors.Is(err, reason) {
			return reason.Error()
		}
	}
	if errors.Is(err, tokens.ErrUnavailable) {
		return "Redis cannot be asked"
	}
	return "see the log"
}

// condition is the state that readiness is computed from.
type condition struct {
	missing []string     // what keeps the gateway from deciding
	ids     idgen.Health // of the generator
	worker  *int64       // the number held, if any
	trouble error        // of the last heartbeat, nil if it succeeded
	lost    time.Duration
	once    bool // tokens could be issued at least once
}

// readiness tells whether the gateway can decide, whether it can issue, and whether it should be
// sent requests at all: not before it could issue once, because a newcomer would answer token
// requests with 503 while others do not; and not for long after it has lost its number.
func (c condition) readiness() handlers.Readiness {
	var state handlers.Readiness
	state.Deciding = handlers.Deciding{Ready: len(c.missing) == 0, Missing: c.missing}
	state.Issuing = handlers.Issuing{Ready: state.Deciding.Ready && c.ids.Healthy, Worker: c.worker}
	if err := c.ids.Err; err != nil {
		state.Issuing.Missing = err.Error()
		if reason := shownReason(c.trouble); c.trouble != nil && reason != err.Error() {
			state.Issuing.Missing += ": " + reason
		}
	}
	state.Missing = c.missing
	switch {
	case !c.once && !state.Issuing.Ready:
		state.Missing = slices.Concat(c.missing, []string{"first token: " + state.Issuing.Missing})
	case c.lost > numberBound && c.worker == nil:
		state.Missing = slices.Concat(c.missing, []string{fmt.Sprintf("worker number, for more than %v: %s", numberBound, state.Issuing.Missing)})
	}
	state.Ready = len(state.Missing) == 0
	return state
}

// readiness tells what the gateway can do at this moment.
func (g *Gateway) readiness() handlers.Readiness {
	var c condition
	missing := func(what string, is bool) {
		if is {
			c.missing = append(c.missing, what)
		}
	}
	missing("draining", g.drainer.Draining())
	missing("redis", !g.monitor.Health().Reachable)
	missing("tag keys", !g.shared.keys.Loaded())
	missing("revocation rules", !g.shared.confirmed())
	missing("epoch", !g.installation.made.Load() || g.ids.generator.Load() == nil)
	if other := g.installation.other.Load(); other != nil {
		missing("installation: "+(*other).Error(), true)
	}
	missing("routes from Docker", g.routing.watcher != nil && !g.routing.watcher.Settled())

	h, started := g.ids.health()
	c.ids, c.once = h, g.ids.whole.Load()
	c.trouble, c.lost = g.ids.number.since(h.Heartbeat), g.ids.number.lostFor(time.Now())
	if started && h.Held {
		worker := g.ids.scheme.Layout().WorkerIndex(h.Worker)
		c.worker = &worker
	}
	state := c.readiness()
	state.Remarks = g.storage.remarkTexts(g.monitor.Health())
	if state.Issuing.Ready && !c.once {
		g.ids.whole.Store(true)
	}
	return state
}
