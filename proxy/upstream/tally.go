package upstream

import (
	"sync/atomic"
	"time"
)

// Bounds of the rate by which a replica is taken out.
const (
	// period is how long outcomes are counted together. The current period and the one before
	// count, so the rate is that of the last 15 to 30 s.
	period = 15 * time.Second
	// enough is how many outcomes the replica must have, and the others of its route
	// together: of fewer, chance alone makes outliers.
	enough = 50
	// apart is by how much the share of failures must be larger than that of the others, in
	// percentage points.
	apart = 50
)

// Blame is what an attempt says about its replica.
type Blame uint8

// What an attempt says.
const (
	Good        Blame = iota
	Nobody            // its client's doing, or nobody's
	Unreachable       // no connection
	Reset             // the connection ended without a whole response header
	Invalid           // what came is no response
	BadStatus         // 502, 503 or 504
	TooSlow           // no response in time
)

// breaks reports whether failures of this kind take the replica out by themselves. A client
// that knows a slow path, or one that is answered 503, causes the other ones at will.
func (b Blame) breaks() bool { return b == Unreachable || b == Reset || b == Invalid }

func (b Blame) String() string {
	if b == Unreachable {
		return "it cannot be reached"
	}
	return "it gave no valid answer"
}

// EjectionReasons are why a replica is taken out: no connection, one that was reset, no valid
// response, a status of 502 to 504, no response in time, or an active check. By rate, it is what
// the last of the failures was.
var EjectionReasons = [...]string{"connect", "reset", "protocol", "status", "timeout", "check"}

// byCheck is the place of the last one.
const byCheck = len(EjectionReasons) - 1

// reason returns the place of b in EjectionReasons. It must be a failure.
func (b Blame) reason() int { return int(b - Unreachable) }

// tally counts the outcomes of requests in the last two periods. The zero value is empty. It is
// safe for concurrent use; when a period begins, a few outcomes may be lost.
type tally struct{ parts [2]part }

// part is one period. Its number is never 0.
type part struct {
	number    atomic.Int64
	good, bad atomic.Uint64
}

// outcomes are numbers of requests.
type outcomes struct{ good, bad uint64 }

func (o outcomes) all() uint64 { return o.good + o.bad }

// in returns the part for a period, nil if it is over for long.
func (t *tally) in(number int64) *part {
	p := &t.parts[number&1]
	had := p.number.Load()
	if had == number {
		return p
	}
	if had > number {
		return nil
	}
	p.good.Store(0)
	p.bad.Store(0)
	p.number.CompareAndSwap(had, number)
	return p
}

// passed counts a good response.
func (t *tally) passed(number int64) {
	if p := t.in(number); p != nil {
		p.good.Add(1)
	}
}

// failed counts a failure.
func (t *tally) failed(number int64) {
	if p := t.in(number); p != nil {
		p.bad.Add(1)
	}
}

// sum returns what was counted in a period and in the one before.
func (t *tally) sum(number int64) (o outcomes) {
	for i := range t.parts {
		p := &t.parts[i]
		if had := p.number.Load(); had == number || had == number-1 {
			o.good += p.good.Load()
			o.bad += p.bad.Load()
		}
	}
	return o
}

func (t *tally) reset() {
	for i := range t.parts {
		t.parts[i].good.Store(0)
		t.parts[i].bad.Store(0)
	}
}

// isOutlier reports whether the share of failures of own is larger than that of others by as
// much as no chance explains.
func isOutlier(own, others outcomes) bool {
	if own.all() < enough || others.all() < enough {
		return false
	}
	return 100*float64(own.bad)/float64(own.all()) >= apart+100*float64(others.bad)/float64(others.all())
}

// share returns which share of the outcomes are failures, 0 if there are not enough.
func (h *health) share(number int64) float64 {
	own := h.recent.sum(number)
	if own.all() < enough {
		return 0
	}
	return float64(own.bad) / float64(own.all())
}
