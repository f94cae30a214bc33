package idgen

import (
	"context"
	"time"
)

// The pacer publishes open tickets while ids are wanted fast. Reading a clock costs ten times as
// much as taking a ticket. At high rates tenure.limit therefore tells Next which tickets are open,
// and Next issues them without reading the clock. The limit becomes outdated, so the pacer renews
// it every pacePeriod. When the rate falls, the pacer withdraws the limit. At saturation, callers
// that had to wait publish a limit as well. At low rates the pacer sleeps on its channel and costs
// nothing.
const pacePeriod = 4 * time.Millisecond

type pacer struct {
	poke      chan struct{}
	threshold int64 // ids per millisecond from which on a rate counts as fast
	seqMask   int64
	seqBits   uint8
}

func (p *pacer) init(l Layout) {
	p.poke = make(chan struct{}, 1)
	p.threshold = min(256, (l.PerMillisecond()+3)/4)
	p.seqMask = l.Max(FieldSequence)
	p.seqBits = l.bits[FieldSequence]
}

// observe publishes a limit once enough tickets were taken within one millisecond.
func (p *pacer) observe(g *Generator, r reservation) {
	slow := r.first>>p.seqBits <= r.now && r.first&p.seqMask+r.n < p.threshold
	if !slow && r.tenure.slots == nil {
		p.publish(g, r.tenure, r.now)
	}
}

func (p *pacer) publish(g *Generator, e *tenure, now int64) {
	e.publish(now, g.window)
	select {
	case p.poke <- struct{}{}: // after publishing, because the pacer may be about to sleep
	default:
	}
}

// wake publishes a limit after a caller has waited for its ticket. Milliseconds that the caller
// overslept may then be used up.
func (g *Generator) wake(e *tenure) {
	now, seen, err := g.time.read()
	if err != nil || now < max(seen, e.floor, 0) || e.slots != nil || e.err != nil {
		return // the next caller handles this
	}
	e.waited.Store(now)
	g.pacer.publish(g, e, now)
}

// pace runs in the pacer's goroutine until run ends.
func (g *Generator) pace(run context.Context) {
	timer := time.NewTimer(pacePeriod)
	defer timer.Stop()
	for {
		select {
		case <-run.Done():
			return
		case <-g.pacer.poke:
		}
		for fast := true; fast; {
			e := g.tenure.Load()
			before := e.word.Load()
			timer.Reset(pacePeriod)
			select {
			case <-run.Done():
				return
			case <-timer.C:
			}
			fast = g.renew(e, before)
		}
	}
}

// renew renews the published limit and returns true. It withdraws the limit and returns false in
// two cases: fewer tickets than the threshold were taken since the word was before, or the next
// caller must check the clock.
func (g *Generator) renew(e *tenure, before int64) bool {
	if e.word.Load()-before < g.pacer.threshold {
		e.limit.Store(0)
		return false
	}
	now, seen, err := g.time.read()
	if err != nil || now < max(seen, e.floor, 0) || now > e.maxTime {
		e.limit.Store(0)
		return false
	}
	e.publish(now, g.window)
	return true
}
