package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"snowgate/bench/load"
)

// latencyLoad is the load of the latency scenario, as a share of what snowgate
// can do at most.
const latencyLoad = 0.6

// delays are percentiles of one turn, in microseconds.
// cost is processor time of the contestant per request, warm-up included: beside a load
// that leaves time between requests, going to sleep and waking up are part of it. busy is the
// share of the time in which the load's processor had something to do: where it has no time left,
// the latency is as much its own.
type delays struct{ p50, p90, p99, p999, most, cost, busy float64 }

// runLatency measures how long responses take at a rate which is the same for all contestants
// in a lap. What snowgate can do at most is measured anew in each lap: it is half as much a minute
// later if the host has become busy, and a rate for all laps would be more than 60 % of it then.
func runLatency(ctx context.Context, b *bench) error {
	busy := pick(nginxPlain)
	busy.name = nginxBusy
	list := []contestant{pick(ours), pick(nginxPlain), pick(oursUncached), busy, pick(nginxLuaRedis), pick(floorProxy), pick(bareProxy), {name: "upstream directly", start: directTarget}}
	all := make(map[string][]delays)
	var did rates
	stolen, begun := stolenTime(), time.Now()
	var rate float64
	err := b.turns(ctx, b.rounds, list, func(c contestant, t *target) error {
		asked := rate
		switch c.name {
		case ours, nginxBusy:
			most, err := t.cost(ctx, false, turn)
			if err != nil {
				return err
			}
			asked = latencyLoad * most.rate
			if c.name == ours {
				rate = asked
				did.asked = append(did.asked, rate)
			} else {
				did.nginx = append(did.nginx, asked)
			}
		}
		d, err := t.delays(ctx, asked)
		all[c.name] = append(all[c.name], d)
		fmt.Fprintf(os.Stderr, "  %3d %-31s %6.0f/s  p50 %5.0f µs  p99 %6.0f µs\n", len(all[c.name]), c.name, asked, d.p50, d.p99)
		return err
	})
	if err != nil {
		return err
	}
	did.stolen = (stolenTime() - stolen).Seconds() / time.Since(begun).Seconds()
	b.report.latency(list, all, did)
	return nil
}

// pick returns the contestant of that name.
func pick(name string) contestant {
	c, ok := named(name)
	if !ok {
		panic("there is no contestant " + name)
	}
	return c
}

// nginxBusy is nginx as busy as snowgate is, which is at a higher rate.
const nginxBusy = "nginx, at the same share of its own peak"

// rates says what was asked of the contestants, in requests per second, and what share of
// the time the gateway's processor was not there: the host had given it to others.
type rates struct {
	asked, nginx series // in each lap
	stolen       float64
}

// directTarget is the upstream with nothing in front of it: what the load
// generator and the machine add to every figure.
func directTarget(_ context.Context, s *site) (*target, error) {
	known, err := s.bearers(strangers())
	return &target{url: "http://" + s.upstream + "/orders", bearers: known}, err
}

// delays asks the target at a rate, for a moment longer than what is measured.
func (t *target) delays(ctx context.Context, rate float64) (delays, error) {
	plan, err := t.plan(turn)
	if err != nil {
		return delays{}, err
	}
	plan.Rate, plan.WarmUp = rate, settling
	var result load.Result
	idle := loadIdleTime()
	span, err := t.span(func() (err error) {
		result, err = load.Run(ctx, plan)
		return err
	})
	if err != nil {
		return delays{}, err
	}
	busy := 1 - (loadIdleTime()-idle).Seconds()/span.wall.Seconds()
	requests := rate * (settling + turn).Seconds()
	at := func(percentile float64) float64 {
		return microseconds(time.Duration(result.Latency.ValueAtQuantile(percentile)))
	}
	return delays{at(50), at(90), at(99), at(99.9), at(100), microseconds(span.gateway.cpu) / requests, busy}, nil
}

// latency adds the table of runLatency, its chart and its goal.
func (r *report) latency(list []contestant, all map[string][]delays, did rates) {
	figures := func(name string, pick func(delays) float64) series { return of(all[name], pick) }
	p99 := func(d delays) float64 { return d.p99 }
	var out strings.Builder
	fmt.Fprintf(&out, "## Latency at a fixed rate\n\nRequests on %d connections, evenly spaced, at %.0f %% of what snowgate could do at most just before: %.0f (%s) per second; for nginx also at %.0f %% of its own peak: %.0f (%s). "+
		"Microseconds from the instant at which a request was due, whether it could be sent then or not; medians over %d turns of a second. "+
		"Then processor time per request at that rate, and how busy the processor was that load and upstream share: where it has no time left, the tail is as much its own. "+
		"For %.1f %% of the time the host had given the gateway's processor to others; that is in every tail, and more so the busier a contestant is.\n\n"+
		"| | p50 | p90 | p99 | spread of p99 | p99.9 | largest | µs per request | load's processor |\n|---|---:|---:|---:|---|---:|---:|---:|---:|\n",
		connections, 100*latencyLoad, did.asked.median(), did.asked.spread(0), 100*latencyLoad, did.nginx.median(), did.nginx.spread(0), len(all[ours]), 100*did.stolen)
	bars := chart{title: fmt.Sprintf("p99 latency in µs at about %.0f requests/s", did.asked.median())}
	for _, c := range list {
		fmt.Fprintf(&out, "| %s | %.0f | %.0f | %.0f | %s | %.0f | %.0f | %.1f | %.0f %% |\n", c.name,
			figures(c.name, func(d delays) float64 { return d.p50 }).median(), figures(c.name, func(d delays) float64 { return d.p90 }).median(),
			figures(c.name, p99).median(), figures(c.name, p99).spread(0), figures(c.name, func(d delays) float64 { return d.p999 }).median(),
			figures(c.name, func(d delays) float64 { return d.most }).median(), figures(c.name, func(d delays) float64 { return d.cost }).median(),
			100*figures(c.name, func(d delays) float64 { return d.busy }).median())
		bars.add(c.name, figures(c.name, p99))
	}
	r.atMost(fmt.Sprintf("p99 latency at %.0f %% of its own peak load, to nginx at the same rate", 100*latencyLoad),
		figures(ours, p99).over(figures(nginxPlain, p99)), 1.5)
	r.add(section{name: "latency", text: out.String() + "\n![p99 latency](latency.svg)\n", charts: map[string]string{"latency.svg": bars.svg()}})
}
