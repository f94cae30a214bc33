package idgen

import (
	"math"
	"sync/atomic"
)

// frozen is the ticket word of a tenure that has ended. It is above every limit, and far enough
// from overflow for goroutines that still add to the word.
const frozen = math.MaxInt64 - 1<<20

// tenure is the period during which ids carry one worker number and one rollback count. Its word is
// the next ticket, timestamp<<seqBits | sequence. The word only rises. The goroutine that moves it
// from a to b owns the tickets a to b-1.
//
// A tenure with err set is vacant: every call fails with err.
type tenure struct {
	word atomic.Int64
	_    [56]byte // keeps the word, written for every id, off the cache line of the rarely written fields

	limit   atomic.Int64 // tickets below it may be issued without reading the clock; 0: none
	fixed   int64        // worker, datacenter and rollback, shifted into place
	perSeq  int64        // what an id grows by with the next sequence number
	perTime int64        // what an id grows by with the next millisecond, in addition to perSeq per ticket
	seqMask int64
	seqBits uint8

	err     error
	worker  Worker
	floor   int64 // first timestamp
	maxTime int64 // last timestamp of the layout
	last    int64 // first ticket that does not exist
	start   int64 // first ticket
	slots   []atomic.Int64

	rollback int64
	ceiling  atomic.Int64 // last durable timestamp
	waited   atomic.Int64 // id time when a caller last waited for its ticket
	skipped  atomic.Int64 // tickets that never became ids
	final    atomic.Int64 // the word when it was frozen
}

// right is a copy of what a lease grants. It is needed because only one goroutine may use a Lease.
type right struct {
	worker         Worker
	floor, ceiling int64
}

// newTenure starts at timestamp from; tickets below it are never issued.
func newTenure(l Layout, r right, rollback, from int64) *tenure {
	w := r.worker
	e := &tenure{
		fixed: w.Datacenter<<l.shift[FieldDatacenter] |
			w.Number<<l.shift[FieldWorker] | rollback<<l.shift[FieldRollback],
		perSeq:   1 << l.shift[FieldSequence],
		seqMask:  l.mask[FieldSequence],
		seqBits:  l.bits[FieldSequence],
		worker:   w,
		floor:    r.floor,
		maxTime:  l.mask[FieldTime],
		last:     frozen - 1<<20,
		rollback: rollback,
	}
	if l.Bits(FieldTime)+l.Bits(FieldSequence) < 63 {
		e.last = (e.maxTime + 1) << e.seqBits
	}
	e.perTime = 1<<l.shift[FieldTime] - e.perSeq<<e.seqBits
	from = min(from, e.maxTime)
	e.start = from << e.seqBits
	e.word.Store(e.start)
	e.ceiling.Store(r.ceiling)
	e.waited.Store(math.MinInt32)
	return e
}

// vacant is a tenure that issues nothing.
func vacant(err error) *tenure {
	e := &tenure{err: err}
	e.word.Store(frozen)
	return e
}

// id turns a ticket into an id: time<<timeShift | sequence<<seqShift | fixed. It computes a sum
// instead, which takes one variable shift instead of three.
func (e *tenure) id(ticket int64) ID {
	return ID(ticket*e.perSeq + ticket>>(e.seqBits&63)*e.perTime + e.fixed)
}

// write fills dst with the ids of the tickets from first on.
func (e *tenure) write(dst []ID, first int64) {
	step := ID(e.perSeq)
	for len(dst) > 0 {
		n := min(int64(len(dst)), e.seqMask+1-first&e.seqMask)
		id := e.id(first)
		for i := range dst[:n] {
			dst[i] = id
			id += step
		}
		dst = dst[n:]
		first += n
	}
}

// until returns the first ticket after timestamp ts.
func (e *tenure) until(ts int64) int64 {
	if ts >= e.maxTime {
		return e.last
	}
	return (ts + 1) << e.seqBits
}

// used returns the timestamp of the last ticket taken. Before the first ticket it returns one less
// than the first timestamp.
func (e *tenure) used() int64 { return (e.word.Load() - 1) >> e.seqBits }

// window says how far a timestamp may be from the clock, and how long a caller may wait for its
// ticket. All are in milliseconds.
type window struct {
	lag, ahead, maxWait int64
	awake               bool // the caller must not sleep at all
}

// oldest returns the earliest timestamp that may still be issued. Normally that is the present, so
// that timestamps are exact. While callers have to wait, it includes milliseconds that passed
// because they overslept.
func (e *tenure) oldest(now int64, w window) int64 {
	if now-e.waited.Load() <= w.lag {
		now -= w.lag
	}
	return max(now, e.floor)
}

// place takes up to n consecutive tickets that are open now. If none is open, it takes tickets of
// the next free millisecond, and the caller must wait. One compare-and-swap decides; if place
// fails, it takes nothing.
func (e *tenure) place(now, n int64, w window) (first, granted, wait int64, err error) {
	ceiling := e.ceiling.Load()
	open := min(now+w.ahead, ceiling)
	oldest := min(e.oldest(now, w), e.maxTime) << e.seqBits
	for {
		word := e.word.Load()
		if word >= frozen {
			return 0, 0, 0, errFrozen
		}
		first = max(word, oldest)
		ts := first >> e.seqBits
		switch {
		case first >= e.last:
			return 0, 0, 0, ErrTimeExhausted
		case ts > ceiling:
			return 0, 0, 0, ErrCeiling
		case ts-now-w.ahead > w.maxWait:
			return 0, 0, 0, ErrSaturated
		}
		granted = min(n, e.until(max(ts, open))-first)
		if e.word.CompareAndSwap(word, first+granted) {
			e.skip(first - word)
			return first, granted, max(0, ts-now-w.ahead), nil
		}
	}
}

// publish lets callers take the tickets up to now without reading the clock, and discards tickets
// that are too old. A clock above the ceiling may have jumped and may come back: then publish opens
// nothing and discards nothing.
func (e *tenure) publish(now int64, w window) {
	ceiling := e.ceiling.Load()
	if e.oldest(now, w) > ceiling {
		e.limit.Store(0)
		return
	}
	oldest := min(e.oldest(now, w), e.maxTime) << e.seqBits
	for word := e.word.Load(); word < oldest; word = e.word.Load() {
		if e.word.CompareAndSwap(word, oldest) {
			e.skip(oldest - word)
		}
	}
	if e.err == nil && e.slots == nil {
		e.limit.Store(e.until(min(now+w.ahead, ceiling)))
	}
}

// skip counts tickets that will never become ids.
func (e *tenure) skip(n int64) {
	if n > 0 {
		e.skipped.Add(n)
	}
}

// freeze ends the tenure and returns the first ticket that was never taken. A second call returns
// the same ticket.
func (e *tenure) freeze() int64 {
	e.limit.Store(0)
	if word := e.word.Swap(frozen); word < frozen {
		e.final.Store(word)
	}
	return e.final.Load()
}

// generated returns the number of ids issued.
func (e *tenure) generated() int64 {
	if e.err != nil {
		return 0
	}
	word := e.word.Load()
	if word >= frozen {
		word = e.final.Load()
	}
	return max(0, word-e.start-e.skipped.Load())
}
