package idgen

import (
	"errors"
	"time"
)

// Option changes a default of New.
type Option func(*options) error

type options struct {
	clock      Clock
	lease      Clock // nil: use clock
	policy     Policy
	window     window
	heartbeat  time.Duration
	background bool
	report     func(error)
}

func defaults() options {
	return options{
		clock:     WallClock{},
		policy:    Monotonic(),
		window:    window{lag: 10, ahead: 5, maxWait: 5},
		heartbeat: time.Second,
		report:    func(error) {},
	}
}

// WithClock replaces the wall clock.
func WithClock(c Clock) Option {
	return func(o *options) error {
		o.clock = c
		return notNil(c != nil, "clock")
	}
}

// WithLeaseClock makes the generator acquire and extend leases by the time of c. Ceilings then
// follow c, and the generator's own clock only chooses timestamps below them. Use WithLeaseClock
// when the generator's clock may be wrong, such as the host's clock, and c is reliable, such as the
// registry's. The source sees only the time of c, and both clocks count from the same epoch.
func WithLeaseClock(c Clock) Option {
	return func(o *options) error {
		o.lease = c
		return notNil(c != nil, "clock of the lease")
	}
}

// WithPolicy sets what happens when the clock steps back. The default is Monotonic.
func WithPolicy(p Policy) Option {
	return func(o *options) error {
		o.policy = p
		return notNil(p != nil, "policy")
	}
}

// WithWindow sets how far a timestamp may be from the clock when the ids of a millisecond are used
// up. lag allows timestamps behind the clock, for milliseconds that passed while callers overslept.
// ahead allows timestamps ahead of the clock, for bursts. Both are whole milliseconds from 0 to 1
// s; the defaults are 10 ms and 5 ms. While ids are issued more slowly than the layout allows, they
// carry the exact millisecond.
func WithWindow(lag, ahead time.Duration) Option {
	return func(o *options) error {
		o.window.lag, o.window.ahead = lag.Milliseconds(), ahead.Milliseconds()
		if min(lag, ahead) < 0 || max(lag, ahead) > time.Second {
			return errors.New("idgen: a window is from 0 to 1 s wide")
		}
		return nil
	}
}

// WithMaxWait bounds how long Next and Fill wait for a free sequence number, in whole milliseconds.
// The default is 5 ms.
func WithMaxWait(d time.Duration) Option {
	return func(o *options) error {
		o.window.maxWait = d.Milliseconds()
		if d < 0 {
			return errors.New("idgen: the wait bound is negative")
		}
		return nil
	}
}

// WithHeartbeat sets how often the lease is extended. The default is 1 s. The interval must be well
// below the lead of the lease's ceiling.
func WithHeartbeat(d time.Duration) Option {
	return func(o *options) error {
		o.heartbeat = d
		if d <= 0 {
			return errors.New("idgen: the heartbeat must be positive")
		}
		return nil
	}
}

// WithBackgroundStart makes New return at once, without a worker number. The generator acquires one
// in the background and retries after failures. Until it succeeds, ids are refused with
// ErrNoWorker.
func WithBackgroundStart() Option {
	return func(o *options) error { o.background = true; return nil }
}

// WithReport makes the generator call f for every error of the background heartbeat: failed
// extensions, lost leases and failed acquisitions. One goroutine calls f, and the heartbeat waits
// while f runs.
func WithReport(f func(error)) Option {
	return func(o *options) error {
		o.report = f
		return notNil(f != nil, "report function")
	}
}

func notNil(ok bool, what string) error {
	if ok {
		return nil
	}
	return errors.New("idgen: the " + what + " is nil")
}
