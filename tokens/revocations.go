package tokens

import (
	"context"
	"errors"

	"snowgate/idgen"
)

// errNoRules is returned by a service without [Config.Rules].
var errNoRules = errors.New("tokens: this service keeps no revocation rules")

// RevokeClient revokes every token that was issued to client up to now. When it returns nil, the
// rule is in force on this gateway, for cached tokens and for streams. Errors are those of
// [RuleStore.AddRule].
func (s *Service) RevokeClient(ctx context.Context, client, by, why string) (Rule, error) {
	r := ClientRule(client)
	r.By, r.Why = by, why
	return s.AddRule(ctx, r)
}

// AddRule revokes every token that r matches. It returns the rule as it was stored. When the error
// is nil, the rule is in force on this gateway, for cached tokens and for streams. Errors are those
// of [RuleStore.AddRule].
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

// Revocations returns the rules that this gateway knows, in the order of their IDs.
func (s *Service) Revocations() RuleSet {
	if s.cfg.Rules == nil {
		return RuleSet{}
	}
	return s.cfg.Rules.Set()
}

// Lookup returns the token with the given id from the store, for an administrator. If the token has
// a record but is no longer valid, Lookup returns it together with the reason, which matches
// [ErrInvalid]. Without a record the error is [ErrUnknown]. [ErrUnavailable] says nothing about the
// token.
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

// origin decodes an id; ok is false if the layout does not permit it.
func (s *Service) origin(id idgen.ID) (o Origin, ok bool) {
	if id < 0 {
		return Origin{}, false
	}
	worker, ok := s.cfg.Worker(id)
	return Origin{Minted: s.cfg.MintTime(id), Worker: worker}, ok
}

// check checks all of a token but its record.
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

// Dropped reports that another gateway has revoked the token with the given id. The service takes
// this as a hint: it removes what it has cached of the token, and reads the store again for streams
// of the token.
func (s *Service) Dropped(id idgen.ID) {
	s.forget(id)
	s.watches.reread(id)
}

// Gap reports that revocations of single tokens may have been missed. No cached entry decides any
// more, and the store is read for all streams. The cost does not depend on the size of the cache.
func (s *Service) Gap() {
	s.cache.epoch.Add(1)
	s.watches.rereadAll()
	s.writeBack.compare()
}

// WritesLost reports that the store may have lost its last writes, as in a failover. Tokens that
// this service revoked within the last minute, and that are in the store again, are revoked again.
// [Service.Gap] does so as well.
func (s *Service) WritesLost() { s.writeBack.compare() }

// Stats holds numbers for metrics.
type Stats struct {
	Cached  int // tokens in the cache, approximately
	Watched int // tokens with open streams
	Rules   int // revocation rules
	Unknown int // those of them whose kind this version does not know
}

// Stats returns the current numbers.
func (s *Service) Stats() Stats {
	stats := Stats{Cached: s.cache.len(), Watched: s.watches.len()}
	if s.cfg.Rules != nil {
		stats.Rules, stats.Unknown = s.cfg.Rules.Len(), s.cfg.Rules.Unknown()
	}
	return stats
}
