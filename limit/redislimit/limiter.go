package redislimit

import (
	"cmp"
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/limit"
)

// Defaults of [Config].
const (
	DefaultPrefix  = "sg"
	DefaultTimeout = 250 * time.Millisecond
	DefaultMaxWait = 25 * time.Millisecond
	DefaultPause   = time.Second
)

// The reasons of [Config.Fallback].
const (
	ReasonSlow  = "slow"  // a request waited in vain, and later ones do not wait
	ReasonError = "error" // a settlement failed
)

// Config is the configuration of [New].
type Config struct {
	// Redis is the Redis that the gateways share.
	Redis redis.Scripter
	// Prefix starts every key: <prefix>:l:<client id>. Default: "sg".
	Prefix string
	// Timeout limits a settlement. Default: 250 ms.
	Timeout time.Duration
	// MaxWait is how long a request waits for a settlement when the credit is used up. Default: 25
	// ms.
	MaxWait time.Duration
	// Pause is the time after a failed settlement during which there are no settlements for that
	// client. Default: 1 s.
	Pause time.Duration
	// Now is a clock with a monotonic reading. Default: [time.Now].
	Now func() time.Time
	// Observe, if not nil, is called for every decision.
	Observe limit.Observer
	// Fallback, if set, is called with one of the Reason constants whenever this gateway has to
	// decide about a client by its own copy alone. It is called concurrently and must not block.
	Fallback func(reason string)
}

// Limiter applies the rates of clients. Use [New]. It is safe for concurrent use.
type Limiter struct {
	config Config
	start  time.Time
	seed   maphash.Seed
	shards [shards]shard

	work    context.Context //nolint:containedctx // settlements live as long as the limiter, not as a call
	stop    context.CancelFunc
	running sync.WaitGroup
}

// shards is the number of shards of the table of accounts. Each has its own lock.
const shards = 16

type shard struct {
	sync.Mutex
	accounts map[string]*account
	closed   bool
}

// New returns a limiter. It does not contact Redis.
func New(c Config) *Limiter {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxWait = cmp.Or(c.MaxWait, DefaultMaxWait)
	c.Pause = cmp.Or(c.Pause, DefaultPause)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Fallback == nil {
		c.Fallback = func(string) {}
	}
	if c.Observe == nil {
		c.Observe = func(limit.Kind, bool) {}
	}
	l := &Limiter{config: c, start: c.Now(), seed: maphash.MakeSeed()}
	l.work, l.stop = context.WithCancel(context.Background())
	for i := range l.shards {
		l.shards[i].accounts = make(map[string]*account)
	}
	return l
}

// Close cancels settlements in flight and waits for their end. Afterwards the limiter decides by
// its own copies.
func (l *Limiter) Close() {
	for i := range l.shards {
		l.shards[i].close()
	}
	l.stop()
	l.running.Wait()
}

func (p *shard) close() {
	p.Lock()
	defer p.Unlock()
	p.closed = true
}

// Allow decides about one request of client, whose limit is rate, and counts the request if it is
// allowed. The zero Rate allows everything. Allow waits only when the credit of the client is used
// up, for at most MaxWait or until ctx ends. It allocates only if it waits or starts a settlement.
// The limiter holds memory for each client that was seen within the last Per of its rate, so client
// must be the id of an existing client, not a text that a caller chose.
func (l *Limiter) Allow(ctx context.Context, client string, rate limit.Rate) limit.Decision {
	if rate.IsZero() {
		return limit.Decision{Allowed: true}
	}
	decision, settled := l.decide(client, rate, true)
	if settled != nil {
		decision = l.waitAndDecide(ctx, client, rate, settled)
	}
	l.config.Observe(limit.ClientRate, decision.Allowed)
	return decision
}

// waitAndDecide decides as soon as there is credit again. That may take more than one settlement,
// because other requests wait as well.
func (l *Limiter) waitAndDecide(ctx context.Context, client string, rate limit.Rate, settled <-chan struct{}) limit.Decision {
	timer := time.NewTimer(l.config.MaxWait)
	defer timer.Stop()
	for {
		select {
		case <-settled:
		case <-ctx.Done():
			decision, _ := l.decide(client, rate, false)
			return decision
		case <-timer.C:
			l.giveUp(client, rate)
			decision, _ := l.decide(client, rate, false)
			return decision
		}
		var decision limit.Decision
		if decision, settled = l.decide(client, rate, true); settled == nil {
			return decision
		}
	}
}

// decide decides by the copy of the arrival time of client. If the request would exceed the credit
// and mayWait is set, decide returns a channel to wait for instead.
func (l *Limiter) decide(client string, rate limit.Rate, mayWait bool) (limit.Decision, <-chan struct{}) {
	now := l.now()
	p := l.shard(client)
	p.Lock()
	defer p.Unlock()
	a := p.account(client, rate, now)
	arrival, decision := rate.Take(a.arrival, now)
	if decision.Allowed {
		if mayWait && a.mustWait(now) && l.startSettling(p, a, client) {
			return limit.Decision{}, a.settled
		}
		a.use(arrival, now)
	}
	if a.due(now) {
		l.startSettling(p, a, client)
	}
	return decision, nil
}

// giveUp records that requests of client need not wait until a settlement has succeeded.
func (l *Limiter) giveUp(client string, rate limit.Rate) {
	now := l.now()
	p := l.shard(client)
	p.Lock()
	a := p.account(client, rate, now)
	first := !a.slow
	a.slow = true
	p.Unlock()
	if first {
		l.config.Fallback(ReasonSlow)
	}
}

func (l *Limiter) now() time.Duration { return l.config.Now().Sub(l.start) }

func (l *Limiter) shard(client string) *shard {
	return &l.shards[maphash.String(l.seed, client)%shards]
}
