package idgen

import (
	"fmt"
	"time"
)

// Health is a snapshot of a generator.
type Health struct {
	Healthy   bool  // an id would be issued now
	Err       error // why no id would be issued; nil if Healthy
	Held      bool  // a lease is held; after a loss, ids are issued up to the ceiling
	Worker    Worker
	Heartbeat time.Time // last time the lease was extended; zero if never

	Generated int64         // ids issued
	Errors    int64         // calls and heartbeats that failed
	Waits     int64         // how often callers slept
	Waited    time.Duration // sum of the requested sleeps
	Rollbacks int64         // steps back of the clock that the policy rode through or counted

	CeilingDistance time.Duration // from id time to the durable ceiling; 0 if the lease keeps none
	ClockOffset     time.Duration // how far id time is ahead of the reference, or of the clock after a step back
	Exhausts        time.Time     // when the time field is full
}

// Health returns the state of the generator. It reads the clock but does no I/O, and may be called
// at any rate.
func (g *Generator) Health() Health {
	e, generated, held := g.state()
	h := Health{
		Held:        held,
		Worker:      e.worker,
		Generated:   generated,
		Errors:      g.errors.Load(),
		Waits:       g.waits.Load(),
		Waited:      time.Duration(g.waited.Load()),
		Rollbacks:   g.rollbacks.Load(),
		ClockOffset: g.time.ahead(),
		Exhausts:    g.scheme.Exhausts(),
	}
	if beat := g.keeper.beat.Load(); beat != 0 {
		h.Heartbeat = time.UnixMilli(beat)
	}
	now, err := g.diagnose(e)
	if c := e.ceiling.Load(); err == nil && c != NoCeiling {
		h.CeilingDistance = time.Duration(c-now) * time.Millisecond
		if now > c {
			err = ErrCeiling
		}
	}
	h.Healthy, h.Err = err == nil, err
	return h
}

func (g *Generator) state() (e *tenure, generated int64, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e = g.tenure.Load()
	return e, g.retired + e.generated(), g.lease != nil
}

// diagnose returns the id time, or the reason why no id would be issued. Unlike now, it changes
// nothing: it asks the policy but does not act on the verdict.
func (g *Generator) diagnose(e *tenure) (int64, error) {
	if e.err != nil {
		return 0, e.err
	}
	now, seen, err := g.time.read()
	target := max(min(seen, e.used()), e.floor)
	switch {
	case err != nil:
		return 0, err
	case now < 0:
		return now, ErrBeforeEpoch
	case now > e.maxTime:
		return now, ErrTimeExhausted
	case now < target && !g.ringCopes(e) && g.verdict(e, now, target) == Refuse:
		return now, fmt.Errorf("%w: by %d ms", ErrClockBehind, target-now)
	}
	return now, nil
}
