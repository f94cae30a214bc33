package idgen

import "time"

// Clock tells a generator the time. A Clock must be safe for concurrent use and must not block: at
// low rates the generator reads the clock for every id.
type Clock interface {
	// Now returns the time in milliseconds since the Unix epoch. Readings may step in either
	// direction; the [Policy] decides what the generator does then. Now returns an error when its
	// reading must not be stamped on ids, for instance because the clock is more than 250 ms off a
	// reference. The generator issues no ids, and returns that error, until Now succeeds again. The
	// error should wrap ErrClock.
	Now() (unixMilli int64, err error)
}

// Referenced is implemented by clocks that follow a reference. The registry that grants ceilings
// uses the same reference. A generator on such a clock does not start ahead of the clock: while the
// floor of a new lease is in the future, it refuses with ErrClockBehind. On any other clock, the
// monotonic policy starts at once at a floor that is more than 5 s ahead. When the reference steps
// back and the clock with it, the policy decides as on any clock.
type Referenced interface {
	Clock

	// Offset returns how far this clock is ahead of its reference.
	Offset() time.Duration
}

// WallClock reads the host's wall clock. It is the default. It has no reference and never fails; it
// steps whenever the host's clock is set.
type WallClock struct{}

// Now implements [Clock].
func (WallClock) Now() (int64, error) { return time.Now().UnixMilli(), nil }
