package idgen

import (
	"fmt"
	"time"
)

// Policy decides what happens when the clock reads less than the timestamps
// already on ids. All policies work below the ceiling of the lease, so none of
// them repeats an id across a restart if the lease keeps a ceiling.
//
// The policies of this package are values that may be shared between
// generators and used concurrently.
type Policy interface {
	// Behind returns the verdict on a clock that is back behind the last used
	// timestamp.
	Behind(back time.Duration) Verdict
	// String returns the name used in configuration.
	String() string
}

// Verdict is what a Policy decides.
type Verdict uint8

// The verdicts on a clock that stepped back.
const (
	Refuse Verdict = iota // fail with ErrClockBehind until the clock has caught up
	Sleep                 // sleep until the clock has caught up
	Ride                  // go on from the last timestamp with the monotonic clock
	Count                 // go back with the clock, telling the ids apart by the rollback field
	Reuse                 // go back with the clock, using what the ring has left
)

// Monotonic rides through steps back: time goes on from where it was, no call
// waits or fails and ids keep their order. Id time passes at seven eighths of its
// speed until the clock has caught up, by itself or by a step forward; where the
// clock that ceilings follow is behind, too, so slowly that what is left beneath the
// ceiling lasts. Forward steps are followed at once. This is the default.
func Monotonic() Policy { return simplePolicy{"monotonic", Ride} }

// Fail refuses to issue until the clock has caught up (system B).
func Fail() Policy { return simplePolicy{"fail", Refuse} }

type simplePolicy struct {
	name    string
	verdict Verdict
}

func (p simplePolicy) Behind(time.Duration) Verdict { return p.verdict }
func (p simplePolicy) String() string               { return p.name }

// WaitPolicy sleeps until the clock has passed the last used millisecond
// (system A). A step longer than limit is refused at once, with ErrClockBehind;
// a limit of 0 or less means none: then Next sleeps as long as it takes, and
// NextContext as long as its context allows.
func WaitPolicy(limit time.Duration) Policy { return waitPolicy{limit} }

type waitPolicy struct{ limit time.Duration }

func (p waitPolicy) String() string { return "wait" }

func (p waitPolicy) Behind(back time.Duration) Verdict {
	if p.limit > 0 && back > p.limit {
		return Refuse
	}
	return Sleep
}

// CountPolicy sleeps through steps of up to limit (0: none) and counts up the
// rollback field for longer ones, stamping the earlier time (systems C and D).
// A field of n bits survives 2^n − 1 steps; the next is ErrRollbacksExhausted,
// and stays it. The order of ids across a step is lost. The field does not
// outlive the process: after a restart below the floor of its lease the
// generator waits or refuses, it does not count.
func CountPolicy(limit time.Duration) Policy { return countPolicy{limit} }

type countPolicy struct{ limit time.Duration }

func (p countPolicy) String() string { return "count" }

func (p countPolicy) Behind(back time.Duration) Verdict {
	if back <= p.limit {
		return Sleep
	}
	return Count
}

// RingPolicy keeps the last id of each of the last slots milliseconds (system
// E). A stepped-back clock continues the newer id it finds in the slot of its
// millisecond, timestamp modulo slots, by +1; a used-up slot means a wait for
// the next millisecond. So a ring of 200 slots and 12 bits of sequence has at
// most 819 200 ids while the clock catches up. The order of ids across a step is
// lost, and every id costs a clock reading and a compare-and-swap. A ring has at
// least two slots.
func RingPolicy(slots int) Policy { return ringPolicy{max(slots, 2)} }

type ringPolicy struct{ slots int }

func (p ringPolicy) String() string               { return "ring" }
func (p ringPolicy) Behind(time.Duration) Verdict { return Reuse }

// ParsePolicy returns the policy of that name: monotonic, wait, count, ring or
// fail. wait is the longest step that wait and count sleep through, slots the
// size of the ring.
func ParsePolicy(name string, wait time.Duration, slots int) (Policy, error) {
	switch name {
	case "monotonic":
		return Monotonic(), nil
	case "wait":
		return WaitPolicy(wait), nil
	case "count":
		return CountPolicy(wait), nil
	case "ring":
		if slots < 2 {
			return nil, fmt.Errorf("idgen: a ring needs at least two slots, not %d", slots)
		}
		return RingPolicy(slots), nil
	case "fail":
		return Fail(), nil
	}
	return nil, fmt.Errorf("idgen: unknown rollback policy %q (known: monotonic, wait, count, ring, fail)", name)
}
