package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// postSize is the body of each request of runPosts, in bytes.
const postSize = 1 << 10

// Goals of runPosts.
const (
	mostPostToNginx = 2.1
	mostPostMemory  = 45e6 // bytes, under load
)

// runPosts measures processor time per request and memory with a small body in each request: ours
// beside nginx, and beside another build of ours if there is a -baseline.
func runPosts(ctx context.Context, b *bench) error {
	list := []contestant{pick(ours), pick(nginxPlain)}
	if _, inList := named(b.baseline); b.baseline != "" && !inList {
		list = append(list, baseline(b.baseline)[0])
	}
	costs := make(map[string][]cost)
	resident := make(map[string]series)
	err := b.turns(ctx, b.cpuRounds, list, func(c contestant, t *target) error {
		measured, err := t.postCost(ctx)
		if err != nil {
			return err
		}
		used, err := measure(t.gateway)
		costs[c.name] = append(costs[c.name], measured)
		resident[c.name] = append(resident[c.name], float64(used.now))
		fmt.Fprintf(os.Stderr, "  %3d %-31s %6.1f µs  %6.0f/s  %6.1f MB\n",
			len(costs[c.name]), c.name, measured.perRequest, measured.rate, float64(used.now)/1e6)
		return err
	})
	if err != nil {
		return err
	}
	b.report.posts(list, costs, resident)
	return nil
}

// postCost has wrk post as much as the target takes, for a turn.
func (t *target) postCost(ctx context.Context) (cost, error) {
	var requests int64
	arguments := append(t.wrk("1"), "post", strconv.Itoa(postSize))
	span, err := t.span(func() (err error) {
		requests, err = runTool(ctx, "wrk", parseWrk, arguments...)
		return err
	})
	return span.cost(max(requests, 1)), err
}

// posts adds the table of runPosts and its goals.
func (r *report) posts(list []contestant, all map[string][]cost, resident map[string]series) {
	perRequest := func(c cost) float64 { return c.perRequest }
	var out strings.Builder
	fmt.Fprintf(&out, "## Requests with a body of %d bytes\n\n| contestant | µs of processor per request | to nginx, median (quartiles) | resident under load, MB |\n|---|---:|---:|---:|\n", postSize)
	nginx := of(all[nginxPlain], perRequest)
	for _, c := range list {
		took := of(all[c.name], perRequest)
		ratio := took.over(nginx)
		fmt.Fprintf(&out, "| %s | %.1f | %.2f (%s) | %.1f |\n", c.name, took.median(), ratio.median(), ratio.spread(2), resident[c.name].median()/1e6)
	}
	r.atMost(fmt.Sprintf("processor time of a POST of %d bytes, to nginx", postSize), of(all[ours], perRequest).over(nginx), mostPostToNginx)
	most := resident[ours].median()
	r.goal("resident memory under that load", fmt.Sprintf("≤ %.0f MB", mostPostMemory/1e6), fmt.Sprintf("%.1f MB", most/1e6), most <= mostPostMemory)
	r.add(section{name: "posts", text: out.String()})
}
