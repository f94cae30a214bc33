package redislease

import "time"

// slewing corrects an error at an eighth of the speed of time: 250 ms in 2 s.
const slewing = 8

// segment is a stretch of a clock's time line, a function of the monotonic
// clock: before start it is that of the segment before, from start on it runs on
// from there, at a rate that takes off (or adds) correction, and no more. As the
// rate is never below 0, the function falls nowhere but where it steps.
//
// All durations but correction count from a common origin.
type segment struct {
	start      time.Duration // on the monotonic clock
	value      time.Duration // of the time line at start
	correction time.Duration // still to be added
	frozen     bool          // stand still instead of slewing back
	before     *segment      // nil for the first
}

// at returns the time line at the monotonic instant m.
func (s *segment) at(m time.Duration) time.Duration {
	for m < s.start && s.before != nil {
		s = s.before
	}
	elapsed := m - s.start
	return s.value + elapsed + s.corrected(elapsed)
}

// corrected is how much of the correction has been applied after a time.
func (s *segment) corrected(elapsed time.Duration) time.Duration {
	step := max(0, elapsed) / slewing
	if s.frozen {
		step = max(0, elapsed)
	}
	return min(max(s.correction, -step), step)
}

// follow returns the segment that takes over from start on.
func (s *segment) follow(start, correction time.Duration, frozen bool) *segment {
	last := *s
	if start >= last.start {
		last.before = nil // nobody reads that far back
	}
	return &segment{start: start, value: s.at(start), correction: correction, frozen: frozen, before: &last}
}

// step returns the segment that is at value at start, whatever it was before.
func (s *segment) step(start, value time.Duration) *segment {
	next := s.follow(start, 0, false)
	next.value = value
	return next
}
