package main

import (
	"context"
	"fmt"
	"time"
)

// turn is how long a contestant is measured before the next one has its turn. What the
// machine does beside changes over seconds, so that long turns are under different
// conditions each.
const turn = time.Second

// settling is how long a target is asked before it is measured at a moment's notice: connections are
// made, and what it has forgotten and given back while the others had their turns is there again.
const settling = turn / 4

// turns starts the contestants, warms them up and has them take turns (A B A B …), laps of them, while the
// others are up and have nothing to do. It does so anew for each round: where the kernel
// happens to put a process in memory makes a difference, too. What follows from the same
// index of a contestant's figures was measured within seconds.
func (b *bench) turns(ctx context.Context, rounds int, list []contestant, measure func(contestant, *target) error) error {
	for range rounds {
		if err := b.round(ctx, list, measure); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) round(ctx context.Context, list []contestant, measure func(contestant, *target) error) error {
	targets := make([]*target, 0, len(list))
	defer func() {
		for _, t := range targets {
			t.end()
		}
	}()
	each := func(do func(contestant, *target) error) error {
		for i, t := range targets {
			if err := do(list[i], t); err != nil {
				return fmt.Errorf("%s: %w", list[i].name, err)
			}
		}
		return nil
	}
	for _, c := range list {
		t, err := c.start(ctx, b.site)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		targets = append(targets, t)
	}
	if err := each(func(_ contestant, t *target) error { return t.verify(ctx) }); err != nil {
		return err
	}
	if err := each(func(c contestant, t *target) error {
		_, err := t.saturate(ctx, c.http2, warmUp)
		return err
	}); err != nil {
		return err
	}
	for range b.laps() {
		if err := each(measure); err != nil {
			return err
		}
	}
	return nil
}

// laps is how many turns a contestant has in a round.
func (o options) laps() int {
	if o.quick {
		return 3
	}
	return 4
}
