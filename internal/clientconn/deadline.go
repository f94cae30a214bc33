package clientconn

import (
	"errors"
	"math"
	"os"
	"sync"
	"time"
)

// deadline is the deadline of one direction. While a call of the connection is under way, armed is
// never later than wanted or review.
type deadline struct {
	set func(time.Time) error // sets the deadline of the wrapped connection

	mu     sync.Mutex
	wanted instant // the deadline that the owner has set
	review instant // when a waiting read is interrupted, to decide about parking; never: not at all
	armed  instant // the deadline of the wrapped connection
	calls  int     // calls of the wrapped connection under way
}

// want records the deadline. It changes the wrapped connection's only if that is too late for a
// call under way. The caller holds mu.
func (d *deadline) want(at instant) error {
	d.wanted = at
	if !knowsServer {
		return d.arm()
	}
	if d.calls == 0 {
		return nil
	}
	return d.tighten()
}

// begin must be called before each call of the connection. It ignores an error: the connection is
// closed then, and the call itself fails. The caller holds mu.
func (d *deadline) begin() {
	d.calls++
	_ = d.tighten()
}

// interrupt makes the calls under way fail, if their callers do not repeat them. The caller holds
// mu.
func (d *deadline) interrupt() {
	d.armed = past
	_ = d.set(past.time())
}

// again must be called after each call of the connection. It reports whether to repeat the call,
// because the armed deadline fired before the wanted one.
func (d *deadline) again(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.repeats(err)
}

// repeats is again for callers that hold mu.
func (d *deadline) repeats(err error) bool {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && d.wanted > now() {
		if d.armed == d.next() {
			return true // another call has armed it
		}
		return d.arm() == nil
	}
	d.calls--
	return false
}

// isReviewed reports whether the call that ended with err has reached review. It returns true once.
// The caller holds mu.
func (d *deadline) isReviewed(err error) bool {
	if d.review == never || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	at := now()
	if at < d.review || at >= d.wanted {
		return false
	}
	d.review = never
	return true
}

func (d *deadline) next() instant { return min(d.wanted, d.review) }

// tighten makes sure that armed is not too late.
func (d *deadline) tighten() error {
	if d.armed <= d.next() {
		return nil
	}
	return d.arm()
}

func (d *deadline) arm() error {
	d.armed = d.next()
	return d.set(d.armed.time())
}

// instant is a time on the monotonic clock, in nanoseconds since base.
type instant int64

const (
	past  instant = math.MinInt64 // for deadlines that interrupt
	never instant = math.MaxInt64 // for no deadline
)

var base = time.Now()

func now() instant { return instant(time.Since(base)) }

// instantOf returns the instant of a deadline. It needs no clock reading if the deadline has a
// monotonic part or is long past.
func instantOf(t time.Time) instant {
	const longAgo = 1 // Unix time; nobody uses a deadline of that day for waiting
	switch {
	case t.IsZero():
		return never
	case t.Unix() <= longAgo:
		return past
	case t == t.Round(0): //nolint:staticcheck // not Equal: this asks whether it is of the wall clock only
		return now() + instant(time.Until(t))
	default:
		return instant(t.Sub(base))
	}
}

func (i instant) time() time.Time {
	switch i {
	case never:
		return time.Time{}
	case past:
		return time.Unix(1, 0)
	default:
		return base.Add(time.Duration(i))
	}
}
