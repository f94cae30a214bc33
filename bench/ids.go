package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/idgen/redislease"
)

// saturated is what the generator delivers when that many goroutines want all that it can make.
type saturated struct {
	goroutines   string
	perSecond    string
	share, cores float64 // percentage of what the layout holds, and processors kept busy
}

// runIDs has bench/idgen, a program of its own, measure the generator, and then measures what it
// takes to get a worker number when hardly any is left.
func runIDs(ctx context.Context, b *bench) error {
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-only", "snowgate", "-runs", strconv.Itoa(b.rounds), "-goroutines", "1,1000", "-for", b.length.String())
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
	rows, err := readSaturated(output.String())
	if err != nil {
		return err
	}
	at, err := b.measureAcquisitions(ctx)
	if err != nil {
		return err
	}
	b.report.ids(rows, at)
	return nil
}

// readSaturated reads what bench/idgen prints.
func readSaturated(output string) (rows []saturated, err error) {
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		const columns = 5 // generator, goroutines, ids/s, % of limit, cores
		if len(fields) != columns || fields[0] != ours {
			continue
		}
		share, err1 := strconv.ParseFloat(fields[3], 64)
		cores, err2 := strconv.ParseFloat(fields[4], 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("not understood: %q", line)
		}
		rows = append(rows, saturated{fields[1], fields[2], share, cores})
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no figures in %q", output)
	}
	return rows, nil
}

// acquisitions are how long it took to get a worker number, in µs, by how many were taken.
type acquisitions struct{ none, most series }

// workers is how many numbers the default layout has.
const workers = 1024

// measureAcquisitions takes a number and gives it back, over and over: at first with no other number
// taken, then with all others taken.
func (b *bench) measureAcquisitions(ctx context.Context) (found acquisitions, err error) {
	process, at, err := b.site.startRedis(ctx)
	if err != nil {
		return found, err
	}
	defer process.kill()
	client := redis.NewClient(&redis.Options{Addr: at})
	defer client.Close()
	scheme, err := idgen.NewScheme(idgen.LayoutDefault, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		return found, err
	}
	take := func(address string) (idgen.Lease, error) {
		// A short lead, because a new registry waits for that long.
		o := redislease.Options{Address: address, Lead: 200 * time.Millisecond, Skew: 100 * time.Millisecond}
		source, err := redislease.New(client, redislease.Any(), o)
		if err != nil {
			return nil, err
		}
		return source.Acquire(ctx, scheme, scheme.Since(time.Now()))
	}
	again := func() (times series, err error) {
		for range 50 * b.rounds {
			begun := time.Now()
			lease, err := take("again:1")
			if err != nil {
				return nil, err
			}
			times = append(times, float64(time.Since(begun).Nanoseconds())/1000)
			if err := lease.Release(ctx, scheme.Since(time.Now())-1); err != nil {
				return nil, err
			}
			time.Sleep(2 * time.Millisecond) // the stamp of the release has passed then
		}
		return times, nil
	}
	if found.none, err = again(); err != nil {
		return found, err
	}
	for i := range workers - 1 {
		if _, err := take(fmt.Sprintf("other:%d", i)); err != nil {
			return found, err
		}
	}
	found.most, err = again()
	return found, err
}

func (r *report) ids(rows []saturated, at acquisitions) {
	const leastShare, mostCores = 99.9, 0.25
	var out strings.Builder
	out.WriteString("## Ids\n\nOne generator with the default layout, asked for as many ids as it can make. " +
		"`make bench-ids` compares with other generators.\n\n| goroutines | ids/s | of what the layout holds | processor |\n|---:|---:|---:|---:|\n")
	for _, row := range rows {
		fmt.Fprintf(&out, "| %s | %s | %.2f %% | %.2f |\n", row.goroutines, row.perSecond, row.share, row.cores)
	}
	first := rows[0]
	r.goal("ids per second on one worker, default layout", fmt.Sprintf("≥ %.1f %% of 4 096 000, < %.2f of a processor while waiting", leastShare, mostCores),
		fmt.Sprintf("%s (%.2f %%) with %.2f of a processor", first.perSecond, first.share, first.cores), first.share >= leastShare && first.cores < mostCores)
	fmt.Fprintf(&out, "\nTo get a worker number (`WORKER_ID=lease`) is one round trip to Redis:\n\n"+
		"| numbers taken by others | µs, median | spread | times |\n|---|---:|---|---:|\n")
	for _, row := range []struct {
		what  string
		times series
	}{{"none", at.none}, {fmt.Sprintf("%d of %d", workers-1, workers), at.most}} {
		fmt.Fprintf(&out, "| %s | %.0f | %s | %d |\n", row.what, row.times.median(), row.times.spread(0), len(row.times))
	}
	r.add(section{name: "ids", text: out.String()})
}
