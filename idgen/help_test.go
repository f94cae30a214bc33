package idgen

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// testEpoch lies before the start of time in a synctest bubble (2000-01-01).
var testEpoch = time.Date(1999, 7, 1, 0, 0, 0, 0, time.UTC)

// stepClock is a wall clock that can be set.
type stepClock struct {
	offset atomic.Int64 // milliseconds
	err    atomic.Pointer[error]
}

func (c *stepClock) Now() (int64, error) {
	if err := c.err.Load(); err != nil {
		return 0, *err
	}
	return time.Now().UnixMilli() + c.offset.Load(), nil
}

func (c *stepClock) step(d time.Duration) { c.offset.Add(d.Milliseconds()) }

// referenceClock is one that has a reference.
type referenceClock struct{ stepClock }

func (c *referenceClock) Offset() time.Duration { return 7 * time.Millisecond }

func testScheme(t testing.TB, l Layout) Scheme {
	t.Helper()
	s, err := NewScheme(l, testEpoch)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t testing.TB, s Scheme, src Source, opts ...Option) *Generator {
	t.Helper()
	g, err := New(context.Background(), s, src, opts...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { closeNow(t, g) })
	return g
}

func closeNow(t testing.TB, g *Generator) {
	t.Helper()
	if err := g.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// kill ends a generator as a crash would: nothing is released, only the lock of a ceiling file
// goes, as it does when a process dies.
func kill(g *Generator) {
	if !g.shut() {
		return
	}
	g.cancel()
	g.done.Wait()
	if l, ok := g.lease.(*highWaterLease); ok {
		l.lock.Close()
	}
	g.tenure.Store(vacant(ErrClosed))
}

func mustNext(t testing.TB, g *Generator) ID {
	t.Helper()
	id, err := g.Next()
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return id
}

// duplicates sorts ids and counts repetitions.
func duplicates(ids []ID) int {
	slices.Sort(ids)
	return len(ids) - len(slices.Compact(ids))
}

// memorySource keeps ceilings per worker number, like a registry in memory. Its behaviour can be
// changed between calls.
type memorySource struct {
	worker   Worker
	lead     int64
	ceiling  int64
	acquires atomic.Int64
	released atomic.Int64

	acquireErr, extendErr atomic.Pointer[error]
	latest                func() int64 // highest id time that ceilings follow; nil: any
}

func newMemorySource(w Worker) *memorySource {
	m := &memorySource{worker: w, lead: 3000, ceiling: -1}
	m.released.Store(math.MinInt64)
	return m
}

func (m *memorySource) Acquire(_ context.Context, _ Scheme, now int64) (Lease, error) {
	if err := m.acquireErr.Load(); err != nil {
		return nil, *err
	}
	m.acquires.Add(1)
	l := &memoryLease{source: m, floor: m.ceiling + 1}
	m.ceiling = max(m.ceiling, now+m.lead)
	l.ceiling = m.ceiling
	return l, nil
}

type memoryLease struct {
	source         *memorySource
	floor, ceiling int64
}

func (l *memoryLease) Worker() Worker { return l.source.worker }
func (l *memoryLease) Floor() int64   { return l.floor }
func (l *memoryLease) Ceiling() int64 { return l.ceiling }

func (l *memoryLease) Extend(_ context.Context, now int64) (int64, error) {
	if err := l.source.extendErr.Load(); err != nil {
		return l.ceiling, *err
	}
	if l.source.latest != nil {
		now = min(now, l.source.latest())
	}
	l.source.ceiling = max(l.source.ceiling, now+l.source.lead)
	l.ceiling = l.source.ceiling
	return l.ceiling, nil
}

func (l *memoryLease) Release(_ context.Context, last int64) error {
	l.source.released.Store(last)
	l.source.ceiling = last
	return nil
}
