// Bench measures the gateway beside what a user would take instead, in one run,
// on one machine: every contestant on loopback, with the same upstream, the same
// load and a processor of its own, in turn and repeatedly. What it takes of the
// processor and of memory comes from the operating system.
//
//	go run .                        everything; the tables go to results/
//	go run . -quick                 the main figures, in less than a minute
//	go run . -run cpu,latency       some scenarios
//	go run . -quick -gateway NEW -baseline OLD
//	                                two builds of ours against one another, at the same time
//	go run . -quick -gateway NEW -baseline 'nginx + Lua + Redis'
//	                                ours against another contestant, in the same way
//
// docs/explained/performance.md explains the method. bench/install gets the programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// options are the flags.
type options struct {
	run       string
	only      string
	gateway   string
	baseline  string
	source    string
	out       string
	quick     bool
	rounds    int
	cpuRounds int // of processor time
	length    time.Duration
}

// scenario is one question; run answers it in the report.
type scenario struct {
	name string
	asks string
	run  func(context.Context, *bench) error
}

func scenarios() []scenario {
	return []scenario{
		{"cpu", "processor time per request of every contestant", runCPU},
		{"latency", "how long answers take at a fixed rate", runLatency},
		{"issue", "tokens per second of processor", runIssue},
		{"memory", "memory of Redis per token, and of the gateway", runMemory},
		{"ids", "ids per second", runIDs},
		{"posts", "processor time and memory with a body of 1 KiB in each request", runPosts},
		{"startup", "time from start to ready", runStartup},
		{"growth", "whether the cost of a request grows", runGrowth},
	}
}

// extras are run only when they are named.
func extras() []scenario {
	return []scenario{
		{"compare", "processor time per request of two that are asked at the same time", runCompare},
		{"profile", "where the time of a request goes: writes cpu.pprof to -out", runProfile},
		{"pgo", "what the compiler optimises for: writes " + gatewayProfile + " in -source", runPGO},
	}
}

// bench is one run.
type bench struct {
	options
	site   *site
	report *report
	hoard  *hoard // nil until a scenario needs it
}

func main() {
	var o options
	names := make([]string, 0, len(scenarios()))
	for _, s := range append(scenarios(), extras()...) {
		names = append(names, s.name)
	}
	flag.StringVar(&o.run, "run", "", "scenarios, separated by commas: "+strings.Join(names, ", ")+" (default: all but the last three; with -quick: cpu, or compare if there is a -baseline)")
	flag.StringVar(&o.only, "only", "", "contestants, or what growth is about, whose name contains one of these, separated by commas")
	flag.StringVar(&o.gateway, "gateway", "", "binary of snowgate to measure (default: built from this tree)")
	flag.StringVar(&o.baseline, "baseline", "", "another binary of snowgate to compare it with, or the name of a contestant")
	flag.StringVar(&o.source, "source", "..", "source tree that is built for profiles")
	flag.StringVar(&o.out, "out", "", "folder for the tables and charts (default: results; with -quick: none)")
	flag.BoolVar(&o.quick, "quick", false, "the main contestants and short rounds")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds (default: 3, and 5 for processor time; with -quick: 2)")
	flag.DurationVar(&o.length, "for", 0, "length of a measurement outside of turns, whole seconds (default: 2s; with -quick: 1s)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o.withDefaults()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // nothing else is deferred
	}
}

func (o options) withDefaults() options {
	o.cpuRounds = o.rounds
	set := func(rounds, cpuRounds int, length time.Duration, run, out string) {
		if o.rounds == 0 {
			o.rounds, o.cpuRounds = rounds, cpuRounds
		}
		if o.length == 0 {
			o.length = length
		}
		if o.run == "" {
			o.run = run
		}
		if o.out == "" {
			o.out = out
		}
	}
	switch {
	case o.quick && o.baseline != "":
		set(2, 2, time.Second, "compare", "")
	case o.quick:
		set(2, 2, time.Second, "cpu", "")
	}
	// Processes of one build differ by a tenth, for as long as they live, and no number of laps
	// makes up for that.
	set(3, 5, 2*time.Second, "all", "results")
	if o.quick && o.out == "results" {
		o.out = ""
	}
	return o
}

func run(ctx context.Context, o options) error {
	chosen, err := choose(o.run)
	if err != nil {
		return err
	}
	if err := prepareSelf(); err != nil {
		return err
	}
	s, err := openSite(ctx, o.gateway)
	if err != nil {
		return err
	}
	defer s.close()
	b := &bench{options: o, site: s, report: newReport()}
	for _, sc := range chosen {
		begun := time.Now()
		fmt.Fprintf(os.Stderr, "%s: %s\n", sc.name, sc.asks)
		if err := sc.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", sc.name, errors.Join(context.Cause(ctx), err))
		}
		fmt.Fprintf(os.Stderr, "%s took %.0f s\n\n", sc.name, time.Since(begun).Seconds())
	}
	if len(b.report.sections) == 0 {
		return nil // it was a profile
	}
	return b.report.write(o.out)
}

func choose(names string) ([]scenario, error) {
	if names == "all" {
		return scenarios(), nil
	}
	var chosen []scenario
next:
	for name := range strings.SplitSeq(names, ",") {
		for _, s := range append(scenarios(), extras()...) {
			if s.name == name {
				chosen = append(chosen, s)
				continue next
			}
		}
		return nil, fmt.Errorf("there is no scenario %q", name)
	}
	return chosen, nil
}

// prepareSelf puts this program on the load's processor and lets it open enough
// connections.
func prepareSelf() error {
	if runtime.NumCPU() < 2 {
		return errors.New("this needs two processors: one for the gateway, one for the load")
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var set unix.CPUSet
	set.Set(loadCore)
	for _, thread := range threads { // threads to come inherit it
		var id int
		if _, err := fmt.Sscan(thread.Name(), &id); err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur = files.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
}
