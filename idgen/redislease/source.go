package redislease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"snowgate/idgen"
	"snowgate/internal/deadline"
	"snowgate/internal/redisscript"
)

// Source leases worker numbers in Redis. It is an [idgen.Source] for one generator: calls of
// Acquire must not overlap. State may be called at any time.
type Source struct {
	scripts *redisscript.Runner
	choice  Choice
	options Options
	state   state

	nonce   string // of an acquisition whose result is unknown
	started bool   // a number was held before: the address gives no claim to a living holder's number
}

// New returns a source of the numbers that choice permits. It does not contact Redis. rdb may be
// any client of go-redis. Set its option ContextTimeoutEnabled; otherwise a Redis that hangs delays
// callers for as long as the timeouts of the client.
func New(rdb redis.Scripter, choice Choice, o Options) (*Source, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Source{scripts: redisscript.NewRunner(rdb, registryKeys(o.Prefix)), choice: choice, options: o}
	s.state.init(o)
	return s, nil
}

// Acquire implements [idgen.Source]. It usually takes one round trip. It waits for the end of a
// quarantine, for the ceiling of a predecessor to pass (at most the lead), and for a free number
// (ten tries at growing intervals, about 7 s in all), but not longer than ctx. It returns errors of
// Redis at once.
//
// Errors wrap [idgen.ErrNoWorker] and a reason (ErrAllTaken, ErrTaken, ErrExhausted,
// ErrQuarantine), or are a [*SchemeError], an [*OffsetError], or an error of the client. All but
// the [*SchemeError] may be temporary.
func (s *Source) Acquire(ctx context.Context, scheme idgen.Scheme, now int64) (idgen.Lease, error) {
	l, err := s.acquire(ctx, scheme, now)
	if err != nil {
		s.state.failed(err)
		return nil, err
	}
	return l, nil
}

func (s *Source) acquire(ctx context.Context, scheme idgen.Scheme, now int64) (*lease, error) {
	c, err := s.choice.of(scheme.Layout())
	if err != nil {
		return nil, err
	}
	if s.nonce == "" {
		s.nonce = newNonce()
	}
	began := time.Now()
	waits := waits{left: s.options.Rounds}
	for {
		unix := scheme.Epoch().UnixMilli() + now + time.Since(began).Milliseconds()
		r, err := s.claim(ctx, scheme, c, unix)
		if err != nil {
			return nil, fmt.Errorf("redislease: acquire a worker number at %s: %w", s.scripts.Keys()[0], err)
		}
		if r.status == "granted" {
			return s.newLease(scheme, c, r), nil
		}
		pause, err := s.backOff(scheme, r, &waits)
		if err != nil {
			return nil, err
		}
		if err := deadline.Sleep(ctx, pause); err != nil {
			return nil, s.interrupted(r, err)
		}
	}
}

// claim runs acquire.lua. The nonce stays the same until a lease is known, so that a repeated call
// finds a lease whose reply was lost.
func (s *Source) claim(ctx context.Context, scheme idgen.Scheme, c claim, unix int64) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	outside := scheme.Layout().Workers() - max(0, c.last-c.first+1)
	return s.ask(ctx, acquireScript, append(s.common(scheme),
		s.options.TTL.Milliseconds(), s.nonce, s.options.Address, s.options.Owner,
		unix, tolerance.Milliseconds(), flag(!s.started),
		c.wanted, c.first, c.last, outside, flag(c.registry))...)
}

// common returns the first arguments of all scripts.
func (s *Source) common(scheme idgen.Scheme) []any {
	skew := s.options.Skew.Milliseconds()
	if s.options.SkipQuarantine {
		skew = -1
	}
	return []any{scheme.Fingerprint(), s.options.Lead.Milliseconds(), skew}
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

func (s *Source) newLease(scheme idgen.Scheme, c claim, r reply) *lease {
	l := &lease{
		source: s, scheme: scheme, registry: c.registry,
		number: r.number, floor: r.floor, ceiling: r.ceiling, nonce: s.nonce,
	}
	s.nonce, s.started = "", true
	s.state.held(l)
	s.tell(EventAcquired, r.number, "worker number %d is leased by %s at %s", r.number, s.options.Owner, s.options.Address)
	if r.text != "" {
		s.tell(EventConflict, r.number, "worker number %d is preferred but leased by %s; %d is used instead",
			c.wanted, r.text, r.number)
	}
	return l
}

// backOff returns the time before the next try, or the error if there must be none.
func (s *Source) backOff(scheme idgen.Scheme, r reply, w *waits) (time.Duration, error) {
	wait := time.Duration(r.wait) * time.Millisecond
	switch r.status {
	case "pending":
		s.tell(EventPending, r.number, "worker number %d is taken over; ids are issued in %v, after the predecessor's ceiling", r.number, wait)
		return wait, w.use()
	case "quarantine":
		s.state.quarantined(wait)
		s.tell(EventQuarantine, -1, "Redis is new or may have lost data; worker numbers are given out in %v", wait)
		return wait, w.use()
	case "full":
		reason := noWorker(ErrAllTaken, " (%d tries; the next lease may end in %v)", s.options.Rounds, wait)
		s.tell(EventFull, -1, "all worker numbers are taken; the next lease may end in %v", wait)
		return w.backOff(), orNil(w.use(), reason)
	case "held":
		return 0, &TakenError{Worker: r.number, Holder: r.text, Left: wait, Until: time.UnixMilli(r.now + r.wait)}
	case "exhausted":
		return 0, noWorker(ErrExhausted, ": %d was the last; \"snowgate ids free -unused\" frees those of gateways that are gone", r.number)
	case "clock":
		return 0, fmt.Errorf("redislease: no worker number is taken: %w", &OffsetError{Offset: wait, Limit: tolerance})
	case "scheme":
		return 0, s.mismatch(scheme, r)
	}
	return 0, fmt.Errorf("redislease: acquire.lua returned status %q", r.status)
}

func (s *Source) mismatch(scheme idgen.Scheme, r reply) error {
	return fmt.Errorf("redislease: %w", &SchemeError{Ours: scheme.Fingerprint(), Recorded: r.text, Key: s.scripts.Keys()[0]})
}

// interrupted returns the error that says what Acquire was waiting for when the context ended.
func (s *Source) interrupted(r reply, cause error) error {
	wait := time.Duration(r.wait) * time.Millisecond
	switch r.status {
	case "full":
		return noWorker(ErrAllTaken, "; the next lease may end in %v (%w)", wait, cause)
	case "quarantine":
		return noWorker(ErrQuarantine, " for another %v (%w)", wait, cause)
	}
	return fmt.Errorf("redislease: %w: the ceiling of the predecessor passes in %v: %w", idgen.ErrNoWorker, wait, cause)
}

// waits limits how often Acquire waits.
type waits struct{ left, used int }

var errNoWaitLeft = fmt.Errorf("redislease: %w: Redis keeps telling to wait", idgen.ErrNoWorker)

func (w *waits) use() error {
	w.used++
	if w.used >= w.left {
		return errNoWaitLeft
	}
	return nil
}

// backOff doubles from 50 ms up to 2 s and subtracts up to half of it at random, so that gateways
// that were refused at the same time do not try again at the same time.
func (w *waits) backOff() time.Duration {
	d := min(50*time.Millisecond<<min(w.used, 10), 2*time.Second)
	return d - rand.N(d/2) //nolint:gosec // G404: jitter need not be unpredictable
}

// orNil returns nil for an empty error.
func orNil(err, by error) error {
	if err == nil {
		return nil
	}
	return by
}
