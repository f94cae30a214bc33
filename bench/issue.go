package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"snowgate/tokens"
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
	var alone []issued
	for round := range b.rounds {
		for i, build := range builds {
			one, err := b.measureIssue(ctx, build)
			if err != nil {
				return err
			}
			found[i] = append(found[i], one)
			fmt.Fprintf(os.Stderr, "  %d/%d %6.0f tokens per CPU second, %6.0f/s\n", round+1, b.rounds, one.perSecond, one.rate)
		}
		one, err := b.measureWrites(ctx)
		if err != nil {
			return err
		}
		alone = append(alone, one)
	}
	b.report.issue(found, alone)
	return nil
}

// tokenKey begins the keys of tokens under the default prefix.
const tokenKey = "sg:t:"

// measureWrites measures what Redis takes for the write of a token if each is asked for by
// itself, by redis-benchmark.
func (b *bench) measureWrites(ctx context.Context) (issued, error) {
	g, err := b.site.startSnowgate(ctx, setup{})
	if err != nil {
		return issued{}, err
	}
	t := &target{gateway: []*process{g.process}, redis: []*process{g.redis}}
	defer t.end()
	token, err := g.token(ctx)
	if err != nil {
		return issued{}, err
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(token, tokens.Prefix), "_")
	record, err := redisAsk(ctx, g.redisAt, "GET", tokenKey+id)
	if err != nil || record == "" {
		return issued{}, fmt.Errorf("the record of a token is %q: %w", record, err)
	}
	host, port, err := net.SplitHostPort(g.redisAt)
	if err != nil {
		return issued{}, err
	}
	const count = 200_000
	write := func(n int64) error {
		_, err := runTool(ctx, "redis-benchmark", func(string) (int64, error) { return n, nil }, "-h", host, "-p", port,
			"-c", strconv.Itoa(connections), "-n", strconv.FormatInt(n, 10), "-r", "1000000000", "--csv",
			"SET", tokenKey+"__rand_int__", strings.Repeat("x", len(record)), "NX", "PX", "3600000")
		return err
	}
	if err := write(count / 10); err != nil {
		return issued{}, err
	}
	span, err := t.span(func() error { return write(count) })
	c := span.cost(count)
	return issued{rate: c.rate, redis: c.redis}, err
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
	var count int64
	span, err := t.span(func() error {
		count, err = g.post(ctx, b.site, b.length)
		return err
	})
	c := span.cost(max(count, 1))
	return issued{perSecond: float64(count) / span.gateway.cpu.Seconds(), rate: c.rate, redis: c.redis}, err
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

// issue adds the figures of runIssue: of this build, of the baseline if there
// is one, and of Redis alone.
func (r *report) issue(found [][]issued, alone []issued) {
	const least = 15_000
	perSecond := func(i issued) float64 { return i.perSecond }
	rate := func(i issued) float64 { return i.rate }
	redis := func(i issued) float64 { return i.redis }
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
			of(rounds, rate).median(), 1e6/median, of(rounds, redis).median())
	}
	fmt.Fprintf(&out, "| redis-benchmark, the same writes one by one | – | – | %.0f | – | %.1f |\n",
		of(alone, rate).median(), of(alone, redis).median())
	median := of(found[0], perSecond).median()
	r.goal("tokens issued per second of the gateway's processor, over HTTP with Redis", fmt.Sprintf("≥ %d", least),
		fmt.Sprintf("%.0f (%s)", median, of(found[0], perSecond).spread(0)), median >= least)
	r.add(section{name: "issue", text: out.String()})
}
