package idgen

import (
	"context"
	"fmt"
	"math"
	"time"
)

// now returns the id time at which e may issue. If wait is not 0, the caller must sleep for wait
// milliseconds and call now again. An error says why no id can be issued.
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
	case g.ringCopes(e):
		return now, 0, nil
	}
	return g.behind()
}

// ringCopes reports whether the ring handles any reading of the clock.
func (g *Generator) ringCopes(e *tenure) bool { return e.slots != nil && !g.time.referenced }

// behind handles a clock that reads less than before, or less than the floor of the lease. It reads
// the clock again under the lock and asks the policy about the remaining step.
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
	if now >= target { // no issued id is affected by the step
		g.time.accept(now)
		return now, 0, nil
	}
	switch g.verdict(e, now, target) {
	case Ride:
		if g.time.ride.Load() == nil {
			g.rollbacks.Add(1)
		}
		g.time.rideFrom(target, g.speed(e, target))
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

// startWait is the largest distance between the clock and a floor that a crash can explain: the
// lead of the ceiling, and a margin. A larger distance means that the clock was set back. After a
// crash the generator waits for the floor; otherwise a process that crashes repeatedly would use
// timestamps further ahead each time.
const startWait = 5 * time.Second

// verdict asks the policy and corrects its verdict for a clock below the floor. Below the floor a
// generator must not count or reuse. It must not ride ahead of a reference, or after a mere crash.
func (g *Generator) verdict(e *tenure, now, target int64) Verdict {
	back := time.Duration(target-now) * time.Millisecond
	v := g.policy.Behind(back)
	belowFloor := now < e.floor
	fresh := belowFloor && e.used() < e.floor && g.toCome(e, back)
	switch {
	case v == Count && belowFloor,
		v == Reuse && (e.slots == nil || fresh),
		v == Ride && fresh:
		v = Refuse
		if target-now <= g.window.maxWait {
			v = Sleep
		}
	}
	return v
}

// toCome reports whether the clock that ceilings follow has yet to reach the floor of e. Without
// such a clock, toCome reports whether a crash explains the distance, that is at most startWait.
func (g *Generator) toCome(e *tenure, back time.Duration) bool {
	if g.time.lease == nil {
		return back <= startWait
	}
	now, _ := g.time.leaseTime()
	return now < e.floor
}

// slewed is the speed of a ride. The clock gains an eighth of real time on the ride.
const slewed = 7.0 / 8

// spare is the part of the ceiling, in milliseconds, that a ride leaves for timestamps ahead of id
// time.
const spare = 50

// speed returns how fast id time passes on a ride that starts at from. If from is ahead of the
// clock that ceilings follow, the speed is limited: the room below the ceiling must last until that
// clock has caught up.
func (g *Generator) speed(e *tenure, from int64) float64 {
	now, _ := g.time.leaseTime()
	ahead := float64(from - now)
	if g.time.lease == nil || ahead <= 0 {
		return slewed
	}
	room := float64(max(0, e.ceiling.Load()-from-spare))
	return min(slewed, room/(room+ahead))
}

// repace adjusts the speed of a ride to a new ceiling. The caller holds mu.
func (g *Generator) repace(e *tenure) {
	r := g.time.ride.Load()
	if r == nil || e.err != nil {
		return
	}
	from := r.now()
	if speed := g.speed(e, from); math.Abs(speed-r.speed) > r.speed/8 {
		g.time.ride.CompareAndSwap(r, &ride{base: from, start: time.Now(), speed: speed})
	}
}

// count starts a tenure at the earlier time with a higher rollback field. The caller holds mu.
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

// awaitFloor sleeps until the clock reaches the first timestamp of the lease. It does not sleep if
// a crash cannot explain the distance. It returns the cause of ctx if ctx ends.
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
