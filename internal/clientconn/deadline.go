package clientconn

import (
	"errors"
	"math"
	"os"
	"sync"
	"time"
)

// deadline is that of one direction. Its invariant: while a call of the connection is under
// way, armed is after neither wanted nor review.
type deadline struct {
	set func(time.Time) error // of the connection

	mu     sync.Mutex
	wanted instant // what the owner has asked for
	review instant // when a call that goes on is to be thought over; never: not at all
	armed  instant // what the connection has
	calls  int     // of the connection that are under way
}

// want notes the deadline. Only a call that it would be too late for is told. It needs mu.
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

// begin precedes a call of the connection. A deadline that cannot be set is no reason
// not to try: the connection is closed, and the call says so. It needs mu.
func (d *deadline) begin() {
	d.calls++
	_ = d.tighten()
}

// interrupt fails the calls that are under way, for who does not ask whether to repeat
// them. It needs mu.
func (d *deadline) interrupt() {
	d.armed = past
	_ = d.set(past.time())
}

// again follows a call of the connection, and reports whether it is to be repeated,
// because it has met the armed deadline before the wanted one.
func (d *deadline) again(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.repeats(err)
}

// repeats is again for who has mu.
func (d *deadline) repeats(err error) bool {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && d.wanted > now() {
		if d.armed == d.next() {
			return true // somebody else has armed it
		}
		return d.arm() == nil
	}
	d.calls--
	return false
}

// isReviewed reports whether the call that ended with err is to be thought over now, which
// is done once. It needs mu.
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

// tighten sees to it that armed is not too late.
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

// instantOf returns the instant of a deadline. It spares the clock for those that
// were computed from a reading of it, and for those long ago.
func instantOf(t time.Time) instant {
	const longAgo = 1 // in Unix time: net/http and others have no deadline of that day in mind
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
