package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// runIDs has bench/idgen, a program of its own, measure the generator.
func runIDs(ctx context.Context, b *bench) error {
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-only", "snowgate", "-runs", strconv.Itoa(b.rounds), "-goroutines", "1", "-for", b.length.String())
	cmd.Dir = "idgen"
	cmd.Stderr = os.Stderr
	var output strings.Builder
	cmd.Stdout = &output
	if err := startOn(gatewayCore, cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	for line := range strings.Lines(output.String()) {
		fields := strings.Fields(line)
		const columns = 5 // generator, goroutines, ids/s, % of limit, cores
		if len(fields) != columns || fields[0] != ours {
			continue
		}
		share, err1 := strconv.ParseFloat(fields[3], 64)
		cores, err2 := strconv.ParseFloat(fields[4], 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("not understood: %q", line)
		}
		b.report.ids(fields[2], share, cores)
		return nil
	}
	return fmt.Errorf("no figures in %q", output.String())
}

func (r *report) ids(perSecond string, share, cores float64) {
	const leastShare, mostCores = 99.9, 0.25
	r.goal("ids per second on one worker, default layout", fmt.Sprintf("≥ %.1f %% of 4 096 000, < %.2f of a processor while waiting", leastShare, mostCores),
		fmt.Sprintf("%s (%.2f %%) with %.2f of a processor", perSecond, share, cores), share >= leastShare && cores < mostCores)
	r.add(section{name: "ids", text: fmt.Sprintf("## Ids\n\n%s ids per second from one goroutine: %.2f %% of what the layout holds, with %.2f of a processor. "+
		"`make bench-ids` compares with other generators.\n", perSecond, share, cores)})
}
