package idgen

import (
	"sync/atomic"
	"time"
)

// timeline turns readings of a clock into id time, in milliseconds since the epoch. It notices when
// the clock is behind an earlier reading. It can then ride on the monotonic clock until the wall
// clock has caught up.
type timeline struct {
	clock      Clock
	lease      Clock // the clock that ceilings follow; nil: id time itself
	epoch      int64 // Unix milliseconds
	referenced bool

	seen     atomic.Int64         // highest id time returned since the last accepted step
	followed atomic.Int64         // last good reading of lease
	ride     atomic.Pointer[ride] // nil while the clock is followed
}

// ride is a stretch of id time that runs on the monotonic clock.
type ride struct {
	base  int64
	start time.Time
	speed float64 // of id time, relative to real time
}

func (r *ride) now() int64 {
	return r.base + int64(float64(time.Since(r.start))*r.speed/float64(time.Millisecond))
}

func newTimeline(o options, epoch int64) *timeline {
	_, referenced := o.clock.(Referenced)
	t := &timeline{clock: o.clock, lease: o.lease, epoch: epoch, referenced: referenced}
	if referenced && t.lease == nil {
		t.lease = t.clock // not the id time, which may ride ahead of the clock
	}
	t.seen.Store(-1 << 62)
	return t
}

// read returns the id time, and the highest id time known before the clock was read. It loads the
// highest one first. So now < seen means that the clock was set back, and not that another
// goroutine was faster.
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

// leaseTime returns the id time that ceilings follow. If that clock fails, leaseTime returns its
// last good reading and the error, so that a wrong clock cannot raise the ceiling.
func (t *timeline) leaseTime() (int64, error) {
	if t.lease == nil {
		now, seen, err := t.read()
		if err != nil {
			return max(seen, 0), err
		}
		return now, nil
	}
	unix, err := t.lease.Now()
	if err != nil {
		return t.followed.Load(), err
	}
	t.followed.Store(unix - t.epoch)
	return unix - t.epoch, nil
}

// rideFrom continues id time from base on the monotonic clock.
func (t *timeline) rideFrom(base int64, speed float64) {
	t.ride.Store(&ride{base: base, start: time.Now(), speed: speed})
	t.seen.Store(base)
}

// pace returns how fast id time passes, relative to real time.
func (t *timeline) pace() float64 {
	if r := t.ride.Load(); r != nil {
		return r.speed
	}
	return 1
}

// alight ends a ride and returns to the time of the clock.
func (t *timeline) alight() (now int64, err error) {
	unix, err := t.clock.Now()
	if err != nil {
		return 0, err
	}
	t.ride.Store(nil)
	t.accept(unix - t.epoch)
	return unix - t.epoch, nil
}

// accept follows the clock back to the earlier reading now.
func (t *timeline) accept(now int64) { t.seen.Store(now) }

// ahead returns how far id time is ahead of the reference, if there is one. On a ride it returns
// how far id time is ahead of the clock.
func (t *timeline) ahead() (d time.Duration) {
	if c, ok := t.clock.(Referenced); ok {
		d = c.Offset()
	}
	r := t.ride.Load()
	unix, err := t.clock.Now()
	if r == nil || err != nil {
		return d
	}
	return d + max(0, time.Duration(r.now()-(unix-t.epoch))*time.Millisecond)
}
