package idgen

import (
	"context"
	"time"
)

// Reading a clock costs ten times as much as taking a ticket. So where ids are wanted fast, the
// tickets open now are published in tenure.limit, and Next hands them out unseen. A published limit
// grows stale; the pacer renews it every pacePeriod, and takes it back when ids are no longer
// wanted fast. At saturation the callers that had to wait publish as well. Otherwise the pacer
// sleeps on its channel and costs nothing.
const pacePeriod = 4 * time.Millisecond

type pacer struct {
	poke      chan struct{}
	threshold int64 // ids per millisecond that are fast
	seqMask   int64
	seqBits   uint8
}

func (p *pacer) init(l Layout) {
	p.poke = make(chan struct{}, 1)
	p.threshold = min(256, (l.PerMillisecond()+3)/4)
	p.seqMask = l.Max(FieldSequence)
	p.seqBits = l.bits[FieldSequence]
}

// observe publishes once enough tickets have been taken in one millisecond.
func (p *pacer) observe(g *Generator, r reservation) {
	slow := r.first>>p.seqBits <= r.now && r.first&p.seqMask+r.n < p.threshold
	if !slow && r.tenure.slots == nil {
		p.publish(g, r.tenure, r.now)
	}
}

func (p *pacer) publish(g *Generator, e *tenure, now int64) {
	e.publish(now, g.window)
	select {
	case p.poke <- struct{}{}: // after publishing: the pacer may be about to sleep
	default:
	}
}

// wake is called by a caller that has waited for its ticket: what it overslept
// may be used up.
func (g *Generator) wake(e *tenure) {
	now, seen, err := g.time.read()
	if err != nil || now < max(seen, e.floor, 0) || e.slots != nil || e.err != nil {
		return // the next caller deals with it
	}
	e.waited.Store(now)
	g.pacer.publish(g, e, now)
}

// pace is the pacer's goroutine.
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

// renew publishes anew, or takes back what is published if fewer ids than the
// threshold were taken since the word was before, or the clock demands a look.
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
