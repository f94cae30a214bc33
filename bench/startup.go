package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runStartup measures the time from starting the process to the first response
// that it decides and issues, with Redis and its registry there.
func runStartup(ctx context.Context, b *bench) error {
	const orderlyEnds = 4 // for each crash, after which a gateway waits for seconds
	g, err := b.site.startSnowgate(ctx, setup{})
	if err != nil {
		return err
	}
	// The same gateway over and over: same address, same configuration, same Redis.
	again := g.program
	var orderly, crashed startTimes
	for i := range b.rounds * (orderlyEnds + 1) {
		sig, times := syscall.SIGTERM, &orderly
		if i%(orderlyEnds+1) == orderlyEnds {
			sig, times = syscall.SIGKILL, &crashed
		}
		g.signal(sig)
		<-g.done
		dropFromCache(again.path)
		begun := time.Now()
		if g.process, err = start(again); err != nil {
			return err
		}
		b.site.running = append(b.site.running, g.process)
		since := func() float64 { return float64(time.Since(begun)) / float64(time.Millisecond) }
		if err := g.until(ctx, g.decides); err != nil {
			return err
		}
		times.decides = append(times.decides, since())
		if err := g.until(ctx, g.ready); err != nil {
			return err
		}
		times.issues = append(times.issues, since())
	}
	g.kill()
	fmt.Fprintf(os.Stderr, "  %.0f ms after an orderly end, %.0f ms after a crash\n", orderly.issues.median(), crashed.issues.median())
	b.report.startup(orderly, crashed)
	return nil
}

// startTimes are milliseconds until a gateway decides, and until it issues too.
type startTimes struct{ decides, issues series }

// dropFromCache has the kernel forget the content of a file, so that a start
// reads it from the disk. It does not work where the file system has no disk.
func dropFromCache(path string) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func (r *report) startup(orderly, crashed startTimes) {
	const most = 150
	var out strings.Builder
	fmt.Fprintf(&out, "## From start to ready\n\nMilliseconds from starting the process, its file not in memory, to the first `/readyz?for=decide` that is 200, and to the first that says it issues too; "+
		"Redis and the registry are there; %d and %d times.\n\n| its predecessor | decides, median | spread | issues, median | spread |\n|---|---:|---|---:|---|\n", len(orderly.issues), len(crashed.issues))
	for _, row := range []struct {
		what  string
		times startTimes
	}{{"ended orderly", orderly}, {"was killed, and its worker number is taken over", crashed}} {
		fmt.Fprintf(&out, "| %s | %.0f | %s | %.0f | %s |\n", row.what,
			row.times.decides.median(), row.times.decides.spread(0), row.times.issues.median(), row.times.issues.spread(0))
	}
	median := orderly.issues.median()
	r.goal("start to ready, cold, with Redis and its registry there", fmt.Sprintf("≤ %d ms", most),
		fmt.Sprintf("%.0f ms (%s)", median, orderly.issues.spread(0)), median <= most)
	r.add(section{name: "startup", text: out.String()})
}
