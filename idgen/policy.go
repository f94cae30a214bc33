package idgen

import (
	"fmt"
	"time"
)

// Policy decides what happens when the clock reads less than a timestamp already used in an id.
// Every policy stays below the ceiling of the lease. So none repeats an id across a restart,
// provided the lease keeps a ceiling.
//
// The policies of this package are values. Generators may share them, and they are safe for
// concurrent use.
type Policy interface {
	// Behind returns the verdict for a clock that is back behind the last used timestamp.
	Behind(back time.Duration) Verdict
	// String returns the name used in configuration.
	String() string
}

// Verdict is the decision of a Policy.
type Verdict uint8

// The verdicts on a clock that stepped back.
const (
	Refuse Verdict = iota // fail with ErrClockBehind until the clock has caught up
	Sleep                 // sleep until the clock has caught up
	Ride                  // go on from the last timestamp with the monotonic clock
	Count                 // follow the clock back, and mark the ids in the rollback field
	Reuse                 // follow the clock back, and use the sequence numbers left in the ring
)

// Monotonic is the default policy: id time continues from the last timestamp on the monotonic
// clock. No call waits or fails, and ids keep their order. Until the clock has caught up, id time
// passes at seven eighths of real speed. If the clock that ceilings follow is behind too, id time
// passes slowly enough for the room below the ceiling to last. Steps forward are followed at once.
func Monotonic() Policy { return simplePolicy{"monotonic", Ride} }

// Fail is the policy that refuses ids until the clock has caught up (system B).
func Fail() Policy { return simplePolicy{"fail", Refuse} }

type simplePolicy struct {
	name    string
	verdict Verdict
}

func (p simplePolicy) Behind(time.Duration) Verdict { return p.verdict }
func (p simplePolicy) String() string               { return p.name }

// WaitPolicy sleeps until the clock has passed the last used millisecond (system A). A step longer
// than limit is refused at once with ErrClockBehind. A limit of 0 or less means no limit: Next then
// sleeps as long as necessary, and NextContext as long as its context allows.
func WaitPolicy(limit time.Duration) Policy { return waitPolicy{limit} }

type waitPolicy struct{ limit time.Duration }

func (p waitPolicy) String() string { return "wait" }

func (p waitPolicy) Behind(back time.Duration) Verdict {
	if p.limit > 0 && back > p.limit {
		return Refuse
	}
	return Sleep
}

// CountPolicy sleeps through steps of up to limit; a limit of 0 means it never sleeps. For a longer
// step it follows the clock back and increments the rollback field (systems C and D). A field of n
// bits allows 2^n − 1 steps; after the next step every call fails with ErrRollbacksExhausted. Ids
// are not in order across a step. The count is lost when the process ends. So after a restart below
// the floor of its lease, the generator waits or refuses and does not count.
func CountPolicy(limit time.Duration) Policy { return countPolicy{limit} }

type countPolicy struct{ limit time.Duration }

func (p countPolicy) String() string { return "count" }

func (p countPolicy) Behind(back time.Duration) Verdict {
	if back <= p.limit {
		return Sleep
	}
	return Count
}

// RingPolicy keeps the last id of each of the last slots milliseconds (system E). The slot of a
// timestamp is timestamp modulo slots. After a step back, the generator continues from the id it
// finds in the slot of the current millisecond. When a slot is used up, the caller waits for the
// next millisecond. So a ring of 200 slots and 12 bits of sequence allows at most 819 200 ids until
// the clock has caught up. Ids are not in order across a step, and every id costs one clock reading
// and one compare-and-swap. A ring has at least two slots.
func RingPolicy(slots int) Policy { return ringPolicy{max(slots, 2)} }

type ringPolicy struct{ slots int }

func (p ringPolicy) String() string               { return "ring" }
func (p ringPolicy) Behind(time.Duration) Verdict { return Reuse }

// ParsePolicy returns the policy with that name: monotonic, wait, count, ring or fail. wait is the
// longest step that wait and count sleep through; slots is the size of the ring. ParsePolicy fails
// for other names, and for a ring with fewer than two slots.
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
