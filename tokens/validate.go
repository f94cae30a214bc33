package tokens

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

const (
	// mintAhead is how far in front of this gateway's clock another one may mint: ids are stamped
	// up to their ceiling, which is 3 s ahead of Redis, and clocks differ by less than a second.
	mintAhead = 5 * time.Second
	// oldGrace is how much longer than the longest lifetime ago a token may have
	// been minted: the clock it was given its expiry by is not the one in its id.
	oldGrace = time.Minute
	// leastBound is the shortest bound within which rules are confirmed.
	leastBound = time.Second
)

// errUnconfirmed is why nothing is decided on rules that may have changed.
var errUnconfirmed = fmt.Errorf("%w: the revocation rules are not confirmed", ErrUnavailable)

// Validate is ValidateFrom for a caller without an address, whom nothing limits.
func (s *Service) Validate(ctx context.Context, text string) (Token, error) {
	return s.ValidateFrom(ctx, text, netip.Addr{})
}

// ValidateFrom judges the text that a caller at addr presented as a token: the
// token, an error that matches [ErrInvalid] with its reason, one that matches
// [ErrUnavailable], or a [*LimitedError]. The token has those scopes that its
// client may still have. Whether it is good for a certain place,
// [Requirement.Check] tells.
//
// Texts that are malformed or forged, tokens that cannot have been issued, and
// those that a rule for a worker or an instant matches are refused without
// asking the store. So are cached tokens, and those are served without
// allocating. A token that has been found to have no record is refused without
// asking for up to five seconds, and never longer than CacheTTL.
//
// [Config].Unknown only turns refusals into a LimitedError: whoever shows a good
// token gets it, whatever others at the same address have shown.
func (s *Service) ValidateFrom(ctx context.Context, text string, addr netip.Addr) (Token, error) {
	q := question{addr: addr}
	err := s.validate(ctx, text, &q)
	s.cfg.Observer.Validated(Reason(err))
	if err != nil {
		return Token{}, err
	}
	return q.token, nil
}

func (s *Service) validate(ctx context.Context, text string, q *question) (err error) {
	if q.bearer, err = ParseBearer(text); err != nil {
		return err
	}
	q.digest = q.bearer.Digest()
	q.found = s.cache.get(q.bearer.ID(), &q.known)
	if q.origin, err = s.originOf(ctx, q.bearer, q.found && q.known.shows(q.bearer, q.digest)); err != nil {
		return err
	}
	now := time.Now()
	instant := s.cfg.Now()
	rules := s.freshness(now)
	if err := s.plausible(q.origin, instant, rules); err != nil {
		return err
	}
	if rules == unconfirmed {
		return errUnconfirmed
	}
	hit := q.found && s.cache.fresh(&q.known, now)
	dead := !hit && s.negative.has(q.bearer.ID(), q.digest, now.Sub(s.cache.opened), s.cache.epoch.Load())
	s.cfg.Decisions.CacheLookup(hit || dead)
	switch {
	case hit:
		return s.decide(q, &q.known, instant, rules)
	case !q.found && rules != fresh:
		return errUnconfirmed
	case dead:
		return s.limited(q.addr, ErrUnknown)
	}
	return s.limited(q.addr, s.ask(ctx, q))
}

// authentic parses text and verifies its tag.
func (s *Service) authentic(ctx context.Context, text string) (Bearer, Origin, error) {
	bearer, err := ParseBearer(text)
	if err != nil {
		return Bearer{}, Origin{}, err
	}
	origin, err := s.originOf(ctx, bearer, false)
	return bearer, origin, err
}

// originOf returns what the id of b tells, once its tag is verified. That is spared
// if it is seen to be the one that was verified before.
func (s *Service) originOf(ctx context.Context, b Bearer, seen bool) (Origin, error) {
	if err := s.cfg.Unfit(); err != nil {
		return Origin{}, err
	}
	origin := Origin{Minted: s.cfg.MintTime(b.ID())}
	if !seen {
		if err := s.cfg.Keys.Verify(ctx, b, origin.Minted); err != nil {
			return Origin{}, err
		}
	}
	var ok bool
	if origin.Worker, ok = s.cfg.Worker(b.ID()); !ok {
		return Origin{}, ErrWorker
	}
	return origin, nil
}

// plausible refuses tokens that no gateway can have issued, or that nobody can
// hold any longer, and those that are revoked by where they come from.
func (s *Service) plausible(o Origin, instant time.Time, rules freshness) error {
	if o.Minted.After(instant.Add(mintAhead)) {
		return ErrFuture
	}
	if s.cfg.Rules == nil {
		return nil
	}
	// Another gateway may permit longer lifetimes since the last confirmation.
	if longest := s.cfg.Rules.Longest(); rules == fresh && longest > 0 && o.Minted.Before(instant.Add(-longest-oldGrace)) {
		return ErrTooOld
	}
	return s.cfg.Rules.CheckOrigin(o)
}

// freshness is what a decision rests on.
type freshness uint8

const (
	unconfirmed freshness = iota // nothing that was confirmed: no decision
	stale                        // rules that cannot be confirmed: only by fail-static
	fresh                        // rules confirmed within the bound
)

// Bound returns how old the information may be that a decision rests on: the
// CacheTTL, but at least a second.
func (s *Service) Bound() time.Duration { return max(s.cfg.CacheTTL, leastBound) }

// freshness tells what a decision at a monotonic instant would rest on.
func (s *Service) freshness(now time.Time) freshness {
	if s.cfg.Rules != nil && !s.cfg.Rules.Loaded() {
		return unconfirmed
	}
	if s.cfg.Confirmed == nil {
		return fresh
	}
	at, ok := s.cfg.Confirmed()
	age := now.Sub(at)
	switch {
	case !ok:
		return unconfirmed
	case age <= s.Bound():
		return fresh
	case age <= s.Bound()+s.cfg.FailStatic:
		return stale
	default:
		return unconfirmed
	}
}

// question is a token that somebody shows, and what is found out about it. All steps
// write into one: to copy that from step to step takes a tenth of the time of a hit.
type question struct {
	bearer Bearer
	digest Digest
	origin Origin
	addr   netip.Addr
	known  entry // what the cache holds of it
	found  bool  // anything
	token  Token // the answer, unless there is an error
}

// ask decides by the store's record. What the cache holds is only worth fail-static.
func (s *Service) ask(ctx context.Context, q *question) error {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	found, err := s.lookUp(bounded, q.bearer, q.digest)
	if errors.Is(err, ErrUnavailable) {
		return s.serveStale(ctx, q, err)
	}
	if err == nil {
		err = s.decideLate(q, &found)
	}
	if errors.Is(err, ErrUnknown) {
		s.cache.drop(q.bearer.ID())
	}
	return err
}

// decideLate decides after the store has been asked, which takes a while.
func (s *Service) decideLate(q *question, found *entry) error {
	rules := s.freshness(time.Now())
	if rules == unconfirmed || rules == stale && !q.found {
		return errUnconfirmed
	}
	if rules == fresh {
		s.static.recovered()
	}
	if s.cfg.Rules != nil {
		if err := s.cfg.Rules.CheckOrigin(q.origin); err != nil {
			return err
		}
	}
	return s.decide(q, found, s.cfg.Now(), rules)
}

// serveStale decides by what is left in the cache after the store could not be
// asked because of err, if fail-static permits it.
func (s *Service) serveStale(ctx context.Context, q *question, err error) error {
	now := time.Now()
	if !q.found || ctx.Err() != nil || !s.cache.lasts(&q.known, now) || s.freshness(now) == unconfirmed {
		return err
	}
	// It may have been dropped while the store was asked.
	var still entry
	if !s.cache.get(q.bearer.ID(), &still) || still != q.known {
		return err
	}
	if s.cfg.Rules != nil {
		if err := s.cfg.Rules.CheckOrigin(q.origin); err != nil {
			return err
		}
	}
	return s.decide(q, &q.known, s.cfg.Now(), stale)
}

// decide judges what is known of a token, at an instant of the clock that tokens
// expire by. A success on stale rules is counted as fail-static.
func (s *Service) decide(q *question, e *entry, instant time.Time, rules freshness) error {
	if !e.digest.Equal(q.digest) {
		return ErrMismatch
	}
	g := e.attributes
	token := &q.token
	*token = Token{
		ID: q.bearer.ID(), Client: g.client, Scope: g.scope, Audience: g.audience,
		IssuedAt: q.origin.Minted, ExpiresAt: e.expiry(), Generation: g.generation,
	}
	if !instant.Before(token.ExpiresAt) {
		return ErrExpired
	}
	if s.cfg.Rules != nil {
		if err := s.cfg.Rules.CheckClient(token); err != nil {
			return err
		}
	}
	ok := true
	if s.cfg.Clients != nil {
		token.Scope, ok = s.cache.under(s.cfg.Clients, g)
	}
	switch {
	case !ok && rules == fresh:
		return ErrClient
	case !ok: // it may have come back since
		return errUnconfirmed
	}
	if rules == stale {
		s.cfg.Decisions.FailStaticUse()
		s.static.used()
	}
	s.cfg.Decisions.TokenAge(instant.Sub(token.IssuedAt))
	return nil
}

// limited counts for addr that a token was looked up and refused with err, and returns what the
// caller is told of it. Other errors, and nil, are returned as they are.
func (s *Service) limited(addr netip.Addr, err error) error {
	if s.cfg.Unknown == nil || !addr.IsValid() || !errors.Is(err, ErrInvalid) {
		return err
	}
	if retryAfter, ok := s.cfg.Unknown.Failed(addr); !ok {
		return &LimitedError{RetryAfter: retryAfter}
	}
	return err
}
