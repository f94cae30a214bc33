package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// issued is what issuing took in one round.
type issued struct {
	perSecond float64 // tokens per second of the gateway's processor
	rate      float64 // tokens per second
	redis     float64 // µs of Redis per token
}

// runIssue measures how many tokens a gateway issues per second of its
// processor, over HTTP and with Redis.
func runIssue(ctx context.Context, b *bench) error {
	builds := []setup{{}}
	if b.baseline != "" {
		builds = append(builds, setup{binary: b.baseline})
	}
	found := make([][]issued, len(builds))
	for round := range b.rounds {
		for i, build := range builds {
			one, err := b.measureIssue(ctx, build)
			if err != nil {
				return err
			}
			found[i] = append(found[i], one)
			fmt.Fprintf(os.Stderr, "  %d/%d %6.0f tokens per CPU second, %6.0f/s\n", round+1, b.rounds, one.perSecond, one.rate)
		}
	}
	b.report.issue(found)
	return nil
}

func (b *bench) measureIssue(ctx context.Context, build setup) (issued, error) {
	g, err := b.site.startSnowgate(ctx, build)
	if err != nil {
		return issued{}, err
	}
	t := &target{gateway: []*process{g.process}, redis: []*process{g.redis}}
	defer t.end()
	if _, err := g.post(ctx, b.site, warmUp); err != nil {
		return issued{}, err
	}
	var tokens int64
	span, err := t.span(func() error {
		tokens, err = g.post(ctx, b.site, b.length)
		return err
	})
	c := span.cost(max(tokens, 1))
	return issued{perSecond: float64(tokens) / span.gateway.cpu.Seconds(), rate: c.rate, redis: c.redis}, err
}

// post asks for tokens with wrk and returns how many there were.
func (g *gateway) post(ctx context.Context, s *site, length time.Duration) (int64, error) {
	_, head, _ := strings.Cut(string(g.tokenRequest()), "Authorization: ")
	credentials, _, _ := strings.Cut(head, "\r\n")
	script, err := s.write("token.lua", fmt.Sprintf("wrk.method = 'POST'\nwrk.body = '%s'\n"+
		"wrk.headers['Content-Type'] = 'application/x-www-form-urlencoded'\nwrk.headers['Authorization'] = '%s'\n", tokenForm, credentials))
	if err != nil {
		return 0, err
	}
	return runTool(ctx, "wrk", parseWrk, "-t", "1", "-c", fmt.Sprint(connections), "-d", fmt.Sprintf("%.0fs", length.Seconds()),
		"-s", script, g.url+"/oauth2/token")
}

// issue adds the figures of runIssue: of this build, and of the baseline if there
// is one.
func (r *report) issue(found [][]issued) {
	const least = 15_000
	perSecond := func(i issued) float64 { return i.perSecond }
	var out strings.Builder
	fmt.Fprintf(&out, "## Tokens issued\n\nClient credentials over HTTP/1.1, %d connections, every token written to Redis before it is answered.\n\n"+
		"| | tokens per second of processor | spread | tokens/s | µs per token | Redis, µs |\n|---|---:|---|---:|---:|---:|\n", connections)
	for i, rounds := range found {
		name := ours
		if i > 0 {
			name = oursBaseline
		}
		median := of(rounds, perSecond).median()
		fmt.Fprintf(&out, "| %s | %.0f | %s | %.0f | %.1f | %.1f |\n", name, median, of(rounds, perSecond).spread(0),
			of(rounds, func(i issued) float64 { return i.rate }).median(), 1e6/median, of(rounds, func(i issued) float64 { return i.redis }).median())
	}
	median := of(found[0], perSecond).median()
	r.goal("tokens issued per second of the gateway's processor, over HTTP with Redis", fmt.Sprintf("≥ %d", least),
		fmt.Sprintf("%.0f (%s)", median, of(found[0], perSecond).spread(0)), median >= least)
	r.add(section{name: "issue", text: out.String()})
}
