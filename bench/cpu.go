package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"snowgate/bench/load"
)

// warmUp is how long a contestant is under load before it is measured.
const warmUp = time.Second

// cost is what one contestant took in one round.
type cost struct {
	perRequest float64 // µs of the gateway's processes
	redis      float64 // µs of Redis per request
	rate       float64 // requests per second
	busy       float64 // share of its processor that the gateway used
	peak       float64 // bytes
}

// runCPU measures the processor time per request of every contestant.
func runCPU(ctx context.Context, b *bench) error {
	list := b.contestants()
	costs := make(map[string][]cost)
	err := b.turns(ctx, b.cpuRounds, list, func(c contestant, t *target) error {
		if err := t.settle(ctx, c.http2); err != nil {
			return err
		}
		measured, err := t.cost(ctx, c.http2, turn)
		costs[c.name] = append(costs[c.name], measured)
		fmt.Fprintf(os.Stderr, "  %3d %-31s %6.1f µs  %6.0f/s  %3.0f %%\n",
			len(costs[c.name]), c.name, measured.perRequest, measured.rate, 100*measured.busy)
		return err
	})
	if err != nil {
		return err
	}
	b.report.cpu(list, costs)
	return nil
}

// contestants returns those that take part in this run.
func (b *bench) contestants() []contestant {
	list := contestants()
	if b.quick {
		quick := []string{ours, oursUncached, bareProxy, nginxPlain, nginxLuaRedis}
		if b.baseline != "" {
			quick = []string{ours, oursUncached, bareProxy}
		}
		list = slices.DeleteFunc(list, func(c contestant) bool { return b.only == "" && !slices.Contains(quick, c.name) })
	}
	if _, inList := named(b.baseline); b.baseline != "" && !inList {
		list = slices.Insert(list, 1, baseline(b.baseline)...)
	}
	return slices.DeleteFunc(list, func(c contestant) bool { return !b.chosen(c.name) })
}

// chosen tells whether -only lets something through.
func (o options) chosen(name string) bool {
	return slices.ContainsFunc(strings.Split(o.only, ","), func(part string) bool { return strings.Contains(name, part) })
}

// settle asks a target for something after it had nothing to do. It takes a whole second where only
// tools that count in seconds can ask.
func (t *target) settle(ctx context.Context, http2 bool) error {
	plan, err := t.plan(settling)
	if err != nil {
		return err
	}
	if http2 || !strings.HasPrefix(t.url, "http://") {
		_, err = t.saturate(ctx, http2, turn)
	} else {
		_, err = load.Run(ctx, plan)
	}
	return err
}

// plan asks the target with all of its tokens in turn, over HTTP/1.1.
func (t *target) plan(length time.Duration) (load.Plan, error) {
	at, err := url.Parse(t.url)
	if err != nil {
		return load.Plan{}, err
	}
	return load.Plan{
		Address: at.Host, Connections: connections, Length: length, Request: inTurn(at.Host, t.tokens, []string{at.Path}),
	}, nil
}

// cost asks the target for as much as it gives.
func (t *target) cost(ctx context.Context, http2 bool, length time.Duration) (cost, error) {
	var requests int64
	span, err := t.span(func() (err error) {
		requests, err = t.saturate(ctx, http2, length)
		return err
	})
	return span.cost(max(requests, 1)), err
}

// span is what a target used while something was done.
type span struct {
	wall    time.Duration
	gateway usage
	redis   usage
}

// span measures the target's processes around work.
func (t *target) span(work func() error) (span, error) {
	gatewayBefore, err := measure(t.gateway)
	if err != nil {
		return span{}, err
	}
	redisBefore, err := measure(t.redis)
	if err != nil {
		return span{}, err
	}
	begun := time.Now()
	if err := work(); err != nil {
		return span{}, err
	}
	s := span{wall: time.Since(begun)}
	if s.gateway, err = measure(t.gateway); err != nil {
		return s, err
	}
	if s.redis, err = measure(t.redis); err != nil {
		return s, err
	}
	s.gateway.cpu -= gatewayBefore.cpu
	s.redis.cpu -= redisBefore.cpu
	return s, nil
}

// cost divides what was used among the requests.
func (s span) cost(requests int64) cost {
	n := float64(requests)
	return cost{
		perRequest: microseconds(s.gateway.cpu) / n,
		redis:      microseconds(s.redis.cpu) / n,
		rate:       n / s.wall.Seconds(),
		busy:       s.gateway.cpu.Seconds() / s.wall.Seconds(),
		peak:       float64(s.gateway.peak),
	}
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
