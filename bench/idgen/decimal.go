package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"snowgate/idgen"
)

// The figure of system D, one host and many processes: ids as decimal strings, from one process
// and from three at once. The original gives about three million ids per second over three
// processes, and a million in 600 ms in one.

const (
	stringsName = "system-D"
	// processLimit is what the layout of system D allows to one process, in ids per second.
	processLimit = 4_096_000
	// turn is how many ids are made between two looks at the clock.
	turn = 1000
)

// measureStrings prints a row for each number of processes: the medians of runs.
func measureStrings(counts string, runs int, length time.Duration) {
	fmt.Printf("\n%-14s %10s %14s %12s %8s %16s\n", "as strings", "processes", "ids/s", "% of limit", "cores", "a million in")
	for text := range strings.SplitSeq(counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 32 {
			fmt.Fprintf(os.Stderr, "%q is not a number of processes from 1 to 32\n", text)
			os.Exit(2)
		}
		rates, cores := make([]float64, runs), make([]float64, runs)
		for i := range runs {
			rates[i], cores[i] = together(n, length)
		}
		slices.Sort(rates)
		slices.Sort(cores)
		rate := rates[runs/2]
		million := time.Duration(1e6 / rate * float64(time.Second)).Round(time.Millisecond)
		fmt.Printf("%-14s %10d %14.0f %12.3f %8.3f %16v\n", stringsName, n, rate, 100*rate/float64(n*processLimit), cores[runs/2], million)
	}
}

// together runs n processes at once, under the process numbers 1 to n of machine 1, and returns the
// sums of their ids per second and of the processors they kept busy. All begin when the last one
// is ready.
func together(n int, length time.Duration) (rate, cores float64) {
	type child struct {
		cmd    *exec.Cmd
		start  interface{ Close() error }
		output *bufio.Scanner
	}
	children := make([]child, n)
	for i := range children {
		self, err := os.Executable()
		must(err)
		cmd := exec.Command(self, "-process", strconv.Itoa(i+1), "-for", length.String())
		cmd.Stderr = os.Stderr
		start, err := cmd.StdinPipe()
		must(err)
		output, err := cmd.StdoutPipe()
		must(err)
		must(cmd.Start())
		children[i] = child{cmd, start, bufio.NewScanner(output)}
	}
	for _, c := range children {
		if !c.output.Scan() || c.output.Text() != "ready" {
			must(fmt.Errorf("a process said %q", c.output.Text()))
		}
	}
	for _, c := range children {
		must(c.start.Close())
	}
	for _, c := range children {
		var r, p float64
		if !c.output.Scan() {
			must(fmt.Errorf("a process said nothing"))
		}
		_, err := fmt.Sscan(c.output.Text(), &r, &p)
		must(err)
		must(c.cmd.Wait())
		rate, cores = rate+r, cores+p
	}
	return rate, cores
}

// process is one of them. It says that it is ready, begins at the end of its input, and says how
// many ids per second it made as strings and how many processors that took. The first 100 ms are
// not counted: they use up what the generator has in reserve.
func process(number int64, length time.Duration) {
	s, err := idgen.NewScheme(idgen.LayoutD, epoch)
	must(err)
	g, err := idgen.New(context.Background(), s, idgen.Fixed(idgen.Worker{Datacenter: 1, Number: number}),
		idgen.WithPolicy(idgen.CountPolicy(0)), idgen.WithMaxWait(time.Second))
	must(err)
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
	draw(g, 100*time.Millisecond)
	cpu, began := processorTime(), time.Now()
	ids := draw(g, length)
	took := time.Since(began).Seconds()
	fmt.Println(float64(ids)/took, (processorTime()-cpu).Seconds()/took)
	must(g.Close(context.Background()))
}

// kept keeps the last string, so that none is left out.
var kept string

// draw makes ids as decimal strings for as long as told, and returns how many.
func draw(g *idgen.Generator, length time.Duration) (ids int) {
	for began := time.Now(); time.Since(began) < length; ids += turn {
		for range turn {
			id, err := g.Next()
			must(err)
			kept = id.Decimal()
		}
	}
	return ids
}
