// Skipped reads what "go test -json" prints, shows what "go test" would show of it, and says at the
// end in one line which tests were skipped and what has to be installed for them. It exits with 1 if
// a test or a build has failed.
//
//	go test -json ./... | go run ./integration/skipped
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if failed := run(os.Stdin, os.Stdout); failed {
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// report is what is known of the tests so far.
type report struct {
	out     io.Writer
	output  map[[2]string]*strings.Builder // by package and test, of those that have not ended
	skips   map[string]int                 // by reason
	chosen  int                            // skipped for a reason that nothing can be installed for
	failed  bool
	skipped int
}

// run reports on the events of in, and returns whether anything has failed.
func run(in io.Reader, out io.Writer) (failed bool) {
	r := &report{out: out, output: make(map[[2]string]*strings.Builder), skips: make(map[string]int)}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
			r.take(e)
		} else if line != "" { // of the go command itself
			fmt.Fprint(out, line)
		}
		if err != nil {
			break
		}
	}
	if text := r.summary(); text != "" {
		fmt.Fprintln(out, text)
	}
	return r.failed
}

func (r *report) take(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "build-fail":
		r.failed = true
	case "output":
		if r.output[key] == nil {
			r.output[key] = new(strings.Builder)
		}
		r.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		said := r.said(key)
		r.failed = r.failed || e.Action == "fail"
		switch {
		case e.Test == "" && e.Action == "fail", e.Test != "" && e.Action == "fail":
			fmt.Fprint(r.out, said)
		case e.Test == "":
			fmt.Fprint(r.out, lastLine(said))
		case e.Action == "skip":
			r.skip(said)
		}
	}
}

// said returns the output of a test or package that has ended.
func (r *report) said(key [2]string) string {
	defer delete(r.output, key)
	if b := r.output[key]; b != nil {
		return b.String()
	}
	return ""
}

// lastLine is the only one that go test shows of a package that passes.
func lastLine(text string) string {
	text = strings.TrimSuffix(text, "\n")
	return text[strings.LastIndex(text, "\n")+1:] + "\n"
}

// notTested matches the message of a test that was skipped because something is missing on this
// machine, and captures what. The text behind a colon comes from the system and differs from case
// to case.
var notTested = regexp.MustCompile(`SKIPPED, NOT TESTED: ([^\n:]*(: apt-get [^\n]*)?)`)

func (r *report) skip(said string) {
	r.skipped++
	if match := notTested.FindStringSubmatch(said); match != nil {
		r.skips[match[1]]++
		return
	}
	r.chosen++
}

// summary says what was skipped, in one line; nothing if there was nothing.
func (r *report) summary() string {
	if r.skipped == 0 {
		return ""
	}
	reasons := make([]string, 0, len(r.skips)+1)
	for reason := range r.skips {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int { return cmp.Or(cmp.Compare(r.skips[b], r.skips[a]), cmp.Compare(a, b)) })
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d because %s", r.skips[reason], reason)
	}
	if r.chosen > 0 {
		reasons = append(reasons, fmt.Sprintf("%d that run on request only, or cannot run this way", r.chosen))
	}
	return fmt.Sprintf("skipped %d tests: %s", r.skipped, strings.Join(reasons, "; "))
}
