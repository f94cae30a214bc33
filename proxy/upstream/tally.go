package upstream

import (
	"sync/atomic"
	"time"
)

// Limits of the ejection by rate.
const (
	// period is the time for which outcomes are counted together. The current and the previous
	// period count, so a rate covers the last 15 to 30 s.
	period = 15 * time.Second
	// minOutcomes is how many outcomes a rate needs, of the replica and of the others of its route
	// together. With fewer, chance alone makes outliers.
	minOutcomes = 50
	// outlierMargin is by how many percentage points the share of failures must exceed that of the
	// other replicas.
	outlierMargin = 50
)

// Outcome is what an attempt says about its replica.
type Outcome uint8

// The outcomes. All but Success and Unrelated are failures of the replica.
const (
	Success     Outcome = iota
	Unrelated           // the client or the gateway ended the attempt, or the cause is not known
	Unreachable         // no connection
	Reset               // the connection ended without a whole response header
	Invalid             // what came is no response
	BadStatus           // 502, 503 or 504
	TooSlow             // no response in time
)

// breaks reports whether such failures in a row eject a replica. The other kinds do not: a client
// that knows a slow path, or one that responds with 503, causes them at will.
func (b Outcome) breaks() bool { return b == Unreachable || b == Reset || b == Invalid }

func (b Outcome) String() string {
	if b == Unreachable {
		return "it cannot be reached"
	}
	return "it gave no valid response"
}

// EjectionReasons are the reasons for which a replica is ejected: no connection, a reset, no valid
// response, a status of 502 to 504, no response in time, a failed check. For an ejection by rate it
// is the kind of the last failure.
var EjectionReasons = [...]string{"connect", "reset", "protocol", "status", "timeout", "check"}

// byCheck is the index of the last reason.
const byCheck = len(EjectionReasons) - 1

// reason returns the index of b in EjectionReasons. b must be a failure.
func (b Outcome) reason() int { return int(b - Unreachable) }

// tally counts the outcomes of requests in the last two periods. The zero value is empty. It is
// safe for concurrent use. When a period begins, a few outcomes may get lost.
type tally struct{ periods [2]periodCounts }

// periodCounts holds the counters of one period. number is never 0.
type periodCounts struct {
	number    atomic.Int64
	good, bad atomic.Uint64
}

// counts are numbers of good and of failed requests.
type counts struct{ good, bad uint64 }

func (c counts) all() uint64 { return c.good + c.bad }

// in returns the counters of a period, nil if the period is too old.
func (t *tally) in(number int64) *periodCounts {
	p := &t.periods[number&1]
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

// sum returns the outcomes of a period and of the one before.
func (t *tally) sum(number int64) (c counts) {
	for i := range t.periods {
		p := &t.periods[i]
		if had := p.number.Load(); had == number || had == number-1 {
			c.good += p.good.Load()
			c.bad += p.bad.Load()
		}
	}
	return c
}

func (t *tally) reset() {
	for i := range t.periods {
		t.periods[i].good.Store(0)
		t.periods[i].bad.Store(0)
	}
}

// isOutlier reports whether own fails so much more often than others that chance does not explain
// it.
func isOutlier(own, others counts) bool {
	if own.all() < minOutcomes || others.all() < minOutcomes {
		return false
	}
	return 100*float64(own.bad)/float64(own.all()) >= outlierMargin+100*float64(others.bad)/float64(others.all())
}

// share returns the share of failures, 0 if there are too few outcomes.
func (h *health) share(number int64) float64 {
	own := h.recent.sum(number)
	if own.all() < minOutcomes {
		return 0
	}
	return float64(own.bad) / float64(own.all())
}
