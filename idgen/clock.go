package idgen

import "time"

// Clock is where a generator reads the time. It must be safe for concurrent
// use and must not block: at low rates it is read for every id.
type Clock interface {
	// Now returns the time in milliseconds since the Unix epoch. Readings may
	// step in either direction; what then happens is the business of the
	// [Policy]. An error says that the reading must not be stamped on ids, for
	// instance because it is more than 250 ms off a reference; issuing is refused
	// with that error until Now succeeds again. The error should wrap ErrClock.
	Now() (unixMilli int64, err error)
}

// Referenced is implemented by clocks that follow a reference, which grants the
// ceilings, too. A generator on such a clock does not begin ahead of it: while the
// floor of a new lease is in the future it refuses with ErrClockBehind, whereas on
// another clock the monotonic policy starts at a floor that is more than 5 s
// ahead at once. Where the clock steps back, because its reference has, the policy
// decides as on any clock.
type Referenced interface {
	Clock

	// Offset returns by how much this clock is ahead of its reference.
	Offset() time.Duration
}

// WallClock reads the host's wall clock. It is the default. It has no
// reference and never fails; it steps whenever the host's clock is set.
type WallClock struct{}

// Now implements [Clock].
func (WallClock) Now() (int64, error) { return time.Now().UnixMilli(), nil }
