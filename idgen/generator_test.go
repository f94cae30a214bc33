package idgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bitmap marks the tickets of ids, so that a repetition shows at once.
type bitmap struct {
	scheme Scheme
	first  int64
	bits   []uint64
}

func newBitmap(s Scheme, first ID, span time.Duration) *bitmap {
	f, _ := s.layout.Unpack(first)
	per := s.layout.PerMillisecond()
	return &bitmap{s, f.Time * per, make([]uint64, span.Milliseconds()*per/64)}
}

// add returns false if the id was there already.
func (b *bitmap) add(id ID) bool {
	l := &b.scheme.layout
	n := l.get(id, FieldTime)*l.PerMillisecond() + l.get(id, FieldSequence) - b.first
	word, bit := &b.bits[n/64], uint64(1)<<(n%64)
	fresh := *word&bit == 0
	*word |= bit
	return fresh
}

// 20 million ids, at the limit of the default layout and with the wide one, from few and from many
// goroutines, with Next, Fill and TryNext: no repetition, and each goroutine sees its ids rise.
func TestConcurrentUniqueness(t *testing.T) {
	total := 20_000_000
	if testing.Short() || raceEnabled {
		total = 1_000_000
	}
	for _, l := range []Layout{LayoutDefault, LayoutWide} {
		for _, goroutines := range []int{4, 64} {
			t.Run(fmt.Sprintf("%s/%d", l, goroutines), func(t *testing.T) {
				if l == LayoutDefault {
					t.Parallel() // it mostly sleeps
				}
				testConcurrent(t, l, goroutines, total)
			})
		}
	}
}

func testConcurrent(t *testing.T, l Layout, goroutines, total int) {
	s, err := NewScheme(l, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, s, Fixed(Worker{Number: 3}), WithMaxWait(time.Second))
	first := s.First(time.Now())
	runs := make([][]ID, goroutines)
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() { runs[i] = take(t, g, total/goroutines) })
	}
	wg.Wait()
	seen := newBitmap(s, first, s.At(s.Since(time.Now())).Sub(s.Time(first))+time.Second)
	for i, run := range runs {
		last := ID(0)
		for _, id := range run {
			if id <= last {
				t.Fatalf("goroutine %d got %d after %d", i, id, last)
			}
			last = id
			if !seen.add(id) {
				t.Fatalf("id %d came twice", id)
			}
		}
	}
	if got := g.Health().Generated; got != int64(goroutines*(total/goroutines)) {
		t.Errorf("Generated = %d, want the %d ids that were returned", got, total)
	}
}

// The same where every call reads the clock and places its ticket itself, in the word and in the
// ring.
func TestConcurrentUniquenessUnpublished(t *testing.T) {
	for _, p := range []Policy{Monotonic(), RingPolicy(200)} {
		g := wideGenerator(t, "time:41,sequence:22", WithPolicy(p))
		g.pacer.threshold = 1 << 62
		runs := make([][]ID, 4)
		var wg sync.WaitGroup
		for i := range runs {
			wg.Go(func() {
				for range 200_000 {
					id, err := g.Next()
					if err != nil {
						t.Errorf("%s: %v", p, err)
						return
					}
					runs[i] = append(runs[i], id)
				}
			})
		}
		wg.Wait()
		if d := duplicates(slices.Concat(runs...)); d != 0 {
			t.Errorf("%s: %d duplicates", p, d)
		}
	}
}

// interruptedClock lets something happen between a reading and its use.
type interruptedClock struct {
	ms        int64
	interrupt func()
}

func (c *interruptedClock) Now() (int64, error) {
	ms := c.ms
	if f := c.interrupt; f != nil {
		c.interrupt = nil
		f()
	}
	return ms, nil
}

// A caller that loses the processor for 20 ms right after it read the clock must not be refused
// because others have moved the word on meanwhile.
func TestStaleReadingIsNotSaturation(t *testing.T) {
	clock := &interruptedClock{ms: testEpoch.UnixMilli() + 1000}
	g := start(t, testScheme(t, LayoutDefault), Fixed(Worker{}), WithClock(clock))
	clock.interrupt = func() {
		clock.ms += 20
		mustNext(t, g)
	}
	if _, err := g.TryNext(); err != nil {
		t.Errorf("TryNext: %v, want an id", err)
	}
}

// take gets n ids by all the ways there are.
func take(t *testing.T, g *Generator, n int) []ID {
	ids := make([]ID, n)
	for i := 0; i < n; {
		var err error
		switch i >> 10 % 8 {
		case 0:
			var got int
			got, err = g.Fill(ids[i:min(n, i+300)])
			i += got
		case 1:
			if ids[i], err = g.TryNext(); err == nil {
				i++
			} else if errors.Is(err, ErrSaturated) {
				ids[i], err = g.NextContext(context.Background())
				i++
			}
		default:
			ids[i], err = g.Next()
			i++
		}
		if err != nil {
			t.Errorf("after %d ids: %v", i, err)
			return ids[:i]
		}
	}
	return ids
}

// Up to about 50 000 ids per second, each carries the millisecond it was issued in.
func TestLowRateStampsAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testScheme(t, LayoutDefault)
		g := start(t, s, Fixed(Worker{}))
		rng := rand.New(rand.NewPCG(3, 3))
		for range 20_000 {
			time.Sleep(time.Duration(rng.IntN(40)) * time.Microsecond)
			if id, now := mustNext(t, g), time.Now(); !s.Time(id).Equal(now.Truncate(time.Millisecond)) {
				t.Fatalf("id stamped %v at %v", s.Time(id), now)
			}
		}
	})
}

// Also right after a spell of high rate: the published tickets must not be handed out later.
func TestStampsAreExactAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testScheme(t, LayoutDefault)
		g := start(t, s, Fixed(Worker{}))
		for _, burst := range []int{100, 300, 1000, 5000, 100_000} {
			for range burst {
				mustNext(t, g)
			}
			time.Sleep(30 * time.Millisecond)
			if id, now := mustNext(t, g), time.Now(); !s.Time(id).Equal(now.Truncate(time.Millisecond)) {
				t.Errorf("30ms after %d ids: stamped %v at %v", burst, s.Time(id), now)
			}
		}
	})
}

// At every rate stamps stay within 10 ms of the clock.
func TestStampsStayInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testScheme(t, LayoutDefault)
		g := start(t, s, Fixed(Worker{}))
		for _, perMS := range []int{1, 100, 250, 300, 1000, 4000, 4096, 6000} {
			for range 100 {
				for range perMS {
					id := mustNext(t, g)
					if off := time.Since(s.Time(id)); off > 10*time.Millisecond || off < -10*time.Millisecond {
						t.Fatalf("%d per ms: stamp is %v off", perMS, off)
					}
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
}

func TestBurstFromIdleDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, testScheme(t, LayoutDefault), Fixed(Worker{}))
		time.Sleep(time.Second)
		began := time.Now()
		for range 20_000 {
			mustNext(t, g)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("20 000 ids from idle took %v of virtual time, want none", took)
		}
	})
}

func TestSaturationUsesTheWholeLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, testScheme(t, LayoutDefault), Fixed(Worker{}))
		began, count := time.Now(), 0
		for ; time.Since(began) < time.Second; count++ {
			mustNext(t, g)
		}
		if want := 4_096_000; count < want {
			t.Errorf("%d ids in a second, want at least %d", count, want)
		}
	})
}

// A sleeper that oversleeps by less than the window costs no capacity.
func TestOversleepingLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, testScheme(t, LayoutDefault), Fixed(Worker{}), WithMaxWait(100*time.Millisecond))
		began, count := time.Now(), 0
		for time.Since(began) < time.Second {
			for before := time.Now(); time.Now().Equal(before); count++ { // until it had to wait
				mustNext(t, g)
			}
			time.Sleep(9 * time.Millisecond)
		}
		if want := 4_096_000 - 10*4096; count < want { // the last sleep leaves some over
			t.Errorf("%d ids in a second, want at least %d", count, want)
		}
	})
}

func TestSaturatedCallersDoNotRunAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testScheme(t, LayoutDefault)
		g := start(t, s, Fixed(Worker{}))
		refused := 0
		for range 200_000 {
			if _, err := g.TryNext(); err != nil {
				if !errors.Is(err, ErrSaturated) {
					t.Fatal(err)
				}
				refused++
			}
		}
		if want := 200_000 - 6*4096; refused != want {
			t.Errorf("%d calls refused, want %d", refused, want)
		}
		if ahead := time.Until(s.Time(mustNext(t, g))); ahead > 6*time.Millisecond {
			t.Errorf("after %d refused calls stamps are %v ahead, want no trace of them", refused, ahead)
		}
	})
}

func TestNextWaitsNoLongerThanItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, testScheme(t, mustLayout("time:41,sequence:1")), Fixed(Worker{})) // 2 per ms
		var wg sync.WaitGroup
		var mu sync.Mutex
		saturated := 0
		for range 100 {
			wg.Go(func() {
				began := time.Now()
				_, err := g.Next()
				mu.Lock()
				defer mu.Unlock()
				if took := time.Since(began); took > 5*time.Millisecond {
					t.Errorf("Next took %v, want at most 5ms", took)
				}
				if errors.Is(err, ErrSaturated) {
					saturated++
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// open: now and 5 ms ahead; the next 5 can be waited for: 11 ms of 2 ids
		if want := 100 - 22; saturated != want {
			t.Errorf("%d of 100 calls refused, want %d", saturated, want)
		}
	})
}

func TestNextContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, testScheme(t, mustLayout("time:41,sequence:1")), Fixed(Worker{}))
		for range 12 { // now and 5 ms ahead
			mustNext(t, g)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		gaveUp := errors.New("gave up")
		time.AfterFunc(100*time.Microsecond, func() { cancel(gaveUp) })
		if id, err := g.NextContext(ctx); !errors.Is(err, gaveUp) {
			t.Errorf("NextContext = %d, %v, want the cause of its end", id, err)
		}
		if got := g.Health().Generated; got != 12 {
			t.Errorf("Generated = %d after 12 ids and one hole", got)
		}
		ids := make([]ID, 60) // 30 ms: much longer than the bound of one wait
		for i := range ids {
			var err error
			if ids[i], err = g.NextContext(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if d := duplicates(ids); d != 0 {
			t.Errorf("%d duplicates", d)
		}
		short, done := context.WithTimeout(context.Background(), time.Millisecond)
		defer done()
		for range 20 {
			if _, err := g.NextContext(short); err != nil {
				return
			}
		}
		t.Error("20 calls found room in 1 ms of 2 ids")
	})
}

func TestFillLargerThanTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, testScheme(t, LayoutDefault), Fixed(Worker{}))
		ids := make([]ID, 1_000_000)
		if n, err := g.Fill(ids); n != len(ids) || err != nil {
			t.Fatalf("Fill = %d, %v", n, err)
		}
		for i := range ids[1:] {
			if ids[i+1] <= ids[i] {
				t.Fatalf("id %d is not above id %d", i+1, i)
			}
		}
		if n, err := g.Fill(nil); n != 0 || err != nil {
			t.Errorf("Fill(nil) = %d, %v", n, err)
		}
	})
}

// The fields of every id are what the layout and the worker say, in every layout.
func TestIDsHaveTheirFields(t *testing.T) {
	for _, l := range layouts {
		synctest.Test(t, func(t *testing.T) {
			s := testScheme(t, l)
			w := l.Worker(l.Workers() - 1)
			g := start(t, s, Fixed(w))
			ids := make([]ID, 5*l.PerMillisecond()/2)
			if n, err := g.Fill(ids); n != len(ids) || err != nil {
				t.Fatalf("%s: Fill = %d, %v", l, n, err)
			}
			ids = append(ids, mustNext(t, g))
			for i, id := range ids {
				p, err := s.Decompose(id)
				if err != nil || p.Datacenter != w.Datacenter || p.Worker != w.Number || p.Rollback != 0 {
					t.Fatalf("%s: id %d is %+v, %v, want worker %+v", l, i, p, err, w)
				}
				if want := int64(i) % l.PerMillisecond(); p.Sequence != want {
					t.Fatalf("%s: sequence of id %d is %d, want %d", l, i, p.Sequence, want)
				}
			}
		})
	}
}

func TestTimeRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := new(stepClock)
		s := testScheme(t, LayoutDefault)
		g := start(t, s, newMemorySource(Worker{}), WithClock(clock))
		clock.step(time.Until(s.Exhausts()) - 2*time.Second)
		for {
			id, err := g.Next()
			if errors.Is(err, ErrCeiling) { // until the next heartbeat
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				if !errors.Is(err, ErrTimeExhausted) {
					t.Errorf("at the end: %v, want ErrTimeExhausted", err)
				}
				break
			}
			if id < 0 || s.Time(id).Before(testEpoch.AddDate(60, 0, 0)) {
				t.Fatalf("id %d wrapped", id)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if h := g.Health(); h.Healthy || !errors.Is(h.Err, ErrTimeExhausted) {
			t.Errorf("Health = %+v, want ErrTimeExhausted", h)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	ctx := context.Background()
	clock := new(stepClock)
	clock.step(-200 * 365 * 24 * time.Hour)
	s := testScheme(t, LayoutDefault)
	tests := []struct {
		name   string
		scheme Scheme
		source Source
		option Option
		want   error
	}{
		{"zero scheme", Scheme{}, Fixed(Worker{}), WithMaxWait(0), ErrLayout},
		{"worker too large", s, Fixed(Worker{Number: 1024}), WithMaxWait(0), ErrFieldRange},
		{"worker negative", s, Fixed(Worker{Number: -1}), WithMaxWait(0), ErrFieldRange},
		{"datacenter without a field", s, Fixed(Worker{Datacenter: 1}), WithMaxWait(0), ErrFieldRange},
		{"count without a field", s, Fixed(Worker{}), WithPolicy(CountPolicy(0)), ErrLayout},
		{"before the epoch", s, Fixed(Worker{}), WithClock(clock), ErrBeforeEpoch},
	}
	for _, test := range tests {
		if _, err := New(ctx, test.scheme, test.source, test.option); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	for i, o := range []Option{
		WithClock(nil), WithPolicy(nil), WithReport(nil), WithHeartbeat(0), WithMaxWait(-1),
		WithWindow(-time.Millisecond, 0), WithWindow(0, 2*time.Second),
	} {
		if _, err := New(ctx, s, Fixed(Worker{}), o); err == nil {
			t.Errorf("option %d was accepted", i)
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	g := wideGenerator(t, "time:41,sequence:22")
	batch := make([]ID, 64)
	n := testing.AllocsPerRun(10_000, func() {
		if _, err := g.Next(); err != nil {
			t.Error(err)
		}
		if _, err := g.TryNext(); err != nil {
			t.Error(err)
		}
		if _, err := g.Fill(batch); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("Next, TryNext and Fill allocate %v times, want 0", n)
	}
}
