package redislease

import "time"

// slewing is the divisor of the speed of a correction: 250 ms take 2 s.
const slewing = 8

// segment is a section of the time line of a clock, a function of the monotonic clock. Before
// start, the previous segment applies. After start, the time line advances at a rate that adds or
// removes correction, and then at the normal rate. The rate is never negative, so the time line
// goes back only in a step.
//
// All durations except correction are relative to a common origin.
type segment struct {
	start      time.Duration // on the monotonic clock
	value      time.Duration // of the time line at start
	correction time.Duration // still to be added
	frozen     bool          // stand still instead of slewing back
	before     *segment      // nil for the first
}

// at returns the time at the monotonic instant m.
func (s *segment) at(m time.Duration) time.Duration {
	for m < s.start && s.before != nil {
		s = s.before
	}
	elapsed := m - s.start
	return s.value + elapsed + s.corrected(elapsed)
}

// corrected returns how much of the correction is applied after elapsed.
func (s *segment) corrected(elapsed time.Duration) time.Duration {
	step := max(0, elapsed) / slewing
	if s.frozen {
		step = max(0, elapsed)
	}
	return min(max(s.correction, -step), step)
}

// follow returns the segment that continues s at start.
func (s *segment) follow(start, correction time.Duration, frozen bool) *segment {
	last := *s
	if start >= last.start {
		last.before = nil // no reader needs earlier segments
	}
	return &segment{start: start, value: s.at(start), correction: correction, frozen: frozen, before: &last}
}

// step returns a segment with the given value at start, independent of s before.
func (s *segment) step(start, value time.Duration) *segment {
	next := s.follow(start, 0, false)
	next.value = value
	return next
}
