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
)

const (
	limit     = 250 * time.Millisecond // farther from Redis TIME, issuing is refused
	interval  = time.Second            // between readings
	confirm   = 5                      // consistent readings before a step forward is believed
	handover  = 5 * time.Millisecond   // until a new segment is in force, so that all readers see it
	staleness = 10 * time.Minute       // without a reading, issuing is refused: hosts drift by up to 100 ms
)

// Clock follows the clock of the Redis node that keeps the registry. It is an
// [idgen.Referenced] clock: between readings it runs on the monotonic clock of
// the host, whose wall clock takes no part. It never goes backwards.
//
// A difference to Redis is slewed, at an eighth of the speed of time. A
// difference of more than 250 ms makes Now fail with an [*OffsetError] until it
// is gone: where Redis is ahead and five readings in a row agree on it, the clock
// steps forward; where Redis is behind, the clock stands still until Redis has
// caught up.
//
// A Clock is made by NewClock, is safe for concurrent use, and needs Run. Until
// the first reading Now fails with an error that wraps [idgen.ErrClock], and Time
// is the host's.
type Clock struct {
	runner  *runner
	timeout time.Duration
	mono    func() time.Duration // since start
	line    atomic.Pointer[segment]
	verdict atomic.Pointer[verdict]

	mu      sync.Mutex // one reading at a time; guards what follows
	latest  ClockState
	suspect []time.Duration // differences of the last readings, while beyond the limit
}

// verdict is what the last reading said, or why Now fails.
type verdict struct {
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

// NewClock returns a clock on the Redis node that keeps the keys of prefix (""
// is "sg"). It does not contact Redis.
func NewClock(rdb redis.Scripter, prefix string) *Clock {
	if prefix == "" {
		prefix = "sg"
	}
	start := time.Now()
	c := &Clock{
		runner:  newRunner(rdb, prefix),
		timeout: time.Second,
		mono:    func() time.Duration { return time.Since(start) },
	}
	c.runner.keys = c.runner.keys[:1]
	c.line.Store(&segment{value: time.Duration(start.UnixNano())})
	c.verdict.Store(&verdict{err: errUnsynced})
	return c
}

// Now implements [idgen.Clock]. Its errors wrap [idgen.ErrClock].
func (c *Clock) Now() (unixMilli int64, err error) {
	m := c.mono()
	v := c.verdict.Load()
	switch {
	case v.err != nil:
		return 0, v.err
	case m-v.at > staleness:
		return 0, fmt.Errorf("redislease: %w: Redis TIME was last read %v ago", idgen.ErrClock, (m - v.at).Round(time.Second))
	}
	return int64(c.line.Load().at(m) / time.Millisecond), nil
}

// Time returns the time of the same clock to judge expiry by. It never fails:
// where Now would, it is the best that is known.
func (c *Clock) Time() time.Time {
	m := c.mono() // before the segment is loaded: see handover
	return time.Unix(0, int64(c.line.Load().at(m)))
}

// Offset implements [idgen.Referenced]: by how much the clock was ahead of Redis
// at the last reading.
func (c *Clock) Offset() time.Duration { return c.State().Offset }

// State returns the current state. It does no I/O.
func (c *Clock) State() ClockState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// Run reads Redis TIME at once and then every second, until ctx ends. Failures
// are counted in State; the clock runs on without.
func (c *Clock) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		_ = c.Sync(ctx) // State has it
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// Sync reads Redis TIME once, in one round trip, and corrects the clock by it.
func (c *Clock) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	sent := c.mono()
	reading, err := c.read(ctx)
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
			c.verdict.Store(&verdict{err: fmt.Errorf("%w: %w", errUnsynced, err)})
		}
		return err
	}
	c.latest.Readings++
	c.latest.RoundTrip, c.latest.Synced = received-sent, time.Now()
	c.adjust(reading, sent, received)
	return nil
}

func (c *Clock) read(ctx context.Context) (time.Duration, error) {
	parts, err := c.runner.run(ctx, timeScript).StringSlice()
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

// adjust follows one reading. Callers hold mu.
func (c *Clock) adjust(reading, sent, received time.Duration) {
	middle := sent + (received-sent)/2
	if c.latest.Readings == 1 {
		c.line.Store(&segment{start: middle, value: reading})
		c.verdict.Store(&verdict{at: middle})
		return
	}
	line := c.line.Load()
	ahead := line.at(middle) - reading
	c.latest.Offset = ahead
	v := &verdict{at: middle}
	if ahead.Abs() > limit {
		v.err = fmt.Errorf("redislease: %w", &OffsetError{Offset: ahead, Limit: limit})
	}
	c.verdict.Store(v)
	c.line.Store(c.next(line, ahead, received-sent))
}

// next decides how the time line goes on.
func (c *Clock) next(line *segment, ahead, roundTrip time.Duration) *segment {
	start := c.mono() + handover
	if ahead < -limit {
		if c.believed(ahead) {
			c.suspect = c.suspect[:0]
			return line.jump(start, -ahead)
		}
		return line.follow(start, 0, false) // go on, if it stood still
	}
	c.suspect = c.suspect[:0]
	if ahead > limit {
		return line.follow(start, -ahead, true)
	}
	return line.follow(start, correction(ahead, roundTrip), false)
}

// correction is what a reading asks for: nothing if the true middle of the
// round trip may have been where the clock already is.
func correction(ahead, roundTrip time.Duration) time.Duration {
	if ahead.Abs() <= roundTrip/2 {
		return 0
	}
	return -ahead
}

// believed reports whether enough readings in a row agree on a difference.
func (c *Clock) believed(ahead time.Duration) bool {
	if n := len(c.suspect); n > 0 && (c.suspect[n-1]-ahead).Abs() > limit {
		c.suspect = c.suspect[:0]
	}
	c.suspect = append(c.suspect, ahead)
	return len(c.suspect) >= confirm
}
