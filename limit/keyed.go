package limit

import (
	"hash/maphash"
	"sync"
	"time"
)

// DefaultSize is the number of keys of a [Keyed] limiter: 1 MiB of memory.
const DefaultSize = 1 << 16

// slots is the number of keys that may be in each other's way.
const slots = 8

// locks is the number of parts of a table that are locked on their own.
const locks = 64

// Keyed applies one rate to every key by itself. Its memory is allocated when it
// is made and never grows: the keys live in a table of fixed size, as hashes
// under a seed that nobody knows. Where the table is crowded, the key whose limit
// is nearest to being whole again makes room, so that somebody who invents keys
// makes the limiter forget the harmless ones and not himself. A key that was
// forgotten starts afresh: the limiter errs by letting through. Use [NewKeyed].
// It is safe for concurrent use.
type Keyed[K comparable] struct {
	rate  Rate
	now   func() time.Time
	start time.Time
	seed  maphash.Seed
	mask  uint64
	table []bucket
	locks [locks]sync.Mutex
}

// bucket holds the keys whose hashes have the same lower bits.
type bucket [slots]slot

type slot struct {
	hash    uint64
	arrival time.Duration // since start; what has passed is free
}

// NewKeyed returns a limiter for about size keys at a time ([DefaultSize] if 0,
// 16 bytes each, rounded up to a power of two) that applies rate. The zero Rate
// allows everything. now is the clock, [time.Now] if nil; steps of the wall clock
// do not matter as long as its times have a monotonic reading.
func NewKeyed[K comparable](rate Rate, size int, now func() time.Time) *Keyed[K] {
	if size <= 0 {
		size = DefaultSize
	}
	if now == nil {
		now = time.Now
	}
	buckets := 1
	for buckets*slots < size {
		buckets *= 2
	}
	return &Keyed[K]{
		rate: rate, now: now, start: now(), seed: maphash.MakeSeed(),
		mask: uint64(buckets - 1), table: make([]bucket, buckets),
	}
}

// Allow decides about one event of key, and counts it if it is allowed. It does
// not allocate.
func (l *Keyed[K]) Allow(key K) Decision {
	if l.rate.IsZero() {
		return Decision{Allowed: true}
	}
	hash := maphash.Comparable(l.seed, key)
	now := l.now().Sub(l.start)
	i := hash & l.mask
	lock := &l.locks[i%locks]
	lock.Lock()
	defer lock.Unlock()
	place, arrival := l.table[i].find(hash)
	next, decision := l.rate.Take(arrival, now)
	l.table[i][place] = slot{hash, next}
	return decision
}

// find returns the place of the key with the given hash and its arrival. For a
// key that is not there it is the place of the one with the earliest arrival.
func (b *bucket) find(hash uint64) (place int, arrival time.Duration) {
	for i := range b {
		if b[i].hash == hash {
			return i, b[i].arrival
		}
		if b[i].arrival < b[place].arrival {
			place = i
		}
	}
	return place, 0
}
