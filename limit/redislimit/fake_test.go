package redislimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/limit"
)

// fakeRedis does what the script does, by the clock of a synctest bubble.
type fakeRedis struct {
	redis.Scripter // panics: the limiter sends nothing but EVALSHA

	latency time.Duration // from sending to the response
	start   time.Time

	mu       sync.Mutex
	silent   bool // answers nothing
	err      error
	arrivals map[string]int64 // microseconds
	calls    int
	charged  time.Duration
}

func newFake(latency time.Duration) *fakeRedis {
	return &fakeRedis{latency: latency, start: time.Now(), arrivals: make(map[string]int64)}
}

func (f *fakeRedis) set(silent bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent, f.err = silent, err
}

func (f *fakeRedis) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func (f *fakeRedis) sum() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.charged
}

func (f *fakeRedis) EvalSha(ctx context.Context, _ string, keys []string, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	time.Sleep(f.latency / 2)
	ahead, err := f.charge(ctx, keys[0], args[0].(int64), args[1].(int64))
	if err != nil {
		cmd.SetErr(err)
		return cmd
	}
	time.Sleep(f.latency - f.latency/2)
	cmd.SetVal(ahead)
	return cmd
}

func (f *fakeRedis) charge(ctx context.Context, key string, worth, maxLead int64) (int64, error) {
	f.mu.Lock()
	f.calls++
	silent, err := f.silent, f.err
	f.mu.Unlock()
	if silent {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Since(f.start).Microseconds()
	ahead := min(max(f.arrivals[key]-now, 0)+worth, maxLead)
	f.arrivals[key] = now + ahead
	f.charged += time.Duration(worth) * time.Microsecond
	return ahead, nil
}

var errRefused = errors.New("connection refused")

// node is a limiter and what it has let through.
type node struct {
	*Limiter
	mu        sync.Mutex
	passed    []time.Time
	fallbacks []string
}

func newNode(t *testing.T, r redis.Scripter, c Config) *node {
	t.Helper()
	n := new(node)
	c.Redis = r
	c.Fallback = func(reason string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.fallbacks = append(n.fallbacks, reason)
	}
	n.Limiter = New(c)
	t.Cleanup(n.Close)
	return n
}

func (n *node) fellBack() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.fallbacks)
}

// ask asks for one request of the client "worker" and reports the decision and
// how long it took.
func (n *node) ask(t *testing.T, rate limit.Rate) (limit.Decision, time.Duration) {
	t.Helper()
	begin := time.Now()
	d := n.Allow(t.Context(), "worker", rate)
	end := time.Now()
	if d.Allowed {
		n.mu.Lock()
		n.passed = append(n.passed, end)
		n.mu.Unlock()
	}
	return d, end.Sub(begin)
}

// askMany asks n times and returns how many passed.
func (n *node) askMany(t *testing.T, rate limit.Rate, times int) int {
	t.Helper()
	passed := 0
	for range times {
		if d, _ := n.ask(t, rate); d.Allowed {
			passed++
		}
	}
	return passed
}

// allPassed returns when requests passed at any of the nodes, in order.
func allPassed(nodes []*node) []time.Time {
	var all []time.Time
	for _, n := range nodes {
		all = append(all, n.passed...)
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// checkBound fails if in any span of time more passed than the documentation
// says.
func checkBound(t *testing.T, nodes []*node, rate limit.Rate, roundTrip time.Duration) {
	t.Helper()
	all := allPassed(nodes)
	extra := (len(nodes) - 1) * credit(rate)
	for i := range all {
		for j := i; j < len(all); j++ {
			span := all[j].Sub(all[i])
			most := rate.Count + extra + int((span+roundTrip)/rate.Interval())
			if j-i+1 > most {
				t.Fatalf("%d requests passed within %s at %d gateways, want at most %d at %s", j-i+1, span, len(nodes), most, rate)
			}
		}
	}
}
