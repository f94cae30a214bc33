package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// report collects what the scenarios found.
type report struct {
	begun    time.Time
	load     string // load averages at the beginning
	goals    []goal
	sections []section
}

// goal is one line of the table of goals.
type goal struct {
	what, want, got string
	met             bool
}

// section is what one scenario has to say.
type section struct {
	name   string
	text   string // Markdown
	charts map[string]string
}

func newReport() *report { return &report{begun: time.Now(), load: loadAverage()} }

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// goal adds a goal: got is at most limit, or at least if limit is a minimum.
func (r *report) goal(what, want, got string, met bool) {
	r.goals = append(r.goals, goal{what, want, got, met})
}

// atMost adds a goal that a ratio is at most limit.
func (r *report) atMost(what string, ratio series, limit float64) {
	if len(ratio) == 0 {
		return
	}
	r.goal(what, fmt.Sprintf("≤ %.2f ×", limit), fmt.Sprintf("%.2f × (%s)", ratio.median(), ratio.spread(2)), ratio.median() <= limit)
}

func (r *report) add(s section) { r.sections = append(r.sections, s) }

// text returns the whole report as Markdown.
func (r *report) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Measurements\n\nMade by `make bench`; [docs/explained/performance.md](../../docs/explained/performance.md) explains how and what they mean.\n\n")
	fmt.Fprintf(&out, "%s, %s, %d processors, Linux %s. Load averages before: %s; after: %s.\n",
		r.begun.UTC().Format("2006-01-02 15:04 UTC"), processor(), runtime.NumCPU(), kernel(), r.load, loadAverage())
	fmt.Fprintf(&out, "%s\n", strings.Join(versions(), "; "))
	if len(r.goals) > 0 {
		out.WriteString("\n## Goals\n\n| measure | goal | measured, median (quartiles) | |\n|---|---|---|---|\n")
		for _, g := range r.goals {
			verdict := "reached"
			if !g.met {
				verdict = "**missed**"
			}
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", g.what, g.want, g.got, verdict)
		}
	}
	for _, s := range r.sections {
		fmt.Fprintf(&out, "\n%s", s.text)
	}
	return out.String()
}

// write prints the report, and writes it with its charts into dir if there is
// one.
func (r *report) write(dir string) error {
	fmt.Print(r.text())
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // to be read by all
		return err
	}
	for _, s := range r.sections {
		for name, chart := range s.charts {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(chart), 0o644); err != nil { //nolint:gosec // as above
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(r.text()), 0o644) //nolint:gosec // as above
}

// cpu adds the table of runCPU, its chart and its goals.
func (r *report) cpu(list []contestant, costs map[string][]cost) {
	figures := func(name string, pick func(cost) float64) series { return of(costs[name], pick) }
	var out strings.Builder
	out.WriteString("## Processor time per request\n\n")
	fmt.Fprintf(&out, "%d connections, as fast as the answers come. Time of all processes of the gateway; Redis's own beside it. Contestants take turns of a second; ratios are medians of the ratios of each lap. The spread is from quartile to quartile.\n\n", connections)
	out.WriteString("| | µs per request | spread | × bare | × nginx | × nginx + Lua + Redis | requests/s | processor | Redis, µs | peak memory, MB | what it does beside forwarding |\n")
	out.WriteString("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---|\n")
	over := func(name, reference string) series {
		return figures(name, perRequest).over(figures(reference, perRequest))
	}
	ratio := func(name, reference string) string {
		if len(costs[reference]) == 0 {
			return "–"
		}
		return fmt.Sprintf("%.2f", over(name, reference).median())
	}
	bars := chart{title: "Processor time per request, µs"}
	for _, c := range list {
		micros := figures(c.name, perRequest)
		bars.add(c.name, micros)
		fmt.Fprintf(&out, "| %s | %.1f | %s | %s | %s | %s | %.0f | %.0f %% | %.1f | %.0f | %s |\n", c.name, micros.median(), micros.spread(1),
			ratio(c.name, bareProxy), ratio(c.name, nginxPlain), ratio(c.name, nginxLuaRedis),
			figures(c.name, func(c cost) float64 { return c.rate }).median(),
			100*figures(c.name, func(c cost) float64 { return c.busy }).median(),
			figures(c.name, func(c cost) float64 { return c.redis }).median(),
			figures(c.name, func(c cost) float64 { return c.peak }).median()/1e6, c.does)
	}
	r.atMost("processor time per validated, proxied request, to bare `ReverseProxy`", over(ours, bareProxy), 0.75)
	r.atMost("the same, to nginx + Lua + Redis", over(ours, nginxLuaRedis), 0.9)
	r.atMost("the same, aim, to bare `ReverseProxy`", over(ours, bareProxy), 0.65)
	r.atMost("the same, aim, to nginx `proxy_pass`", over(ours, nginxPlain), 1.5)
	r.atMost("with the cache off, to nginx + Lua + Redis", over(oursUncached, nginxLuaRedis), 1.0)
	if old := figures(oursBaseline, perRequest); len(old) > 0 {
		fmt.Fprintf(&out, "\nNew build to baseline: %.3f × (%s); cache off %.3f ×.\n", over(ours, oursBaseline).median(),
			over(ours, oursBaseline).spread(3), over(oursUncached, oursBaseline+", cache off").median())
	}
	out.WriteString("\n![Processor time per request](cpu.svg)\n")
	r.add(section{name: "cpu", text: out.String(), charts: map[string]string{"cpu.svg": bars.svg()}})
}
