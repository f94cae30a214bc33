package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
)

// runCompare compares ours with another build of ours or with another contestant. Both are up and asked
// at the same time, and share the gateway's processor: whatever else the machine does then disturbs
// both alike, also from one moment to the next.
func runCompare(ctx context.Context, b *bench) error {
	if b.baseline == "" {
		return errors.New("-baseline is needed")
	}
	kinds := []string{"cached", "cache off"}
	targets := make([][]*target, len(kinds))
	for k, name := range []string{ours, oursUncached} {
		for _, c := range []contestant{pick(name), b.opponent(k)} {
			t, err := c.start(ctx, b.site)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if _, err := t.saturate(ctx, false, warmUp); err != nil {
				return err
			}
			targets[k] = append(targets[k], t)
		}
	}
	const slices = 6 // for each round
	var costs [2]pair
	for range slices * b.rounds {
		for k := range kinds {
			err := costs[k].atOnce(func(i int) (float64, error) {
				c, err := targets[k][i].cost(ctx, false, turn)
				return c.perRequest, err
			})
			if err != nil {
				return err
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "## At the same time as %s\n\n| | µs | µs, baseline | to baseline, median | quartiles | least to least |\n|---|---:|---:|---:|---|---:|\n", b.baseline)
	for k, kind := range kinds {
		ratio := costs[k][0].over(costs[k][1])
		fmt.Fprintf(&out, "| %s | %.1f | %.1f | %.3f | %.3f – %.3f | %.3f |\n", kind, costs[k][0].median(), costs[k][1].median(),
			ratio.median(), ratio.quantile(0.25), ratio.quantile(0.75), costs[k][0].quantile(0)/costs[k][1].quantile(0))
	}
	b.report.add(section{name: "compare", text: out.String()})
	return nil
}

// opponent is what the kind of ours at an index is compared with: the contestant that -baseline names,
// or else the same of the build that it is the path of.
func (b *bench) opponent(kind int) contestant {
	if c, ok := named(b.baseline); ok {
		return c
	}
	return baseline(b.baseline)[kind]
}

// pair is what two targets took that were asked at the same time.
type pair [2]series

// atOnce measures both at the same time, and notes what each took.
func (p *pair) atOnce(measure func(i int) (perRequest float64, err error)) error {
	var group errgroup.Group
	for i := range p {
		group.Go(func() error {
			perRequest, err := measure(i)
			p[i] = append(p[i], perRequest)
			return err
		})
	}
	return group.Wait()
}
