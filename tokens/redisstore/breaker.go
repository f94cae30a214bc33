package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/internal/deadline"
	"snowgate/internal/panics"
)

const (
	// breakAfter is the number of commands in a row that must fail to reach the server. It is
	// small, because opening the breaker by mistake costs only one PING.
	breakAfter = 2
	// probePause is the time between the first two probes of a server that is down. Each pause after
	// that is half as long again, up to probePauseMost, so that the breaker notices within that time
	// that the server is back. With go-redis's retry and the subscription, a gateway then makes about
	// seven connections a second; at the first pause it would be eighty.
	probePause     = 50 * time.Millisecond
	probePauseMost = 500 * time.Millisecond
	// probePauseAuth is the time between two probes of a server that refuses our password. It is the
	// longest pause from the start: somebody has to change the password, and the probes must not look
	// like an attack.
	probePauseAuth = 500 * time.Millisecond
	// reloadEvery is how often a cluster is asked for the owners of its slots while one of its
	// nodes is down.
	reloadEvery = 250 * time.Millisecond
)

// breaker refuses commands at once while its server cannot be reached. It opens when a few commands in
// a row get no reply, and closes when one of its own probes gets one. A command of a caller is never
// used as a probe, so no caller waits for one. It is safe for concurrent use.
type breaker struct {
	probes       *probes
	ping         func(context.Context) error
	reload       func(context.Context)     // asks the cluster for the owners of its slots; nil: no cluster
	leastTimeout time.Duration             // a command that times out earlier says nothing about the server
	failures     atomic.Int32              // in a row
	open         atomic.Pointer[openError] // nil while closed
}

// openError is the error of a command while the breaker is open.
type openError struct{ cause string }

func (e *openError) Error() string {
	return "the server was not reachable a moment ago (see the error before this one); it is probed in the background"
}
func (e *openError) kind() string { return e.cause }

func (b *breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isHandshake(cmd) {
			return next(ctx, cmd)
		}
		if refusal := b.refusal(ctx); refusal != nil {
			cmd.SetErr(refusal)
			return refusal
		}
		begin := time.Now()
		err := next(ctx, cmd)
		b.count(Kind(err), time.Since(begin))
		return err
	}
}

func (b *breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 0 || isHandshake(cmds[0]) {
			return next(ctx, cmds)
		}
		if refusal := b.refusal(ctx); refusal != nil {
			for _, cmd := range cmds {
				cmd.SetErr(refusal)
			}
			return refusal
		}
		begin := time.Now()
		err := next(ctx, cmds)
		b.count(Kind(err), time.Since(begin))
		return err
	}
}

// refusal returns the error for a command while the breaker is open, else nil.
func (b *breaker) refusal(ctx context.Context) error {
	if refusal := b.open.Load(); refusal != nil && !isProbe(ctx) {
		return refusal
	}
	return nil
}

// unreachable reports whether a kind of failure means that the server sent no reply, or refuses all
// commands.
func unreachable(kind string) bool {
	return kind == KindTimeout || kind == KindRefused || kind == KindAuth
}

// count records the result of a command, and opens the breaker if necessary.
func (b *breaker) count(kind string, took time.Duration) {
	if kind == KindCanceled || kind == KindTimeout && took < b.leastTimeout {
		return // the deadline of the caller was too short to tell
	}
	if !unreachable(kind) {
		if b.failures.Load() != 0 {
			b.failures.Store(0)
		}
		return
	}
	if b.failures.Add(1) >= breakAfter && b.open.CompareAndSwap(nil, &openError{kind}) {
		b.probes.run(b.probe)
	}
}

// probe sends probes until the server replies, then closes the breaker.
func (b *breaker) probe(ctx context.Context) {
	for pause := probePause; ; pause = min(pause*3/2, probePauseMost) {
		kind := Kind(b.ping(ctx))
		if !unreachable(kind) && ctx.Err() == nil {
			b.failures.Store(0)
			b.open.Store(nil)
			return
		}
		b.open.Store(&openError{kind})
		if kind == KindAuth {
			pause = probePauseAuth
		}
		if !b.rest(ctx, pause) {
			return
		}
	}
}

// rest waits for d minus a random part of up to a third, so that gateways that lost a server at the
// same time do not all probe at the same time. Meanwhile it asks the cluster, if there is one,
// whether a replica was promoted. It returns false if ctx has ended.
func (b *breaker) rest(ctx context.Context, d time.Duration) bool {
	d -= rand.N(d/3 + 1) //nolint:gosec // no secret
	for d > 0 {
		step := d
		if b.reload != nil {
			b.reload(ctx)
			step = min(d, reloadEvery)
		}
		if deadline.Sleep(ctx, step) != nil {
			return false
		}
		d -= step
	}
	return true
}

// probes manages the goroutines that probe.
type probes struct {
	mu     sync.Mutex // guards the order of run and close
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newProbes() *probes {
	p := &probes{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *probes) run(probe func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil {
		p.wg.Go(func() { panics.Keep(p.ctx, panics.Redis, probe) })
	}
}

func (p *probes) close() {
	p.mu.Lock()
	p.cancel()
	p.mu.Unlock()
	p.wg.Wait()
}

type probeKey struct{}

// asProbe returns a context whose commands an open breaker does not refuse.
func asProbe(ctx context.Context) context.Context {
	return context.WithValue(ctx, probeKey{}, true)
}

func isProbe(ctx context.Context) bool { return ctx.Value(probeKey{}) != nil }
