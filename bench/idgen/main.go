package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"snowgate/idgen"
)

func main() {
	length := flag.Duration("for", 2*time.Second, "length of one run")
	runs := flag.Int("runs", 3, "runs per figure; the median is printed")
	counts := flag.String("goroutines", "1,1000", "numbers of goroutines, separated by commas")
	only := flag.String("only", "", "measure this generator alone")
	processes := flag.String("processes", "1,3", "numbers of processes that make system D's decimal strings, separated by commas")
	number := flag.Int64("process", 0, "for this program itself: be the process of that number")
	flag.Parse()
	if *number > 0 {
		process(*number, *length)
		return
	}
	if *only == stringsName {
		measureStrings(*processes, *runs, *length)
		return
	}

	fmt.Printf("%-14s %10s %14s %12s %8s\n", "generator", "goroutines", "ids/s", "% of limit", "cores")
	for _, g := range generators {
		if *only != "" && g.name != *only {
			continue
		}
		for text := range strings.SplitSeq(*counts, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				fmt.Fprintf(os.Stderr, "%q is not a number of goroutines\n", text)
				os.Exit(2)
			}
			measure(g, n, *runs, *length)
		}
	}
	if *only == "" || *only == "snowgate" {
		stamps(*length)
	}
	if *only == "" {
		measureStrings(*processes, *runs, *length)
	}
}

func measure(g generator, goroutines, runs int, length time.Duration) {
	rates, cores := make([]float64, runs), make([]float64, runs)
	for i := range runs {
		rates[i], cores[i] = saturate(g, goroutines, length)
	}
	slices.Sort(rates)
	slices.Sort(cores)
	share := "-"
	if g.limit > 0 {
		share = fmt.Sprintf("%.3f", 100*rates[runs/2]/g.limit)
	}
	fmt.Printf("%-14s %10d %14.0f %12s %8.3f\n", g.name, goroutines, rates[runs/2], share, cores[runs/2])
}

// saturate draws ids from many goroutines and returns ids per second and the
// processors kept busy. The first 100 ms are not counted: they use up what the
// generator has in reserve.
func saturate(g generator, goroutines int, length time.Duration) (rate, cores float64) {
	draw, stop := g.start()
	defer stop()
	const stride = 16 // a store in memory costs as much as an id
	var done atomic.Bool
	counts := make([]struct {
		n atomic.Int64
		_ [56]byte
	}, goroutines)
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			for n := int64(0); !done.Load(); n += stride {
				counts[i].n.Store(n)
				draw(stride)
			}
		})
	}
	total := func() (sum int64) {
		for i := range counts {
			sum += counts[i].n.Load()
		}
		return sum
	}
	time.Sleep(100 * time.Millisecond)
	ids, cpu, began := total(), processorTime(), time.Now()
	time.Sleep(length)
	ids, cpu, took := total()-ids, processorTime()-cpu, time.Since(began)
	done.Store(true)
	wg.Wait()
	return float64(ids) / took.Seconds(), cpu.Seconds() / took.Seconds()
}

// processorTime is what this process has used so far, in user and system mode.
func processorTime() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stamps prints how far the stamps of saturated snowgate ids are off the clock.
func stamps(length time.Duration) {
	g := newSnowgate(idgen.LayoutDefault)
	defer func() { must(g.Close(context.Background())) }()
	var offsets []time.Duration
	for began := time.Now(); time.Since(began) < length; {
		for range 499 {
			_, err := g.Next()
			must(err)
		}
		id, err := g.Next()
		must(err)
		offsets = append(offsets, time.Since(g.Scheme().Time(id)))
	}
	slices.Sort(offsets)
	at := func(q float64) time.Duration { return offsets[int(q*float64(len(offsets)-1))].Round(time.Microsecond) }
	fmt.Printf("snowgate: age of stamps at saturation (negative: ahead): least %v, median %v, 99.9%% %v, most %v\n",
		at(0), at(.5), at(.999), at(1))
}
