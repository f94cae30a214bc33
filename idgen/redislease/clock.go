package redislease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/internal/redisscript"
)

const (
	limit     = 250 * time.Millisecond // if the clock differs from Redis TIME by more, Now fails
	interval  = time.Second            // between readings
	recheck   = 100 * time.Millisecond // between readings while a step back is pending
	confirm   = 5                      // consistent readings before a step
	handover  = 5 * time.Millisecond   // until a new segment is in force, so that all readers see it
	staleness = 10 * time.Minute       // after this time without a reading, Now fails: in this time, clocks of hosts drift by up to 100 ms
)

// Clock follows the clock of the Redis node that keeps the registry. It is an [idgen.Referenced]
// clock. Between readings it runs on the monotonic clock of the host. It does not use the wall
// clock of the host.
//
// A Clock corrects a difference to Redis of up to 250 ms by slewing, at an eighth of the speed of
// time. A larger difference causes a step, once five readings in a row agree on it:
//
//   - If Redis is ahead, Now fails with an [*OffsetError] until the reading after these five, a tenth
//     of a second later, while Time continues. Then both have stepped forward.
//   - If Redis is behind, both stand still until the five readings agree, about half a second, because
//     readings come faster. Then Now steps back, and the policy of the generator decides. Time stands still until
//     Redis has caught up, so that what has expired stays expired.
//
// Use NewClock to make a Clock, and Run to keep it current. It is safe for concurrent use. Until
// the first reading, Now fails with an error that wraps [idgen.ErrClock], and Time returns the time
// of the host.
type Clock struct {
	scripts *redisscript.Runner
	timeout time.Duration
	mono    func() time.Duration // since start
	ids     track                // of Now
	expiry  track                // of Time: never goes back
	state   atomic.Pointer[clockState]

	mu     sync.Mutex // held during a reading; guards the fields below, and track.suspect
	latest ClockState
}

// clockState is the result of the last reading, or why Now fails.
type clockState struct {
	at  time.Duration // on the monotonic clock
	err error
}

// ClockState is a snapshot of a [Clock].
type ClockState struct {
	Offset    time.Duration // of the clock, ahead of Redis, at the last reading
	RoundTrip time.Duration // of the last reading
	Synced    time.Time     // last reading by the host's clock; zero if none
	Readings  int64
	Errors    int64
	LastError error // of the last reading that failed
}

var errUnsynced = fmt.Errorf("redislease: %w: Redis TIME has not been read yet", idgen.ErrClock)

// NewClock returns a clock that follows the Redis node with the keys of prefix; "" stands for "sg".
// It does not contact Redis.
func NewClock(rdb redis.Scripter, prefix string) *Clock {
	if prefix == "" {
		prefix = "sg"
	}
	start := time.Now()
	c := &Clock{
		scripts: redisscript.NewRunner(rdb, registryKeys(prefix)[:1]),
		timeout: time.Second,
		mono:    func() time.Duration { return time.Since(start) },
	}
	c.ids.line.Store(&segment{value: time.Duration(start.UnixNano())})
	c.expiry.line.Store(c.ids.line.Load())
	c.state.Store(&clockState{err: errUnsynced})
	return c
}

// Now implements [idgen.Clock]. Its errors wrap [idgen.ErrClock].
func (c *Clock) Now() (unixMilli int64, err error) {
	m := c.mono()
	v := c.state.Load()
	switch {
	case v.err != nil:
		return 0, v.err
	case m-v.at > staleness:
		return 0, fmt.Errorf("redislease: %w: Redis TIME was last read %v ago", idgen.ErrClock, (m - v.at).Round(time.Second))
	}
	return int64(c.ids.line.Load().at(m) / time.Millisecond), nil
}

// Time returns the time for decisions about expiry: that of Now without steps back. It never goes
// back and never fails. When Now fails, Time returns the best known time.
func (c *Clock) Time() time.Time {
	m := c.mono() // before the segment is loaded: see handover
	return time.Unix(0, int64(c.expiry.line.Load().at(m)))
}

// Offset implements [idgen.Referenced]. It returns how far the clock was ahead of Redis at the last
// reading.
func (c *Clock) Offset() time.Duration { return c.State().Offset }

// State returns the current state. It does no I/O.
func (c *Clock) State() ClockState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// Run reads Redis TIME at once and then every second until ctx ends, or more often while a step is
// pending. It counts failures in State; the clock continues without the reading.
func (c *Clock) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for next := time.Now(); ctx.Err() == nil; {
		_ = c.Sync(ctx) // State returns the error
		if next = next.Add(c.pause()); time.Until(next) < 0 {
			next = time.Now()
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// Sync reads Redis TIME once, in one round trip, and corrects the clock.
func (c *Clock) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	sent := c.mono()
	value, err := c.read(ctx)
	received := c.mono()
	if err == nil && received-sent > 2*limit {
		err = fmt.Errorf("redislease: Redis TIME took %v, too long to tell the time by", received-sent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.latest.Errors++
		c.latest.LastError = err
		if c.latest.Readings == 0 {
			c.state.Store(&clockState{err: fmt.Errorf("%w: %w", errUnsynced, err)})
		}
		return err
	}
	c.latest.Readings++
	c.latest.RoundTrip, c.latest.Synced = received-sent, time.Now()
	c.adjust(value, sent, received)
	return nil
}

func (c *Clock) read(ctx context.Context) (time.Duration, error) {
	parts, err := c.scripts.Run(ctx, timeScript).StringSlice()
	if err != nil {
		return 0, fmt.Errorf("redislease: read Redis TIME: %w", err)
	}
	if len(parts) != 2 {
		return 0, fmt.Errorf("redislease: Redis TIME is %q", parts)
	}
	seconds, err1 := strconv.ParseInt(parts[0], 10, 64)
	micros, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("redislease: Redis TIME is %q: %w", parts, err)
	}
	return time.Duration(seconds)*time.Second + time.Duration(micros)*time.Microsecond, nil
}

// adjust corrects the clock by one reading. The caller holds mu.
func (c *Clock) adjust(value, sent, received time.Duration) {
	r := reading{value: value, middle: sent + (received-sent)/2, trip: received - sent, start: c.mono() + handover}
	v := &clockState{at: r.middle}
	defer c.state.Store(v)
	if c.latest.Readings == 1 {
		c.ids.begin(r)
		c.expiry.begin(r)
		return
	}
	c.latest.Offset = c.ids.ahead(r)
	expiry := c.expiry.follow(r, false)
	switch ids := c.ids.follow(r, true); {
	case ids == beyond && expiry == within: // Redis has returned from a step back
		c.ids.line.Store(c.expiry.line.Load())
		c.ids.trusted, c.ids.suspect = r.off(), c.ids.suspect[:0]
	case ids == beyond, ids == leaping: // Now fails until the step, so that no id has a time before it
		v.err = fmt.Errorf("redislease: %w", &OffsetError{Offset: c.latest.Offset, Limit: limit})
	}
}

// pause returns the time until the next reading.
func (c *Clock) pause() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	back := c.latest.Offset > limit && len(c.ids.suspect) > 0
	leaps := c.latest.Offset < -limit && len(c.ids.suspect) == 0
	if back || leaps {
		return recheck
	}
	return interval
}
