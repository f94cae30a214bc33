package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"snowgate/bench/load"
	"snowgate/clients"
	"snowgate/clients/redisclients"
	"snowgate/internal/scope"
	"snowgate/tokens"
	"snowgate/tokens/redisstore"
)

// growth is one thing that there may be few or many of.
type growth struct {
	what        string
	few, many   int
	start       func(ctx context.Context, b *bench, count int) (*crowd, error)
	explanation string
}

// crowd is a gateway with so many of something, and requests that make use of
// it.
type crowd struct {
	*gateway
	request func(n int) []byte
}

func growths(b *bench) []growth {
	return []growth{
		{"routes, one of them asked", 1, 10_000, oneOfManyRoutes, "the route in the middle"},
		{"routes, asked in turn", 1, 10_000, manyRoutes, "each has a pool of replicas and series of its own, and all have the upstream in common"},
		{"clients", 10, 100_000, manyClients, "1000 tokens of up to 1000 different clients"},
		{"cached tokens", 10_000, b.manyTokens(), manyCached, "requests use all of them in turn; `SNOWGATE_CACHE_TTL=1h`"},
		{"revocation rules", 0, 10_000, manyRules, "ranges of ids of one worker, none of which matches"},
	}
}

// runGrowth measures how the processor time of a request grows with what there
// is of something.
func runGrowth(ctx context.Context, b *bench) error {
	var rows []grown
	for _, g := range growths(b) {
		if !b.chosen(g.what) {
			continue
		}
		row, err := b.measureGrowth(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", g.what, err)
		}
		fmt.Fprintf(os.Stderr, "  %s: %.1f µs with %d, %.1f µs with %d\n", g.what, row.sums[0].perRequest(), g.few, row.sums[1].perRequest(), g.many)
		rows = append(rows, row)
	}
	b.report.growth(rows)
	return nil
}

// grown is the cost with few and with many.
type grown struct {
	growth
	costs pair     // µs per request, of each turn
	sums  [2]spent // of all turns
}

// spent is what was used for so many requests.
type spent struct {
	cpu      time.Duration
	requests int64
}

// perRequest is in microseconds. Unlike the median of turns it has those in it in which garbage was
// collected, and counts a turn by what was done in it.
func (s spent) perRequest() float64 { return microseconds(s.cpu) / float64(max(s.requests, 1)) }

// measureGrowth asks both gateways at the same time: they share their processor, and are disturbed
// alike by whatever else the machine does. Each finds some of the caches full of the other's when it has
// its turn, which is after milliseconds.
func (b *bench) measureGrowth(ctx context.Context, g growth) (grown, error) {
	found := grown{growth: g}
	var crowds [2]*crowd
	for i, count := range []int{g.few, g.many} {
		c, err := g.start(ctx, b, count)
		if err != nil {
			return found, fmt.Errorf("%d: %w", count, err)
		}
		defer c.stop() //nolint:gocritic // two of them
		crowds[i] = c
	}
	if err := new(pair).atOnce(func(i int) (float64, error) {
		_, err := crowds[i].measure(ctx, warmUp)
		return 0, err
	}); err != nil {
		return found, err
	}
	for range b.rounds * b.laps() {
		err := found.costs.atOnce(func(i int) (float64, error) {
			one, err := crowds[i].measure(ctx, turn)
			found.sums[i].cpu += one.cpu
			found.sums[i].requests += one.requests
			return one.perRequest(), err
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// measure asks for as much as there is.
func (c *crowd) measure(ctx context.Context, length time.Duration) (spent, error) {
	t := &target{gateway: []*process{c.process}}
	var result load.Result
	span, err := t.span(func() (err error) {
		result, err = load.Run(ctx, load.Plan{Address: c.address, Connections: connections, Length: length, Request: c.request})
		return err
	})
	return spent{span.gateway.cpu, int64(result.Requests)}, err
}

// inTurn returns requests to the gateway that go through tokens and paths.
func (g *gateway) inTurn(tokens, paths []string) func(n int) []byte {
	return inTurn(g.address, tokens, paths)
}

func inTurn(host string, tokens, paths []string) func(n int) []byte {
	var requests [][]byte
	for i := range max(len(tokens), len(paths)) {
		requests = append(requests, request(nil, host, paths[i%len(paths)], []byte(tokens[i%len(tokens)])))
	}
	return func(n int) []byte { return requests[n%len(requests)] }
}

func manyRoutes(ctx context.Context, b *bench, count int) (*crowd, error) {
	return routes(ctx, b, count, func(paths []string) []string { return paths })
}

func oneOfManyRoutes(ctx context.Context, b *bench, count int) (*crowd, error) {
	return routes(ctx, b, count, func(paths []string) []string { return paths[count/2 : count/2+1] })
}

// routes starts a gateway with that many routes, of which those are asked that
// choose picks.
func routes(ctx context.Context, b *bench, count int, choose func(paths []string) []string) (*crowd, error) {
	secret, digest := newSecret()
	var config strings.Builder
	fmt.Fprintf(&config, "clients:\n  - {id: %s, secrets: [{id: s1, sha256: %s}], scopes: [orders.read, orders.write]}\nroutes:\n", clientID, digest)
	paths := make([]string, 0, count)
	for i := range count {
		path := fmt.Sprintf("/region%d/service%d", i%100, i)
		fmt.Fprintf(&config, "  - {name: service%d, path: %s, upstreams: [\"http://%s\"], scopes: [orders.read]}\n", i, path, b.site.upstream)
		paths = append(paths, path+"/orders")
	}
	g, err := b.site.startSnowgate(ctx, setup{config: config.String(), secret: secret})
	if err != nil {
		return nil, err
	}
	token, err := g.token(ctx)
	return &crowd{g, g.inTurn([]string{token}, choose(paths))}, err
}

// manyClients makes clients in the registry, which is Redis: so many would not
// fit the configuration file.
func manyClients(ctx context.Context, b *bench, count int) (*crowd, error) {
	server, at, err := b.site.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	secrets, err := register(ctx, at, count)
	if err != nil {
		return nil, err
	}
	g, err := b.site.startSnowgate(ctx, setup{redis: server, at: at})
	if err != nil {
		return nil, err
	}
	var bad error
	const tokenCount = 1000
	tokens := make([]string, tokenCount)
	_, err = load.Run(ctx, load.Plan{
		Address: g.address, Connections: connections, Count: tokenCount, Length: time.Minute,
		Request: func(n int) []byte {
			const stride = 7919 // a prime, so that they are spread over all clients
			i := n * stride % count
			return tokenRequest(g.address, clientName(i), secrets[i])
		},
		Answer: func(n, _ int, body []byte) {
			token, err := tokenIn(body)
			bad = errors.Join(bad, err)
			tokens[n] = string(token)
		},
	})
	return &crowd{g, g.inTurn(tokens, []string{"/orders"})}, errors.Join(err, bad)
}

// register makes clients as gateways do, and returns their secrets.
func register(ctx context.Context, at string, count int) (secrets []string, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: at, PoolSize: connections})
	defer rdb.Close()
	store := redisclients.New(rdb, clients.NewRegistry(time.Hour), redisclients.Options{Timeout: 5 * time.Second})
	secrets = make([]string, count)
	var next atomic.Int64
	var group errgroup.Group
	for range connections {
		group.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= count {
					return nil
				}
				secret, credential := clients.Issue("s1", time.Now(), time.Time{})
				secrets[n] = secret.Reveal()
				document := clients.Document{ID: clientName(n), Scopes: scope.Of("orders.read", "orders.write")}
				if _, err := store.Create(ctx, document, credential); err != nil {
					return err
				}
			}
		})
	}
	return secrets, group.Wait()
}

func clientName(n int) string { return fmt.Sprintf("client-%d", n) }

func manyCached(ctx context.Context, b *bench, count int) (*crowd, error) {
	h, err := b.tokenHoard(ctx)
	if err != nil {
		return nil, err
	}
	g, err := h.gateway(ctx, b.site, "SNOWGATE_CACHE_TTL=1h", "SNOWGATE_CACHE_SIZE=2000000")
	if err != nil {
		return nil, err
	}
	var buffer []byte
	at := 0
	c := &crowd{g, func(int) []byte {
		at = (at + 1) % count
		buffer = request(buffer, g.address, "/orders", h.token(at))
		return buffer
	}}
	if err := h.use(ctx, g, count); err != nil {
		return nil, err
	}
	return c, g.holds("snowgate_token_cache_entries", count)
}

// manyRules has rules for ranges of ids of a worker that does not exist.
func manyRules(ctx context.Context, b *bench, count int) (*crowd, error) {
	server, at, err := b.site.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	if count > 0 {
		if err := revoke(ctx, at, count); err != nil {
			return nil, err
		}
	}
	g, err := b.site.startSnowgate(ctx, setup{redis: server, at: at})
	if err != nil {
		return nil, err
	}
	token, err := g.token(ctx)
	if err != nil {
		return nil, err
	}
	return &crowd{g, g.inTurn([]string{token}, []string{"/orders"})}, g.holds("snowgate_revocation_rules", count)
}

// revoke writes rules as a gateway does that gives back what Redis has lost: in
// one go.
func revoke(ctx context.Context, at string, count int) error {
	store, err := redisstore.Open(redisstore.Options{URL: "redis://" + at, Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer store.Close()
	const apart, long = 100 * time.Millisecond, 50 * time.Millisecond
	begin, set := time.Now().Add(-time.Hour), tokens.RuleSet{Revision: uint64(count), Longest: 24 * time.Hour}
	for i := range count {
		from := begin.Add(time.Duration(i) * apart)
		rule := tokens.WorkerRule(999, from, from.Add(long))
		rule.End, rule.Created = time.Now().Add(24*time.Hour), from
		set.Rules = append(set.Rules, rule)
	}
	return store.RestoreRules(ctx, set)
}

func (r *report) growth(rows []grown) {
	const most = 0.10
	var out strings.Builder
	fmt.Fprintf(&out, "## Growth of the cost\n\nProcessor time per validated, cached, proxied request, in microseconds; both gateways are asked at the same time and share their processor, for a second at a time. All of the time by all of the requests, because garbage is collected in bursts; the spread is that of the seconds.\n\n"+
		"| | few | µs | many | µs | ratio | spread | |\n|---|---:|---:|---:|---:|---:|---|---|\n")
	for _, row := range rows {
		few, many := row.sums[0].perRequest(), row.sums[1].perRequest()
		ratio, spread := many/few, row.costs[1].over(row.costs[0]).spread(2)
		fmt.Fprintf(&out, "| %s | %d | %.1f | %d | %.1f | %.2f | %s | %s |\n", row.what, row.few, few, row.many, many, ratio, spread, row.explanation)
		r.goal(fmt.Sprintf("processor time per request from %d to %d %s", row.few, row.many, row.what), fmt.Sprintf("flat, ± %.0f %%", 100*most),
			fmt.Sprintf("%.2f × (%s)", ratio, spread), ratio <= 1+most)
	}
	r.add(section{name: "growth", text: out.String()})
}
