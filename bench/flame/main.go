// Flame draws a processor profile as a flame graph: one SVG that needs nothing
// else, so that it can be looked at in the repository. The width of a box is the
// share of the time in which its function was on the stack, callers below
// callees; a box's text is there when one points at it.
//
//	go run ./flame cpu.pprof >cpu.svg
//
// `go tool pprof -http` draws better ones, but only in a browser of one's own, and
// its -svg is a call graph that needs Graphviz.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"html"
	"io"
	"log"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// Measures of the drawing, in pixels.
const (
	width     = 1200
	rowHeight = 16
	header    = 48
	letter    = 6.2 // average width at the font size used
	smallest  = 0.4 // narrower boxes are left out
)

// frame is a function on the stack, with everything that it called.
type frame struct {
	name    string
	samples int64
	callees map[string]*frame
}

func main() {
	title := flag.String("title", "Where the processor's time goes", "what the picture shows")
	log.SetFlags(0)
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: flame [-title TEXT] PROFILE >SVG")
	}
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	parsed, err := profile.Parse(file)
	if err != nil {
		log.Fatal(err) //nolint:gocritic // the process ends
	}
	draw(os.Stdout, *title, stacks(parsed))
}

// stacks merges all samples into one tree.
func stacks(p *profile.Profile) *frame {
	root := &frame{name: "all", callees: map[string]*frame{}}
	for _, sample := range p.Sample {
		at := root
		at.samples += sample.Value[0]
		for _, location := range slices.Backward(sample.Location) {
			for _, line := range slices.Backward(location.Line) { // inlined calls, innermost first
				at = at.callee(line.Function.Name)
				at.samples += sample.Value[0]
			}
		}
	}
	return root
}

func (f *frame) callee(name string) *frame {
	next, ok := f.callees[name]
	if !ok {
		next = &frame{name: name, callees: map[string]*frame{}}
		f.callees[name] = next
	}
	return next
}

// depth returns the height of the tree in rows, without boxes that are left out.
func (f *frame) depth(total int64) int {
	deepest := 0
	for _, callee := range f.callees {
		if pixels(callee.samples, total) >= smallest {
			deepest = max(deepest, callee.depth(total))
		}
	}
	return deepest + 1
}

func pixels(samples, total int64) float64 { return width * float64(samples) / float64(total) }

func draw(w io.Writer, title string, root *frame) {
	rows := root.depth(root.samples)
	height := header + rows*rowHeight + 4
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height, width, height)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="#fff"/><text x="6" y="18" font-size="15">%s</text>`+"\n", html.EscapeString(title))
	x := 6
	for _, k := range kinds {
		fmt.Fprintf(w, `<rect x="%d" y="26" width="12" height="12" fill="%s"/><text x="%d" y="36">%s</text>`+"\n", x, k.colour, x+16, k.name)
		x += 28 + int(letter*float64(len(k.name)))
	}
	root.draw(w, 0, height-rowHeight-2, root.samples)
	fmt.Fprintln(w, "</svg>")
}

// draw draws the box of f at x, y and what it called above it, in the order of
// the names, so that two pictures can be compared.
func (f *frame) draw(w io.Writer, x float64, y int, total int64) {
	wide := pixels(f.samples, total)
	if wide < smallest {
		return
	}
	share := 100 * float64(f.samples) / float64(total)
	fmt.Fprintf(w, `<g><title>%s: %.1f %%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`,
		html.EscapeString(f.name), share, x, y, max(wide-0.3, 0.2), rowHeight-1, kindOf(f.name).colour)
	if letters := int(wide/letter) - 1; letters >= 3 {
		fmt.Fprintf(w, `<text x="%.1f" y="%d">%s</text>`, x+2, y+rowHeight-4, html.EscapeString(shorten(f.name, letters)))
	}
	fmt.Fprintln(w, "</g>")
	for _, callee := range slices.SortedFunc(values(f.callees), func(a, b *frame) int { return cmp.Compare(a.name, b.name) }) {
		callee.draw(w, x, y-rowHeight, total)
		x += pixels(callee.samples, total)
	}
}

func values(m map[string]*frame) func(func(*frame) bool) {
	return func(yield func(*frame) bool) {
		for _, f := range m {
			if !yield(f) {
				return
			}
		}
	}
}

// shorten leaves the path of the package out, and what does not fit.
func shorten(name string, letters int) string {
	short := name[strings.LastIndexByte(name, '/')+1:]
	if len(short) > letters {
		short = short[:letters]
	}
	return short
}

// kind is a group of functions with a colour of its own.
type kind struct {
	name, colour string
	prefixes     []string
}

// kinds is in the order in which they are asked.
var kinds = []kind{
	{"snowgate", "#f2a65a", []string{"snowgate", "main."}},
	{"system calls", "#c9ada7", []string{"syscall.", "internal/runtime/syscall", "runtime/internal/syscall", "internal/poll.", "os.(*File)"}},
	{"net/http", "#8ecae6", []string{"net/http", "net.", "net/textproto", "bufio.", "vendor/golang.org/x/net"}},
	{"runtime: memory", "#e5989b", []string{"runtime.malloc", "runtime.newobject", "runtime.gc", "runtime.scan", "runtime.bgsweep", "runtime.makeslice", "runtime.growslice", "runtime.(*m"}},
	{"runtime", "#d8e2dc", []string{"runtime.", "internal/runtime", "sync", "internal/sync", "time.", "context."}},
	{"log and metrics", "#b5c99a", []string{"github.com/rs/zerolog", "github.com/prometheus"}},
	{"Redis", "#cdb4db", []string{"github.com/redis"}},
	{"other", "#eee3b0", []string{""}},
}

func kindOf(name string) kind {
	i := slices.IndexFunc(kinds, func(k kind) bool {
		return slices.ContainsFunc(k.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return kinds[i] // the last one fits all
}
