package redislease

import (
	"sync/atomic"
	"time"
)

// reading is one reading of Redis TIME. All fields but value are instants of the monotonic clock.
type reading struct {
	value  time.Duration
	middle time.Duration // of the round trip, when it is taken to have been read
	trip   time.Duration
	start  time.Duration // when what follows from it comes into force
}

// off returns how far Redis is ahead of the monotonic clock.
func (r reading) off() time.Duration { return r.value - r.middle }

// track follows Redis with a time line.
type track struct {
	line    atomic.Pointer[segment]
	trusted time.Duration   // off of the last reading that was within the limit, or believed
	suspect []time.Duration // off of the last readings, while beyond the limit
}

// begin starts the line with a reading.
func (t *track) begin(r reading) {
	t.line.Store(&segment{start: r.middle, value: r.value})
	t.trusted = r.off()
}

// ahead returns by how much the line is ahead of Redis.
func (t *track) ahead(r reading) time.Duration { return t.line.Load().at(r.middle) - r.value }

// outcome is the state of a track after a reading.
type outcome int

const (
	within  outcome = iota // within the limit now, or after handover
	still                  // it stands still, because Redis is behind
	beyond                 // Redis is ahead
	leaping                // Redis is ahead, and enough readings agree: the line steps forward after handover
)

// follow continues the line after a reading. If Redis is behind and back is true, the line may step
// back. follow accepts an offset at once that it has trusted before, because Redis has returned to
// it.
func (t *track) follow(r reading, back bool) outcome {
	line, ahead := t.line.Load(), t.ahead(r)
	near := ahead.Abs() <= limit
	returned := (r.off()-t.trusted).Abs() <= limit && ahead < 0
	switch {
	case near:
		t.line.Store(line.follow(r.start, correction(ahead, r.trip), false))
	case returned || (ahead < 0 || back) && t.believed(r):
		t.line.Store(line.step(r.start, r.off()+r.start))
		t.trusted, t.suspect = r.off(), t.suspect[:0]
		if ahead < 0 && !returned {
			return leaping
		}
		return within
	case ahead > 0:
		t.line.Store(line.follow(r.start, -ahead, true))
		return still
	default:
		t.line.Store(line.follow(r.start, 0, false)) // go on, if it stood still
		return beyond
	}
	t.trusted, t.suspect = r.off(), t.suspect[:0]
	return within
}

// correction returns by how much a reading corrects the line. It is 0 for a difference within the
// uncertainty of the round trip.
func correction(ahead, roundTrip time.Duration) time.Duration {
	if ahead.Abs() <= roundTrip/2 {
		return 0
	}
	return -ahead
}

// believed reports whether enough readings in a row agree on a step.
func (t *track) believed(r reading) bool {
	if n := len(t.suspect); n > 0 && (t.suspect[n-1]-r.off()).Abs() > limit {
		t.suspect = t.suspect[:0]
	}
	t.suspect = append(t.suspect, r.off())
	return len(t.suspect) >= confirm
}
