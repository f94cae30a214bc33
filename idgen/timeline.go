package idgen

import (
	"sync/atomic"
	"time"
)

// timeline turns readings of a clock into id time: milliseconds since the
// epoch. It notices when the clock is behind an earlier reading, and can ride
// on the monotonic clock until the other has caught up.
type timeline struct {
	clock      Clock
	epoch      int64 // Unix milliseconds
	referenced bool

	seen atomic.Int64         // highest id time returned since the last accepted step
	ride atomic.Pointer[ride] // nil while the clock is followed
}

// ride is a stretch of id time that runs on the monotonic clock.
type ride struct {
	base  int64
	start time.Time
}

func (r *ride) now() int64 { return r.base + time.Since(r.start).Milliseconds() }

func newTimeline(c Clock, epoch int64) *timeline {
	_, referenced := c.(Referenced)
	t := &timeline{clock: c, epoch: epoch, referenced: referenced}
	t.seen.Store(-1 << 62)
	return t
}

// read returns the id time, and the highest one known before the clock was
// read. The latter is loaded first: so now < seen means that the clock was set
// back, not that another goroutine was faster.
func (t *timeline) read() (now, seen int64, err error) {
	seen = t.seen.Load()
	unix, err := t.clock.Now()
	if err != nil {
		return 0, seen, err
	}
	now = unix - t.epoch
	if r := t.ride.Load(); r != nil {
		if ridden := r.now(); ridden > now {
			now = ridden
		} else {
			t.ride.CompareAndSwap(r, nil)
		}
	}
	for s := t.seen.Load(); now > s && !t.seen.CompareAndSwap(s, now); {
		s = t.seen.Load()
	}
	return now, seen, nil
}

// rideFrom continues id time at base, on the monotonic clock.
func (t *timeline) rideFrom(base int64) {
	t.ride.Store(&ride{base: base, start: time.Now()})
	t.seen.Store(base)
}

// accept takes a stepped-back reading for the truth.
func (t *timeline) accept(now int64) { t.seen.Store(now) }

// ahead returns by how much id time is ahead of the reference, or of the
// clock while it rides.
func (t *timeline) ahead() time.Duration {
	if c, ok := t.clock.(Referenced); ok {
		return c.Offset()
	}
	r := t.ride.Load()
	unix, err := t.clock.Now()
	if r == nil || err != nil {
		return 0
	}
	return max(0, time.Duration(r.now()-(unix-t.epoch))*time.Millisecond)
}
