package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"snowgate/bench/load"
)

// resident is the memory of a gateway in one state, in bytes.
type resident struct {
	state       string
	atOnce      usage // right after it was reached
	atRest      usage // when nothing has been asked for a while
	most        int64 // the goal, at rest
	explanation string
}

// rest is how long nothing is asked before a state is looked at again: longer
// than a gateway keeps what it does not need.
const rest = 20 * time.Second

// runMemory measures what a live token takes of Redis and what the gateway takes
// in three states.
func runMemory(ctx context.Context, b *bench) error {
	h, err := b.tokenHoard(ctx)
	if err != nil {
		return err
	}
	var states []resident
	for _, state := range []struct {
		what   string
		most   int64
		reach  func(context.Context, *gateway, *hoard, func() error) error
		detail string
	}{
		{"idle", 20e6, idle, "it has decided and issued nothing yet"},
		{"10 000 keep-alive connections", 150e6, holdConnections, "each has had a validated, proxied answer"},
		{"100 000 cached tokens", 60e6, cacheTokens, "each was used once, with `SNOWGATE_CACHE_TTL=10m`"},
	} {
		r := resident{state: state.what, most: state.most, explanation: state.detail}
		g, err := h.gateway(ctx, b.site, "SNOWGATE_CACHE_TTL=10m")
		if err != nil {
			return err
		}
		if err := state.reach(ctx, g, h, func() error { return r.look(ctx, g) }); err != nil {
			return fmt.Errorf("%s: %w", state.what, err)
		}
		g.stop() // in order, so that the next one has its worker number at once
		fmt.Fprintf(os.Stderr, "  %-30s %5.1f MB, at rest %5.1f MB\n", r.state, megabytes(r.atOnce.now), megabytes(r.atRest.now))
		states = append(states, r)
	}
	b.report.memory(h, states)
	return nil
}

// look measures the gateway now and when it has rested.
func (r *resident) look(ctx context.Context, g *gateway) (err error) {
	if r.atOnce, err = measure([]*process{g.process}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rest):
	}
	r.atRest, err = measure([]*process{g.process})
	return err
}

func idle(_ context.Context, _ *gateway, _ *hoard, look func() error) error { return look() }

// holdConnections opens many connections, has one response on each, and looks while
// they are open.
func holdConnections(ctx context.Context, g *gateway, h *hoard, look func() error) error {
	const count = 10_000
	asked := request(nil, g.address, "/orders", h.token(0))
	_, err := load.Run(ctx, load.Plan{
		Address: g.address, Connections: count, Rate: 2_000, Count: count, Length: time.Minute,
		Request: func(int) []byte { return asked },
		AtEnd:   look,
	})
	return err
}

// cacheTokens uses many tokens once.
func cacheTokens(ctx context.Context, g *gateway, h *hoard, look func() error) error {
	if err := h.use(ctx, g, 100_000); err != nil {
		return err
	}
	return look()
}

// use asks once with each of the first count tokens.
func (h *hoard) use(ctx context.Context, g *gateway, count int) error {
	var buffer []byte
	_, err := load.Run(ctx, load.Plan{
		Address: g.address, Connections: connections, Count: count, Length: 10 * time.Minute,
		Request: func(n int) []byte {
			buffer = request(buffer, g.address, "/orders", h.token(n))
			return buffer
		},
	})
	return err
}

func (r *report) memory(h *hoard, states []resident) {
	const mostPerToken = 215
	var out strings.Builder
	fmt.Fprintf(&out, "## Memory\n\nRedis: %.1f bytes for each of %d live tokens with two scopes (difference of `used_memory`, default prefix, client `%s`).\n\n"+
		"| gateway | resident at once, MB | at rest, MB | of that its program, MB | largest, MB | goal, MB | |\n|---|---:|---:|---:|---:|---:|---|\n", h.bytes, h.count(), clientID)
	r.goal(fmt.Sprintf("bytes in Redis per live token (%d tokens, two scopes)", h.count()), fmt.Sprintf("≤ %d", mostPerToken), fmt.Sprintf("%.1f", h.bytes), h.bytes <= mostPerToken)
	for _, s := range states {
		fmt.Fprintf(&out, "| %s | %.1f | %.1f | %.1f | %.1f | %d | %s |\n", s.state, megabytes(s.atOnce.now), megabytes(s.atRest.now),
			megabytes(s.atRest.file), megabytes(s.atRest.peak), s.most/1e6, s.explanation)
		r.goal("resident memory, "+s.state, fmt.Sprintf("≤ %d MB", s.most/1e6),
			fmt.Sprintf("%.1f MB at rest, %.1f MB at once", megabytes(s.atRest.now), megabytes(s.atOnce.now)), s.atRest.now <= s.most)
	}
	fmt.Fprintf(&out, "\nAt rest: %.0f s after the last request.\n", rest.Seconds())
	r.add(section{name: "memory", text: out.String()})
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
