package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"snowgate/bench/load"
)

// latencyLoad is the load of the latency scenario, as a share of what snowgate
// can do at most.
const latencyLoad = 0.6

// delays are percentiles of one round, in microseconds.
// cost is processor time of the contestant per request, warm-up included: beside a load
// that leaves time between requests, going to sleep and waking up are part of it.
type delays struct{ p50, p90, p99, p999, most, cost float64 }

// runLatency measures how long answers take at a fixed rate, which is the same
// for all contestants.
func runLatency(ctx context.Context, b *bench) error {
	list := slices.DeleteFunc(contestants(), func(c contestant) bool {
		return !slices.Contains([]string{ours, oursUncached, bareProxy, nginxPlain, nginxLuaRedis}, c.name)
	})
	peak, err := b.peak(ctx, list[0])
	if err != nil {
		return err
	}
	nginx := contestant{name: nginxPlain, start: nginxTarget("http", "PORT")}
	nginxPeak, err := b.peak(ctx, nginx)
	if err != nil {
		return err
	}
	nginx.name = nginxBusy
	rate := latencyLoad * peak
	list = append([]contestant{{name: "upstream directly", does: "nothing", start: directTarget}}, append(list, nginx)...)
	all := make(map[string][]delays)
	stolen, begun := stolenTime(), time.Now()
	for round := range b.rounds {
		for _, c := range list {
			asked := rate
			if c.name == nginxBusy {
				asked = latencyLoad * nginxPeak
			}
			d, err := b.measureDelays(ctx, c, asked)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			all[c.name] = append(all[c.name], d)
			fmt.Fprintf(os.Stderr, "  %d/%d %-31s p50 %5.0f µs  p99 %6.0f µs\n", round+1, b.rounds, c.name, d.p50, d.p99)
		}
	}
	missing := (stolenTime() - stolen).Seconds() / time.Since(begun).Seconds()
	b.report.latency(list, all, rates{peak: peak, asked: rate, nginxPeak: nginxPeak, stolen: missing})
	return nil
}

// nginxBusy is nginx as busy as snowgate is, which is at a higher rate.
const nginxBusy = "nginx, at the same share of its own peak"

// rates says what was asked of the contestants, in requests per second, and what share of
// the time the gateway's processor was not there: the host had given it to others.
type rates struct{ peak, asked, nginxPeak, stolen float64 }

// directTarget is the upstream with nothing in front of it: what the load
// generator and the machine add to every figure.
func directTarget(_ context.Context, s *site) (*target, error) {
	known, err := s.bearers(strangers())
	return &target{url: "http://" + s.upstream + "/orders", bearers: known}, err
}

// peak returns how many requests per second the contestant answers at most, the
// median of three short runs.
func (b *bench) peak(ctx context.Context, c contestant) (float64, error) {
	var rates series
	for range 3 {
		measured, err := b.measureCost(ctx, c)
		if err != nil {
			return 0, err
		}
		rates = append(rates, measured.rate)
	}
	return rates.median(), nil
}

func (b *bench) measureDelays(ctx context.Context, c contestant, rate float64) (delays, error) {
	t, err := c.start(ctx, b.site)
	if err != nil {
		return delays{}, err
	}
	defer t.end()
	if err := t.verify(ctx); err != nil {
		return delays{}, err
	}
	host := strings.TrimSuffix(strings.TrimPrefix(t.url, "http://"), "/orders")
	asked := inTurn(host, t.tokens, []string{"/orders"})
	var result load.Result
	span, err := t.span(func() error {
		result, err = load.Run(ctx, load.Plan{
			Address: host, Connections: connections, Rate: rate, WarmUp: warmUp, Length: b.length,
			Request: asked,
		})
		return err
	})
	if err != nil {
		return delays{}, err
	}
	requests := rate * (warmUp + b.length).Seconds()
	at := func(percentile float64) float64 {
		return microseconds(time.Duration(result.Latency.ValueAtQuantile(percentile)))
	}
	return delays{at(50), at(90), at(99), at(99.9), at(100), microseconds(span.gateway.cpu) / requests}, nil
}

// latency adds the table of runLatency, its chart and its goal.
func (r *report) latency(list []contestant, all map[string][]delays, did rates) {
	figures := func(name string, pick func(delays) float64) series { return of(all[name], pick) }
	p99 := func(d delays) float64 { return d.p99 }
	var out strings.Builder
	fmt.Fprintf(&out, "## Latency at a fixed rate\n\n%.0f requests per second on %d connections, evenly spaced: %.0f %% of snowgate's peak of %.0f; nginx's own is %.0f. "+
		"Microseconds from the instant at which a request was due, whether it could be sent then or not; medians over the rounds. "+
		"The last column is processor time per request at that rate. "+
		"For %.1f %% of the time the host had given the gateway's processor to others; that is in every tail, and more so the busier a contestant is.\n\n"+
		"| | p50 | p90 | p99 | spread of p99 | p99.9 | largest | µs per request |\n|---|---:|---:|---:|---|---:|---:|---:|\n",
		did.asked, connections, 100*latencyLoad, did.peak, did.nginxPeak, 100*did.stolen)
	bars := chart{title: fmt.Sprintf("p99 latency in µs at %.0f requests/s", did.asked)}
	for _, c := range list {
		fmt.Fprintf(&out, "| %s | %.0f | %.0f | %.0f | %s | %.0f | %.0f | %.1f |\n", c.name,
			figures(c.name, func(d delays) float64 { return d.p50 }).median(), figures(c.name, func(d delays) float64 { return d.p90 }).median(),
			figures(c.name, p99).median(), figures(c.name, p99).spread(0), figures(c.name, func(d delays) float64 { return d.p999 }).median(),
			figures(c.name, func(d delays) float64 { return d.most }).median(), figures(c.name, func(d delays) float64 { return d.cost }).median())
		bars.add(c.name, figures(c.name, p99))
	}
	r.atMost(fmt.Sprintf("p99 latency at %.0f %% of its own peak load, to nginx at the same rate", 100*latencyLoad),
		figures(ours, p99).over(figures(nginxPlain, p99)), 1.5)
	r.add(section{name: "latency", text: out.String() + "\n![p99 latency](latency.svg)\n", charts: map[string]string{"latency.svg": bars.svg()}})
}
