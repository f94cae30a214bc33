package tokens

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

const (
	// mintAhead is how far the mint time of an id may be ahead of the clock of this gateway:
	// timestamps of ids go up to their ceiling, which is 3 s ahead of Redis, and clocks differ by
	// less than a second.
	mintAhead = 5 * time.Second
	// oldGrace is added to the longest lifetime when old tokens are refused, because the expiry of
	// a token and the mint time in its id come from different clocks.
	oldGrace = time.Minute
	// leastBound is the shortest bound within which rules are confirmed.
	leastBound = time.Second
)

// errUnconfirmed is the error of decisions while the revocation rules may be out of date.
var errUnconfirmed = fmt.Errorf("%w: the revocation rules were not confirmed in time: see whether Redis answers", ErrUnavailable)

// Validate is ValidateFrom without an address, and so without [Config].Unknown.
func (s *Service) Validate(ctx context.Context, text string) (Token, error) {
	return s.ValidateFrom(ctx, text, netip.Addr{})
}

// ValidateFrom validates a token that a caller at addr presented. It returns the token, with those
// of its scopes that its client may still use. The error matches [ErrInvalid], with the reason, or
// [ErrUnavailable], or is a [*LimitedError]. [Requirement.Check] checks whether the token is valid
// for a route.
//
// It asks the store neither about malformed and forged tokens, nor about tokens that cannot have
// been issued or that a rule for a worker or an instant matches, nor about cached tokens. For
// cached tokens it does not allocate. A token without a record is refused for up to five seconds
// without asking again, and never for longer than CacheTTL.
//
// [Config].Unknown only turns refusals into a LimitedError. A valid token is accepted however many
// invalid ones came from the same address.
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

// originOf verifies the tag of b and decodes its id. seen means that the tag was verified before.
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

// plausible refuses tokens that no gateway can have issued yet, that are older than the longest
// lifetime, or that a rule for a worker or an instant revokes.
func (s *Service) plausible(o Origin, instant time.Time, rules freshness) error {
	if o.Minted.After(instant.Add(mintAhead)) {
		return ErrFuture
	}
	if s.cfg.Rules == nil {
		return nil
	}
	// If the rules are stale, another gateway may have permitted longer lifetimes since.
	if longest := s.cfg.Rules.Longest(); rules == fresh && longest > 0 && o.Minted.Before(instant.Add(-longest-oldGrace)) {
		return ErrTooOld
	}
	return s.cfg.Rules.CheckOrigin(o)
}

// freshness is how current the revocation rules of a decision are.
type freshness uint8

const (
	unconfirmed freshness = iota // never confirmed, or too long ago: no decision
	stale                        // not confirmed within the bound: fail-static only
	fresh                        // confirmed within the bound
)

// Bound returns the greatest age of what a decision uses, cached tokens and rules alike: the
// CacheTTL, but at least a second.
func (s *Service) Bound() time.Duration { return max(s.cfg.CacheTTL, leastBound) }

// freshness returns the freshness of the rules at now, a monotonic instant.
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

// question is a presented token and what the steps of a validation find out about it. The steps share
// one by pointer: copying it from step to step takes a tenth of the time of a cache hit.
type question struct {
	bearer Bearer
	digest Digest
	origin Origin
	addr   netip.Addr
	known  entry // the cached entry
	found  bool  // the cache has an entry
	token  Token // the result, unless there is an error
}

// ask decides by the record in the store. If the store is unavailable, it serves stale.
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
		s.missing(q)
		s.cache.drop(q.bearer.ID())
	}
	return err
}

// missing calls OnMissing for a token without a record that has not expired and that the cache
// still has. A revocation that was received would have removed it from the cache.
func (s *Service) missing(q *question) {
	var still entry
	if q.found && s.cfg.Now().Before(q.known.expiry()) && s.cache.get(q.bearer.ID(), &still) && still.digest.Equal(q.digest) {
		s.cfg.OnMissing(q.bearer.ID())
	}
}

// decideLate decides after a read of the store, during which the rules may have changed.
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

// serveStale decides by a stale cache entry after the store failed with err, if fail-static permits
// it. Otherwise it returns err.
func (s *Service) serveStale(ctx context.Context, q *question, err error) error {
	now := time.Now()
	if !q.found || ctx.Err() != nil || !s.cache.lasts(&q.known, now) || s.freshness(now) == unconfirmed {
		return err
	}
	// A revocation may have dropped the entry meanwhile.
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

// decide checks e, the cached entry or the record of a token, at instant of the clock for the
// expiry of tokens. A success by stale rules counts as a use of fail-static.
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
	case !ok: // by stale rules: the client may be enabled again since
		return errUnconfirmed
	}
	if rules == stale {
		s.cfg.Decisions.FailStaticUse()
		s.static.used()
	}
	s.cfg.Decisions.TokenAge(instant.Sub(token.IssuedAt))
	return nil
}

// limited counts a token from addr that was looked up and refused, and returns a [*LimitedError] if
// there were too many. Any other err is returned as it is.
func (s *Service) limited(addr netip.Addr, err error) error {
	if s.cfg.Unknown == nil || !addr.IsValid() || !errors.Is(err, ErrInvalid) {
		return err
	}
	if retryAfter, ok := s.cfg.Unknown.Failed(addr); !ok {
		return &LimitedError{RetryAfter: retryAfter}
	}
	return err
}
