package redislease

import (
	"context"
	"fmt"

	"snowgate/idgen"
)

// lease is a leased worker number. Timestamps are Unix milliseconds, as in Redis; idgen counts from
// the epoch.
type lease struct {
	source   *Source
	scheme   idgen.Scheme
	registry bool

	number  int64
	floor   int64
	ceiling int64
	nonce   string // in Redis, unless Redis has next
	next    string // was sent, but there was no reply
}

// Worker implements [idgen.Lease].
func (l *lease) Worker() idgen.Worker { return l.scheme.Layout().Worker(l.number) }

// Floor implements [idgen.Lease].
func (l *lease) Floor() int64 { return max(0, l.sinceEpoch(l.floor)) }

// Ceiling implements [idgen.Lease].
func (l *lease) Ceiling() int64 { return l.sinceEpoch(l.ceiling) }

func (l *lease) sinceEpoch(unix int64) int64 { return unix - l.scheme.Epoch().UnixMilli() }

// Extend implements [idgen.Lease]. It renews the lease and raises the ceiling in one round trip. If
// a call fails, it may be repeated, whether or not Redis has executed it.
func (l *lease) Extend(ctx context.Context, now int64) (int64, error) {
	ceiling, err := l.extend(ctx, now)
	if err != nil {
		l.source.state.failed(err)
	}
	return ceiling, err
}

func (l *lease) extend(ctx context.Context, now int64) (int64, error) {
	s := l.source
	r, err := l.renew(ctx, now)
	if err != nil {
		return 0, fmt.Errorf("redislease: extend worker %d: %w", l.number, err)
	}
	switch r.status {
	case "granted", "pending":
	case "reclaimed":
		s.tell(EventReclaimed, l.number, "Redis had lost the lease of worker number %d; it is re-claimed", l.number)
	case "lost":
		s.state.lost()
		s.tell(EventLost, l.number, "worker number %d is lost; it is held by %s", l.number, r.text)
		return 0, lost(r)
	case "scheme":
		return 0, s.mismatch(l.scheme, r)
	default:
		return 0, fmt.Errorf("redislease: extend.lua returned status %q", r.status)
	}
	l.nonce, l.next, l.ceiling = l.next, "", max(l.ceiling, r.ceiling)
	s.state.beat(l.ceiling, r.status == "reclaimed")
	return l.Ceiling(), nil
}

func (l *lease) renew(ctx context.Context, now int64) (reply, error) {
	o := l.source.options
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	latest := l.scheme.Epoch().UnixMilli() + now + (slack + o.Lead).Milliseconds()
	return l.source.ask(ctx, extendScript, append(l.source.common(l.scheme),
		o.TTL.Milliseconds(), l.number, l.nonce, l.rotate(), l.floor, l.ceiling,
		o.Address, o.Owner, latest, flag(l.registry))...)
}

// rotate returns the next nonce. It returns the same one until Redis is known to have it.
func (l *lease) rotate() string {
	if l.next == "" {
		l.next = newNonce()
	}
	return l.next
}

// Release implements [idgen.Lease]. If another gateway has the number, or Redis has lost the lease,
// Release changes nothing, and the error wraps [idgen.ErrLeaseLost].
func (l *lease) Release(ctx context.Context, last int64) error {
	s := l.source
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	mark := l.scheme.Epoch().UnixMilli() + last
	r, err := s.ask(ctx, releaseScript, append(s.common(l.scheme), l.number, l.nonce, l.rotate(), max(0, mark))...)
	if err != nil {
		err = fmt.Errorf("redislease: release worker %d: %w", l.number, err)
		s.state.failed(err)
		return err
	}
	s.state.lost()
	switch r.status {
	case "released":
		s.tell(EventReleased, l.number, "worker number %d is released", l.number)
		return nil
	case "lost":
		return lost(r)
	case "scheme":
		return s.mismatch(l.scheme, r)
	}
	return fmt.Errorf("redislease: release.lua returned status %q", r.status)
}
