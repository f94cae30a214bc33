package idgen

import (
	"errors"
	"time"
)

// Option changes a default of New.
type Option func(*options) error

type options struct {
	clock      Clock
	lease      Clock // nil: clock
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

// WithLeaseClock has leases acquired and extended by another clock than the one that
// stamps ids: ceilings then follow c, and the other clock only chooses stamps
// beneath them. It is for a clock that may be wrong, such as the host's, beside one
// that is not, such as that of the registry. A source must be told the time of c
// alone, so both count from the same epoch.
func WithLeaseClock(c Clock) Option {
	return func(o *options) error {
		o.lease = c
		return notNil(c != nil, "clock of the lease")
	}
}

// WithPolicy chooses what happens when the clock steps back; the default is
// Monotonic.
func WithPolicy(p Policy) Option {
	return func(o *options) error {
		o.policy = p
		return notNil(p != nil, "policy")
	}
}

// WithWindow says how far a stamp may be from the clock when the sequence of a
// millisecond is used up: lag behind it (milliseconds that went by while callers
// overslept), ahead of it (a reserve for bursts). Whole milliseconds from 0 to
// 1 s; the defaults are 10 ms and 5 ms. Where ids are issued slower than the
// layout allows, they carry the exact millisecond whatever is set here.
func WithWindow(lag, ahead time.Duration) Option {
	return func(o *options) error {
		o.window.lag, o.window.ahead = lag.Milliseconds(), ahead.Milliseconds()
		if min(lag, ahead) < 0 || max(lag, ahead) > time.Second {
			return errors.New("idgen: a window is from 0 to 1 s wide")
		}
		return nil
	}
}

// WithMaxWait bounds the waits of Next and Fill for a free sequence number. In
// whole milliseconds; the default is 5 ms.
func WithMaxWait(d time.Duration) Option {
	return func(o *options) error {
		o.window.maxWait = d.Milliseconds()
		if d < 0 {
			return errors.New("idgen: the wait bound is negative")
		}
		return nil
	}
}

// WithHeartbeat sets how often the lease is extended; the default is 1 s. It
// must be well below the lead of the lease's ceiling.
func WithHeartbeat(d time.Duration) Option {
	return func(o *options) error {
		o.heartbeat = d
		if d <= 0 {
			return errors.New("idgen: the heartbeat must be positive")
		}
		return nil
	}
}

// WithBackgroundStart makes New return at once, without a worker number: it is
// acquired in the background, and retried, while ids are refused with
// ErrNoWorker.
func WithBackgroundStart() Option {
	return func(o *options) error { o.background = true; return nil }
}

// WithReport has f called for every error of the background heartbeat: failed
// extensions, lost leases, failed acquisitions. f is called by one goroutine and
// delays the heartbeat while it runs.
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
