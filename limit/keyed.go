package limit

import (
	"hash/maphash"
	"sync"
	"time"
)

// DefaultSize is the number of keys of a [Keyed] limiter: 1 MiB of memory.
const DefaultSize = 1 << 16

// slots is the number of keys in a bucket.
const slots = 8

// locks is the number of locks of a table, each for a part of its buckets.
const locks = 64

// Keyed applies one rate to each of many keys. It keeps hashes of the keys, under a random seed, in a
// table of fixed size that is allocated by [NewKeyed] and never grows.
//
// Where the table is full, a new key takes the place of the key that has used up the least of its
// rate. So an attacker who invents keys makes the limiter forget harmless keys and not the attacker's
// own. A forgotten key has its full rate again: the limiter errs by allowing too much.
//
// A Keyed is safe for concurrent use.
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
