package limit

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a clock that a test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// rounding is how far the model, which counts in floating point, may be off.
const rounding = 1e-6

// TestKeyedAgainstModel compares with a model that remembers every event: in no
// span of time do more pass than the burst and what the rate allows meanwhile,
// and none is refused that a bucket of tokens would let through.
func TestKeyedAgainstModel(t *testing.T) {
	for _, rate := range []Rate{{1, time.Second}, {3, time.Second}, {100, time.Second}, {7, time.Minute}, {5, time.Hour}} {
		t.Run(rate.String(), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(rate.Count)))
			c := new(clock)
			l := NewKeyed[string](rate, 0, c.now)
			tokens, last := float64(rate.Count), int64(0) // the model
			var passed []int64
			for range 3000 {
				// Sometimes quiet, sometimes much more than the rate.
				c.advance(time.Duration(random.Int64N(int64(rate.Interval()) * (1 + random.Int64N(4)))))
				at := c.at.Load()
				tokens = min(float64(rate.Count), tokens+float64(at-last)/float64(rate.Interval()))
				last = at
				d := l.Allow("key")
				if tokens >= 1+rounding && !d.Allowed || tokens < 1-rounding && d.Allowed {
					t.Fatalf("Allow() = %+v, and the model has %f tokens", d, tokens)
				}
				if d.Allowed {
					tokens--
					passed = append(passed, at)
				}
			}
			for i := range passed {
				for j := i; j < len(passed); j++ {
					span := passed[j] - passed[i]
					if n := int64(j - i + 1); n > int64(rate.Count)+span/int64(rate.Interval()) {
						t.Fatalf("%d passed within %s at %s", n, time.Duration(span), rate)
					}
				}
			}
		})
	}
}

func TestKeyedKeysAreApart(t *testing.T) {
	c := new(clock)
	l := NewKeyed[string](Rate{1, time.Hour}, 0, c.now)
	for i := range 1000 {
		if key := fmt.Sprint("key", i); !l.Allow(key).Allowed {
			t.Fatalf("the first event of %s was refused", key)
		}
	}
	if l.Allow("key0").Allowed {
		t.Error("the second event of key0 was allowed")
	}
}

// TestKeyedMemory lets a million addresses come: the memory stays that of the
// table, and whoever was over the limit before still is, although everything that
// is new had to make room in the meantime.
func TestKeyedMemory(t *testing.T) {
	c := new(clock)
	l := NewKeyed[netip.Addr](Rate{10, time.Minute}, 0, c.now)
	offender := netip.MustParseAddr("2001:db8:bad::")
	for range 10 {
		l.Allow(offender)
	}
	before := heap()
	random := rand.New(rand.NewPCG(1, 2))
	for range 1_000_000 {
		var bits [16]byte
		for i := range bits[:8] {
			bits[i] = byte(random.Uint32())
		}
		if !l.Allow(netip.AddrFrom16(bits)).Allowed {
			t.Fatal("the first event of an address was refused")
		}
	}
	if grown := int64(heap()) - int64(before); grown > 256<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if size := len(l.table) * slots; size != DefaultSize {
		t.Errorf("the table has %d places, want %d", size, DefaultSize)
	}
	if l.Allow(offender).Allowed {
		t.Error("the offender was forgotten for those who came once")
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestKeyedConcurrently has many goroutines share one key and counts.
func TestKeyedConcurrently(t *testing.T) {
	c := new(clock)
	l := NewKeyed[string](Rate{500, time.Hour}, 0, c.now)
	var passed atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 500 {
				l.Allow(fmt.Sprint("other", i, j))
				if l.Allow("key").Allowed {
					passed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if passed.Load() != 500 {
		t.Errorf("%d of 4000 passed, want 500", passed.Load())
	}
}

func TestKeyedDoesNotAllocate(t *testing.T) {
	names := NewKeyed[string](Rate{10, time.Minute}, 0, nil)
	addresses := NewAddresses(UnknownToken, Rate{10, time.Minute}, 0, nil, nil)
	addr := netip.MustParseAddr("2001:db8::1")
	if n := testing.AllocsPerRun(100, func() { names.Allow("orders-worker"); addresses.Allow(addr) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkKeyed(b *testing.B) {
	l := NewKeyed[string](Rate{MaxCount, time.Second}, 0, nil)
	b.ReportAllocs()
	for b.Loop() {
		l.Allow("orders-worker")
	}
}

func BenchmarkAddresses(b *testing.B) {
	l := NewAddresses(UnknownToken, Rate{MaxCount, time.Second}, 0, nil, nil)
	addr := netip.MustParseAddr("2001:db8::1")
	b.ReportAllocs()
	for b.Loop() {
		l.Allow(addr)
	}
}
