package idgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// keeper keeps the lease. It extends the ceiling at every heartbeat and acquires a new lease after
// a loss. Until Close, only the keeper uses the lease.
type keeper struct {
	source    Source
	heartbeat time.Duration
	report    func(error)
	rush      chan struct{}
	beat      atomic.Int64 // Unix milliseconds of the last success
	failing   atomic.Bool
	beats     atomic.Int64 // successes
	start     time.Time
	futile    atomic.Int64 // nanoseconds from start to the last time that waiting for heartbeats did not help
}

const (
	acquireTimeout = 10 * time.Second
	extendTimeout  = time.Second
)

func (k *keeper) init(src Source, o options) {
	k.source, k.heartbeat, k.report = src, o.heartbeat, o.report
	k.rush = make(chan struct{}, 1)
	k.start = time.Now()
	k.futile.Store(math.MinInt32)
}

// hurry asks for an early heartbeat, because the clock has reached the ceiling. beats is the number
// of successful heartbeats when the caller began to wait. hurry returns false if waiting is
// pointless: heartbeats fail, or two of them since then have not raised the ceiling to the clock.
func (k *keeper) hurry(beats int64) bool {
	now := int64(time.Since(k.start))
	if k.failing.Load() || now-k.futile.Load() < int64(k.heartbeat/4) {
		return false
	}
	if k.beats.Load() > beats+1 {
		k.futile.Store(now)
		return false
	}
	select {
	case k.rush <- struct{}{}:
	default:
	}
	return true
}

func (k *keeper) succeeded() {
	k.beat.Store(time.Now().UnixMilli())
	k.failing.Store(false)
	k.beats.Add(1)
}

// keep runs in the keeper's goroutine until run ends.
func (g *Generator) keep(run context.Context) {
	timer := time.NewTimer(g.firstBeat())
	defer timer.Stop()
	for {
		select {
		case <-run.Done():
			return
		case <-timer.C:
		case <-g.keeper.rush:
		}
		pause := g.keeper.heartbeat
		if err := g.heartbeat(run); err != nil && run.Err() == nil {
			g.keeper.failing.Store(true)
			g.errors.Add(1)
			g.keeper.report(err)
			if g.held() != nil {
				pause /= 4 // retry soon: the ceiling is running out
			}
		}
		timer.Reset(pause)
	}
}

// firstBeat returns the delay before the first heartbeat. It is 0 if there is no worker number yet,
// or if the clock is close to the ceiling.
func (g *Generator) firstBeat() time.Duration {
	e := g.tenure.Load()
	if e.err != nil || e.ceiling.Load() <= g.time.seen.Load()+g.keeper.heartbeat.Milliseconds() {
		return 0
	}
	return g.keeper.heartbeat
}

// heartbeat extends the lease, or acquires one if there is none.
func (g *Generator) heartbeat(run context.Context) error {
	lease := g.held()
	if lease == nil {
		ctx, cancel := context.WithTimeout(run, acquireTimeout)
		defer cancel()
		return g.acquire(ctx)
	}
	ctx, cancel := context.WithTimeout(run, extendTimeout)
	defer cancel()
	now, _ := g.time.leaseTime() // on an error: the last good reading
	ceiling, err := lease.Extend(ctx, now)
	if errors.Is(err, ErrLeaseLost) {
		// Timestamps up to the ceiling still belong to this generator, which goes on issuing them.
		g.setLease(nil)
		select { // acquire at once, not at the next heartbeat
		case g.keeper.rush <- struct{}{}:
		default:
		}
	}
	if err != nil {
		return fmt.Errorf("idgen: extend the ceiling: %w", err)
	}
	g.raise(ceiling)
	g.keeper.succeeded()
	return nil
}

func (g *Generator) held() Lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease
}

func (g *Generator) setLease(l Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease = l
}

// raise records a later ceiling. An earlier one is ignored.
func (g *Generator) raise(ceiling int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.tenure.Load()
	if ceiling > e.ceiling.Load() {
		e.ceiling.Store(ceiling)
	}
	g.repace(e)
}

// acquire takes a worker number and starts a tenure with it.
func (g *Generator) acquire(ctx context.Context) error {
	now, _, err := g.time.read()
	switch {
	case err != nil:
		return fmt.Errorf("idgen: no worker number is taken: %w", err)
	case now < 0:
		return ErrBeforeEpoch
	case now > g.scheme.layout.Max(FieldTime):
		return ErrTimeExhausted
	}
	leaseTime, err := g.time.leaseTime()
	if err != nil {
		return fmt.Errorf("idgen: no worker number is taken: %w", err)
	}
	lease, err := g.keeper.source.Acquire(ctx, g.scheme, leaseTime)
	if err != nil {
		return fmt.Errorf("idgen: acquire a worker number: %w", err)
	}
	if err := g.scheme.layout.CheckWorker(lease.Worker()); err != nil {
		return errors.Join(err, lease.Release(ctx, lease.Floor()-1))
	}
	g.install(lease, now)
	g.keeper.succeeded()
	return nil
}

// install starts the first tenure of a lease.
func (g *Generator) install(lease Lease, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now > lease.Ceiling() { // a ride above the ceiling must end
		if clock, err := g.time.alight(); err == nil {
			now = clock
		}
	}
	// Timestamps above the ceiling are never used, whatever the clock reads.
	from := max(lease.Floor(), min(now, lease.Ceiling()))
	old := g.tenure.Load()
	g.retire(old)
	// Start above the ids issued before, unless they are far ahead of the clock.
	if w := g.window; g.highest >= from && g.highest <= now+w.ahead+w.lag {
		from = g.highest + 1
	}
	e := newTenure(g.scheme.layout, right{lease.Worker(), lease.Floor(), lease.Ceiling()}, 0, from)
	if p, ok := g.policy.(ringPolicy); ok {
		e.slots = newRing(p.slots, max(lease.Floor(), 0), e.seqBits)
	}
	g.lease, g.highest = lease, from-1
	g.tenure.Store(e)
}

// retire ends a tenure and adds its count of ids to the totals. The caller holds mu.
func (g *Generator) retire(e *tenure) {
	if e.err != nil {
		return
	}
	last := (e.freeze() - 1) >> e.seqBits
	if e.slots != nil {
		last = e.usedInRing(g.time.seen.Load())
	}
	g.highest = max(g.highest, last)
	g.retired += e.generated()
}

// Close stops the heartbeat and returns the worker number together with the last timestamp used, so
// that the next holder can start just above it. ctx bounds the release. From then on ids are
// refused with ErrClosed; calls that are asleep still return their reserved ids. A second Close
// does nothing.
func (g *Generator) Close(ctx context.Context) error {
	if !g.shut() {
		return nil
	}
	g.cancel()
	g.done.Wait()
	g.mu.Lock()
	g.retire(g.tenure.Load())
	g.tenure.Store(vacant(ErrClosed))
	lease, last := g.lease, g.highest
	g.lease = nil
	g.mu.Unlock()
	if lease == nil {
		return nil
	}
	if err := lease.Release(ctx, last); err != nil {
		return fmt.Errorf("idgen: release the worker number: %w", err)
	}
	return nil
}

// shut marks the generator as closed and reports whether this call was the first.
func (g *Generator) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.closed
	g.closed = true
	return first
}
