package idgen

import "sync/atomic"

// newRing returns the slots of the ring policy. A slot holds the next ticket of the milliseconds
// that map to it. The slots start with the earliest timestamps of the tenure, so that a clock below
// the floor finds tickets there.
func newRing(slots int, floor int64, seqBits uint8) []atomic.Int64 {
	ring := make([]atomic.Int64, slots)
	floor = min(floor, 1<<(62-seqBits)) // beyond the end of every layout, where nothing is issued
	for ts := floor; ts < floor+int64(slots); ts++ {
		ring[ts%int64(slots)].Store(ts << seqBits)
	}
	return ring
}

// placeInRing takes up to n consecutive tickets from the slot of now. If the slot is used up, it
// takes nothing and returns wait = 1, because the next millisecond has another slot.
func (e *tenure) placeInRing(now, n int64) (first, granted, wait int64, err error) {
	size := int64(len(e.slots))
	slot := &e.slots[now%size]
	for {
		if e.word.Load() >= frozen {
			return 0, 0, 0, errFrozen
		}
		next := slot.Load()
		first = max(next, now<<e.seqBits)
		ts := first >> e.seqBits
		switch {
		case first >= e.last:
			return 0, 0, 0, ErrTimeExhausted
		case ts > e.ceiling.Load():
			return 0, 0, 0, ErrCeiling
		case ts%size != now%size: // the ticket left its millisecond: the slot is used up
			return 0, 0, 1, nil
		}
		granted = min(n, e.until(ts)-first)
		if slot.CompareAndSwap(next, first+granted) {
			e.word.Add(granted) // only for generated, which counts ids
			return first, granted, 0, nil
		}
	}
}

// usedInRing returns an upper bound of the timestamps issued from the ring: seen, or the latest
// timestamp in a slot.
func (e *tenure) usedInRing(seen int64) int64 {
	last := seen
	for i := range e.slots {
		last = max(last, (e.slots[i].Load()-1)>>e.seqBits)
	}
	return min(last, e.ceiling.Load())
}
