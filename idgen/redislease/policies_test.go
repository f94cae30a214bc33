package redislease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/idgen"
)

// hostClock is a wall clock that can be set.
type hostClock struct{ off atomic.Int64 }

func (c *hostClock) Now() (int64, error) { return time.Now().UnixMilli() + c.off.Load(), nil }

// numbers is a registry of one worker number with the rules of acquire.lua and extend.lua, on the
// clock of a reference.
type numbers struct {
	r *reference

	mu      sync.Mutex // guards what follows, and all leases
	ceiling int64      // recorded, Unix ms
	holder  *numberLease
	newest  *claimant
}

// claimant is a generator that requests the number. Only the newest one gets it.
type claimant struct{ *numbers }

type numberLease struct {
	of             *numbers
	by             *claimant
	scheme         idgen.Scheme
	floor, ceiling int64
}

const numbersLead = 3000

func (c *claimant) Acquire(_ context.Context, s idgen.Scheme, now int64) (idgen.Lease, error) {
	n := c.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	if c != n.newest {
		return nil, fmt.Errorf("%w: taken over", idgen.ErrNoWorker)
	}
	unix := n.r.now().UnixMilli()
	if off := s.Epoch().UnixMilli() + now - unix; off > 5000 || off < -5000 {
		return nil, fmt.Errorf("%w: the clock is %d ms off", idgen.ErrNoWorker, off)
	}
	if n.holder == nil || n.holder.by != c { // the predecessor has lost it from now on
		n.holder = &numberLease{of: n, by: c, scheme: s, floor: n.ceiling + 1}
	}
	l := n.holder
	if unix < l.floor {
		return nil, fmt.Errorf("%w: pending", idgen.ErrNoWorker)
	}
	l.raise(now)
	return l, nil
}

// raise records a later ceiling. The caller holds l.of.mu.
func (l *numberLease) raise(now int64) {
	latest := l.scheme.Epoch().UnixMilli() + now + 1000 + numbersLead
	l.of.ceiling = max(l.of.ceiling, min(l.of.r.now().UnixMilli()+numbersLead, latest))
	l.ceiling = l.of.ceiling
}

func (l *numberLease) Worker() idgen.Worker   { return idgen.Worker{Number: 3} }
func (l *numberLease) since(unix int64) int64 { return unix - l.scheme.Epoch().UnixMilli() }
func (l *numberLease) Floor() int64           { return l.since(l.floor) }

func (l *numberLease) Ceiling() int64 {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	return l.since(l.ceiling)
}

func (l *numberLease) Extend(_ context.Context, now int64) (int64, error) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.of.holder != l {
		return 0, idgen.ErrLeaseLost
	}
	l.raise(now)
	return l.since(l.ceiling), nil
}

func (l *numberLease) Release(_ context.Context, last int64) error {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.of.holder == l {
		l.of.ceiling, l.of.holder = l.scheme.Epoch().UnixMilli()+last, nil
	}
	return nil
}

// stepScene issues ids under a policy while clocks step and holders replace each other.
type stepScene struct {
	t      *testing.T
	clock  *Clock
	r      *reference
	host   *hostClock // nil: the clock of Redis stamps
	policy idgen.Policy
	scheme idgen.Scheme
	numbers
	g       *idgen.Generator
	zombies []*idgen.Generator // had the number before

	ids      map[idgen.ID]bool
	last     idgen.Parts
	refusals int
	cause    error
}

// step sets back the clock for the timestamps of ids, and ensures that the generator sees the step.
func (s *stepScene) step(by time.Duration) {
	if s.host != nil {
		_ = s.take(s.g) // so that this very millisecond is in use
		s.host.off.Add(by.Milliseconds())
		return
	}
	s.r.step(by)
	s.issue(1600 * time.Millisecond) // until it is believed
}

// start replaces the generator. The old one continues as a zombie.
func (s *stepScene) start() {
	s.t.Helper()
	o := []idgen.Option{idgen.WithPolicy(s.policy), idgen.WithBackgroundStart()}
	if s.host != nil {
		o = append(o, idgen.WithClock(s.host), idgen.WithLeaseClock(s.clock))
	} else {
		o = append(o, idgen.WithClock(s.clock))
	}
	s.mu.Lock()
	s.newest = &claimant{&s.numbers}
	newest := s.newest
	s.mu.Unlock()
	g, err := idgen.New(s.t.Context(), s.scheme, newest, o...)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.g != nil {
		s.zombies = append(s.zombies, s.g)
	}
	s.g = g
}

// take issues one id of g, and fails the test if it was issued before.
func (s *stepScene) take(g *idgen.Generator) error {
	id, err := g.TryNext()
	if errors.Is(err, idgen.ErrSaturated) {
		id, err = g.Next()
	}
	if err != nil {
		return err
	}
	if s.ids[id] {
		s.t.Fatalf("%v was issued twice", id)
	}
	s.ids[id] = true
	s.last, err = s.scheme.Decompose(id)
	return err
}

// issue requests 20 ids every 10 ms for a time, and returns how many requests were refused.
func (s *stepScene) issue(d time.Duration) int {
	s.t.Helper()
	s.refusals = 0
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for range 20 {
			if err := s.take(s.g); err != nil {
				s.refusals++
				s.cause = err
			}
		}
		for _, g := range s.zombies {
			_ = s.take(g)
		}
	}
	return s.refusals
}

// behaviour is how a policy reacts to a step.
type behaviour int

const (
	unseen  behaviour = iota // nothing is refused, nothing counted
	counts                   // nothing is refused, the rollback is counted
	refuses                  // until the clock has caught up
)

var stepCases = []struct {
	policy idgen.Policy
	layout string
	host   map[int]behaviour // by the step in ms; the clock of Redis shows those above 250 ms only
}{
	{idgen.Monotonic(), layoutA, map[int]behaviour{2: unseen, 100: unseen, 3000: unseen, 60_000: unseen, 3600_000: unseen}},
	{idgen.WaitPolicy(5 * time.Millisecond), layoutA, map[int]behaviour{2: unseen, 100: refuses, 3000: refuses, 3600_000: refuses}},
	{idgen.Fail(), layoutB, map[int]behaviour{2: refuses, 100: refuses, 3000: refuses, 3600_000: refuses}},
	{idgen.CountPolicy(5 * time.Millisecond), "time:41,datacenter:2,worker:5,sequence:12,rollback:3", map[int]behaviour{2: unseen, 100: counts, 3000: counts, 3600_000: counts}},
	{idgen.CountPolicy(0), "time:41,datacenter:3,worker:5,rollback:2,sequence:12", map[int]behaviour{2: counts, 100: counts, 3000: counts, 3600_000: counts}},
	{idgen.RingPolicy(200), layoutA, map[int]behaviour{2: unseen, 100: unseen, 3000: unseen, 3600_000: unseen}},
}

// onSteps runs test for every policy, clock and step.
func onSteps(t *testing.T, test func(t *testing.T, s *stepScene, step time.Duration, want behaviour)) {
	for _, c := range stepCases {
		for ms, want := range c.host {
			step := time.Duration(ms) * time.Millisecond
			for _, clock := range []string{"redis", "host"} {
				want := want
				if clock == "redis" && step <= limit {
					want = unseen
				}
				t.Run(fmt.Sprintf("%s/%s/%s/%v", c.policy, c.layout, clock, step), func(t *testing.T) {
					onClock(t, func(t *testing.T, clk *Clock, r *reference) {
						r.off.Store(0)
						clk.mu.Lock()
						clk.latest.Readings = 0 // the next one is the first again
						clk.mu.Unlock()
						pass(t, clk, 1100*time.Millisecond)
						s := &stepScene{t: t, clock: clk, r: r, policy: c.policy, scheme: oldScheme(t, c.layout), ids: map[idgen.ID]bool{}}
						s.numbers.r = r
						if clock == "host" {
							s.host = new(hostClock)
						}
						defer func() {
							for _, g := range append(s.zombies, s.g) {
								_ = g.Close(context.Background())
							}
						}()
						s.start()
						test(t, s, step, want)
					})
				})
			}
		}
	}
}

// oldScheme has an epoch before the start of time in a synctest bubble.
func oldScheme(t *testing.T, layout string) idgen.Scheme {
	t.Helper()
	l, err := idgen.ParseLayout(layout)
	if err != nil {
		t.Fatal(err)
	}
	s, err := idgen.NewScheme(l, time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPoliciesOnSteps: what each policy does, for a holder that has had its number for
// longer than the step.
func TestPoliciesOnSteps(t *testing.T) {
	onSteps(t, func(t *testing.T, s *stepScene, step time.Duration, want behaviour) {
		s.issue(100 * time.Millisecond)
		time.Sleep(step + 5*time.Second)
		if n := s.issue(time.Second); n != 0 {
			t.Fatalf("%d calls refused before the step: %v", n, s.cause)
		}
		before := s.last
		s.step(-step)
		refused := s.issue(100 * time.Millisecond)
		switch want {
		case unseen:
			if refused != 0 || s.last.Rollback != 0 {
				t.Errorf("%d refused (%v), rollback %d, want none", refused, s.cause, s.last.Rollback)
			}
		case counts:
			if refused != 0 || s.last.Rollback != 1 || step > 200*time.Millisecond && !s.last.Time.Before(before.Time) {
				t.Errorf("%d refused (%v), %+v, want none, rollback 1, and a time before %v", refused, s.cause, s.last, before.Time)
			}
		case refuses:
			if refused == 0 || !errors.Is(s.cause, idgen.ErrClockBehind) {
				t.Errorf("%d refused (%v), want some, ErrClockBehind", refused, s.cause)
			}
		}
		if want == unseen { // all the way
			if n := s.issue(min(step, 70*time.Second)); n != 0 {
				t.Errorf("%d calls refused while the clock catches up: %v", n, s.cause)
			}
		}
		time.Sleep(step)
		if n := s.issue(time.Second); n != 0 {
			t.Errorf("%d calls refused after the clock has caught up: %v", n, s.cause)
		}
	})
}

// TestStepsAndTakeovers: when the clock steps before, during and after takeovers, and when it
// returns, no id is repeated, and no zombie issues ids beyond its ceiling.
func TestStepsAndTakeovers(t *testing.T) {
	onSteps(t, func(t *testing.T, s *stepScene, step time.Duration, _ behaviour) {
		s.issue(4 * time.Second)
		s.step(-step)
		s.issue(300 * time.Millisecond)
		s.start() // a takeover right after a step
		s.issue(4 * time.Second)
		if s.host != nil { // in the middle: the successor reads the clock before and after
			s.start()
			s.host.off.Add(-step.Milliseconds())
			s.issue(4 * time.Second)
			s.host.off.Add(step.Milliseconds())
			s.issue(300 * time.Millisecond)
		}
		s.step(step) // it is right again
		s.issue(4 * time.Second)
		s.start()
		s.step(-step)
		s.issue(300 * time.Millisecond)
		if err := s.g.Close(s.t.Context()); err != nil && !errors.Is(err, idgen.ErrLeaseLost) {
			t.Error(err)
		}
		s.start() // a restart in good order
		s.issue(300 * time.Millisecond)
		time.Sleep(step + 5*time.Second)
		if n := s.issue(100 * time.Millisecond); n != 0 {
			t.Errorf("%d calls refused when the clock has caught up: %v", n, s.cause)
		}
		for _, g := range s.zombies {
			if err := s.take(g); err == nil {
				t.Error("a zombie goes on issuing")
			}
		}
	})
}
