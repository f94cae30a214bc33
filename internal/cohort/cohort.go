// Package cohort has goroutines that are about to do the same thing do it one right after
// the other.
//
// A request runs through more code than the processor's first caches hold, so each step finds
// the caches full of the step before it, and pays several times for itself what it would pay
// if it were repeated. And a message to another process wakes that up, which costs the sender
// more than the message if the other one has fallen asleep since the last. Servers that are one
// loop over events have neither problem while they are busy: they read what has come on many
// connections, and then write to many. Where every request is a goroutine, the same comes of
// itself if each lets the others that are ready run before it goes on with the next step:
// cohort scheduling (J. Larus, M. Parkes: Using Cohort Scheduling to Enhance Server Performance,
// USENIX 2002).
//
// Nobody waits for company: who is alone goes on at once. But even letting others run has its
// price if there are none, because the runtime then wakes another thread to do what there is to
// do. So one who was alone a few times lets nobody run for a while.
package cohort

import (
	"runtime"
	"sync/atomic"
)

const (
	// tries is how often in a row there may be no company before that is what
	// is expected.
	tries = 4
	// pause is how many calls pass then without looking for any.
	pause = 64
)

// Cohort gathers goroutines before one step, which is to be the same for all of them. The
// zero value is usable. It is safe for concurrent use and must not be copied.
type Cohort struct {
	here  atomic.Int32 // goroutines in Gather that let others run
	alone atomic.Int32 // how often in a row there was no company
	skip  atomic.Int32 // how many calls are not to look for any
}

// Gather lets goroutines that are ready run first, if lately there were any that came here too. It
// does not wait for those that are not ready.
func (c *Cohort) Gather() {
	if !c.Due() {
		return
	}
	c.here.Add(1)
	runtime.Gosched()
	c.Learn(c.here.Add(-1) > 0)
}

// Due reports whether it is worth letting others run. It is for who does so by other means than
// Gather, and tells Learn then.
func (c *Cohort) Due() bool {
	if c.skip.Load() <= 0 {
		return true
	}
	c.skip.Add(-1)
	return false
}

// Learn is told whether others came after Due has said that it is worth it.
func (c *Cohort) Learn(company bool) {
	switch {
	case company:
		if c.alone.Load() != 0 { // else it would be taken away from other processors' caches
			c.alone.Store(0)
		}
	case c.alone.Add(1) >= tries:
		c.alone.Store(0)
		c.skip.Store(pause)
	}
}
