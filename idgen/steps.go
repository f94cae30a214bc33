package idgen

import (
	"context"
	"fmt"
	"time"
)

// now returns the id time at which e may issue, or for how many milliseconds
// the caller shall sleep before it asks again, or why nothing can be issued.
func (g *Generator) now(e *tenure) (now, wait int64, err error) {
	now, seen, err := g.time.read()
	switch {
	case err != nil:
		return 0, 0, err
	case now < 0:
		return 0, 0, ErrBeforeEpoch
	case now > e.maxTime:
		return 0, 0, ErrTimeExhausted
	case now >= seen && now >= e.floor:
		return now, 0, nil
	case e.slots != nil && !g.time.referenced: // the ring deals with it
		return now, 0, nil
	}
	return g.behind()
}

// behind deals with a clock that reads less than it did before, or less than
// the floor of the lease. It looks again, under the lock, and lets the policy
// decide about what remains of the step.
func (g *Generator) behind() (now, wait int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.tenure.Load()
	if e.err != nil {
		return 0, 0, e.err
	}
	now, seen, err := g.time.read()
	if err != nil {
		return 0, 0, err
	}
	target := max(min(seen, e.used()), e.floor)
	if now >= target { // nothing was issued that the step could repeat
		g.time.accept(now)
		return now, 0, nil
	}
	switch g.verdict(e, now, target) {
	case Ride:
		g.rollbacks.Add(1)
		g.time.rideFrom(target)
		return target, 0, nil
	case Count:
		g.rollbacks.Add(1)
		return now, 0, g.count(e, now)
	case Sleep:
		return now, target - now, nil
	case Reuse:
		return now, 0, nil
	}
	return now, 0, fmt.Errorf("%w: by %d ms", ErrClockBehind, target-now)
}

// startWait is how far ahead of the clock a floor may be that a crash explains:
// the lead of the ceiling, and some more. What is further ahead is due to a clock
// that was set back. Waiting for the former keeps a process that crashes again
// and again from stamping ids further ahead each time.
const startWait = 5 * time.Second

// verdict asks the policy, and takes from the answer what a clock below the
// floor does not allow: to ride ahead of a reference or after a mere crash, to
// count, to reuse.
func (g *Generator) verdict(e *tenure, now, target int64) Verdict {
	back := time.Duration(target-now) * time.Millisecond
	v := g.policy.Behind(back)
	belowFloor := now < e.floor
	fresh := belowFloor && (g.time.referenced || e.used() < e.floor && back <= startWait)
	switch {
	case v == Count && belowFloor,
		v == Reuse && (e.slots == nil || fresh),
		v == Ride && fresh:
		v = Refuse
		if target-now <= g.window.patience {
			v = Sleep
		}
	}
	return v
}

// count starts a tenure at the earlier time, told apart by the rollback field.
// Callers hold mu.
func (g *Generator) count(e *tenure, now int64) error {
	if e.rollback >= g.scheme.layout.Max(FieldRollback) {
		g.retire(e)
		g.tenure.Store(vacant(ErrRollbacksExhausted))
		return ErrRollbacksExhausted
	}
	g.time.accept(now)
	g.retire(e)
	right := right{e.worker, e.floor, e.ceiling.Load()}
	g.tenure.Store(newTenure(g.scheme.layout, right, e.rollback+1, now))
	return nil
}

// awaitFloor sleeps until the clock reaches the first timestamp of the lease,
// if a crash explains why it has not. It returns the cause of ctx if that ends.
func (g *Generator) awaitFloor(ctx context.Context) error {
	e := g.tenure.Load()
	for end := time.Now().Add(startWait); ; {
		now, _, err := g.time.read()
		wait := time.Duration(e.floor-now) * time.Millisecond
		if err != nil || wait <= 0 || wait > time.Until(end) {
			return nil //nolint:nilerr // a clock that fails is told to whoever asks for an id
		}
		if err := g.sleep(ctx, wait.Milliseconds()); err != nil {
			return err
		}
	}
}
