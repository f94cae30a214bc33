package tokens

import (
	"context"
	"errors"

	"snowgate/idgen"
)

// errNoRules is returned by a service that was made without [Config.Rules].
var errNoRules = errors.New("tokens: this service keeps no revocation rules")

// RevokeClient revokes every token that was issued to client up to now. When it
// returns, the rule has taken effect here, on cached tokens and on streams.
// Errors are those of [RuleStore.AddRule].
func (s *Service) RevokeClient(ctx context.Context, client, by, why string) (Rule, error) {
	r := ClientRule(client)
	r.By, r.Why = by, why
	return s.AddRule(ctx, r)
}

// AddRule revokes every token that r matches. When it returns the rule as it was
// stored, the rule has taken effect here, on cached tokens and on streams.
// Errors are those of [RuleStore.AddRule].
func (s *Service) AddRule(ctx context.Context, r Rule) (Rule, error) {
	if s.cfg.Rules == nil {
		return Rule{}, errNoRules
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	stored, err := s.cfg.Rules.Add(ctx, r)
	s.cfg.Observer.Revoked(Reason(err))
	return stored, err
}

// Revocations returns the rules that are known here, in the order of their IDs.
func (s *Service) Revocations() RuleSet {
	if s.cfg.Rules == nil {
		return RuleSet{}
	}
	return s.cfg.Rules.Set()
}

// Lookup returns the token with the given id from the store, for an
// administrator. A token whose record is there but which is not good any more is
// returned together with the reason, which matches [ErrInvalid]; without a
// record there is only [ErrUnknown]. [ErrUnavailable] says nothing about it.
func (s *Service) Lookup(ctx context.Context, id idgen.ID) (Token, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if err := s.cfg.Unfit(); err != nil {
		return Token{}, err
	}
	origin, ok := s.origin(id)
	if !ok {
		return Token{}, ErrUnknown
	}
	record, err := s.cfg.Store.Load(ctx, id)
	if err != nil {
		return Token{}, err
	}
	token := record.Token
	token.IssuedAt = origin.Minted
	err = s.check(&token, origin)
	return token, err
}

// origin reads an id; ok is false if the layout cannot have it.
func (s *Service) origin(id idgen.ID) (o Origin, ok bool) {
	if id < 0 {
		return Origin{}, false
	}
	worker, ok := s.cfg.Worker(id)
	return Origin{Minted: s.cfg.MintTime(id), Worker: worker}, ok
}

// check judges a token by all but its record.
func (s *Service) check(t *Token, o Origin) error {
	if !s.cfg.Now().Before(t.ExpiresAt) {
		return ErrExpired
	}
	if s.cfg.Rules != nil {
		if err := s.cfg.Rules.CheckOrigin(o); err != nil {
			return err
		}
		if err := s.cfg.Rules.CheckClient(t); err != nil {
			return err
		}
	}
	if s.cfg.Clients != nil {
		if _, ok := s.cfg.Clients.Entitled(t.Client, t.Generation); !ok {
			return ErrClient
		}
	}
	return nil
}

// Dropped is told that the token with the given id was revoked elsewhere. That
// is taken for a hint: what is known of it is forgotten, and streams that it
// opened ask the store.
func (s *Service) Dropped(id idgen.ID) {
	s.forget(id)
	s.writeBack.add(id)
	s.watches.reread(id)
}

// Gap is told that revocations of single tokens may have been missed: nothing in
// the cache decides any more, and all streams ask the store. What it costs does
// not depend on the size of the cache.
func (s *Service) Gap() {
	s.cache.epoch.Add(1)
	s.watches.rereadAll()
	s.writeBack.compare()
}

// WritesLost is told that the store may have lost its last writes, as a failover does. Tokens that
// were revoked here or elsewhere within the last minute, and are in the store again, are revoked
// again. [Service.Gap] does so, too.
func (s *Service) WritesLost() { s.writeBack.compare() }

// Stats are numbers for metrics.
type Stats struct {
	Cached  int // tokens in the cache, about
	Watched int // tokens that streams are open under
	Rules   int // revocation rules
	Unknown int // of them, those of a kind that this version does not know
}

// Stats returns how much is held now.
func (s *Service) Stats() Stats {
	stats := Stats{Cached: s.cache.len(), Watched: s.watches.len()}
	if s.cfg.Rules != nil {
		stats.Rules, stats.Unknown = s.cfg.Rules.Len(), s.cfg.Rules.Unknown()
	}
	return stats
}
