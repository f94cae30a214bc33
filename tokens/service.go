package tokens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"snowgate/idgen"
	"snowgate/internal/deadline"
	"snowgate/internal/scope"
)

const (
	// recordGrace is how much longer a record lives than its token, so that the expiry in the
	// record decides, and not the clock of the store.
	recordGrace = time.Second
	// issueAttempts bounds how many ids Issue tries if they are taken.
	issueAttempts = 3
)

// Service issues, validates and revokes tokens. It is safe for concurrent use.
type Service struct {
	cfg      Config
	cache    cache
	negative negativeCache
	lookUps  lookUps
	timers   deadline.Timers
	watches  watches
	static   staticMode

	writeBack writeBack
}

// NewService returns a service with cfg. It panics if a required field is missing. The caller must
// call [Service.Close] in the end.
func NewService(cfg Config) *Service {
	s := &Service{cfg: cfg.withDefaults()}
	s.cache.open(s.cfg.CacheSize, s.cfg.CacheTTL, s.cfg.FailStatic, s.cfg.Now)
	s.negative.ttl = min(goneFor, s.cache.ttl)
	s.lookUps.inFlight = make(map[idgen.ID]*lookUp)
	s.static.tell = s.cfg.OnFailStatic
	s.watches.open(s)
	s.writeBack.open(s)
	if s.cfg.Rules != nil {
		s.cfg.Rules.onAdd(s.rulesAdded)
	}
	return s
}

// Close stops the goroutines and timers of the service and waits for them. It does not cut watched
// streams. No other method may be called afterwards.
func (s *Service) Close() {
	s.writeBack.close()
	s.watches.close()
	s.cache.close()
}

// Claims are the properties of a new token.
type Claims struct {
	Client   string        // never empty
	Scope    scope.List    // may be empty
	Audience []string      // may be empty
	TTL      time.Duration // > 0; fractions of a millisecond are dropped from the expiry
	// Generation is the least generation of the token, for a client whose generation does not come
	// from the rules alone.
	Generation uint64
}

var (
	errClaims    = errors.New("tokens: a token needs a client and a lifetime of at least a millisecond")
	errClaimsTTL = errors.New("tokens: the lifetime is longer than the longest that the revocation rules know (RulesConfig.Longest)")
)

// Issue makes a token with claims and stores its record in one round trip. If the id is taken,
// Issue tries another one, at most twice.
//
// For invalid claims, the error matches neither [ErrInvalid] nor [ErrUnavailable]. Any other error
// matches [ErrUnavailable]. The record may have been stored all the same, but no client knows the
// secret.
func (s *Service) Issue(ctx context.Context, claims Claims) (Bearer, Token, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	bearer, token, err := s.issue(ctx, claims)
	s.cfg.Observer.Issued(Reason(err))
	return bearer, token, err
}

func (s *Service) issue(ctx context.Context, claims Claims) (Bearer, Token, error) {
	if claims.Client == "" || claims.TTL < time.Millisecond {
		return Bearer{}, Token{}, errClaims
	}
	if err := s.cfg.Unfit(); err != nil {
		return Bearer{}, Token{}, err
	}
	// With stale rules, the token might be revoked from the start.
	if s.freshness(time.Now()) != fresh {
		return Bearer{}, Token{}, errUnconfirmed
	}
	// A token with a longer lifetime could outlive the rules that match it, and the key of its tag.
	if s.cfg.Rules != nil && claims.TTL > s.cfg.Rules.Longest() {
		return Bearer{}, Token{}, errClaimsTTL
	}
	for range issueAttempts {
		bearer, token, err := s.mint(ctx, claims)
		if err != nil {
			return Bearer{}, Token{}, err
		}
		record := Record{Digest: bearer.Digest(), Token: token}
		err = s.cfg.Store.Save(ctx, record, claims.TTL+recordGrace)
		if err == nil {
			return bearer, token, nil
		}
		if !errors.Is(err, ErrDuplicateID) {
			return Bearer{}, Token{}, err
		}
		s.cfg.DuplicateID(token.ID)
	}
	return Bearer{}, Token{}, fmt.Errorf("%w: %w, %d times in a row", ErrUnavailable, ErrDuplicateID, issueAttempts)
}

// mint makes a token and does not store it.
func (s *Service) mint(ctx context.Context, claims Claims) (Bearer, Token, error) {
	id, err := s.cfg.IDs.Next(ctx)
	if err != nil {
		return Bearer{}, Token{}, fmt.Errorf("%w: no id: %w", ErrUnavailable, err)
	}
	if id < 0 {
		return Bearer{}, Token{}, fmt.Errorf("%w: the generator made %v", ErrUnavailable, id)
	}
	issued := s.cfg.MintTime(id)
	bearer, err := s.cfg.Keys.mint(ctx, id, issued)
	if err != nil {
		return Bearer{}, Token{}, err
	}
	token := Token{
		ID:        id,
		Client:    claims.Client,
		Scope:     claims.Scope,
		Audience:  slices.Clone(claims.Audience),
		IssuedAt:  issued,
		ExpiresAt: time.UnixMilli(s.cfg.Now().Add(claims.TTL).UnixMilli()),

		Generation: claims.Generation,
	}
	if s.cfg.Rules != nil {
		token.Generation = max(token.Generation, s.cfg.Rules.Generation(claims.Client))
	}
	return bearer, token, nil
}

// Revoke ends the token with the given text on behalf of client (RFC 7009 §2.1). Revoking a text
// that is not a token of ours, or is no longer valid, is no error (§2.2). A token of another client
// is [ErrForeignToken] and stays valid. [ErrUnavailable] means that the token may still be alive.
//
// When Revoke returns nil, no decision of this service that begins afterwards finds the token good,
// and the streams that were opened with the token have been cut. This also holds when the store has
// lost the record: the caches of this and of other gateways may still have it.
func (s *Service) Revoke(ctx context.Context, text, client string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err := s.revoke(ctx, text, client)
	result := Reason(err)
	if errors.Is(err, ErrForeignToken) {
		result = "foreign"
	}
	s.cfg.Observer.Revoked(result)
	if errors.Is(err, ErrInvalid) {
		return nil
	}
	return err
}

func (s *Service) revoke(ctx context.Context, text, client string) error {
	bearer, _, err := s.authentic(ctx, text)
	if err != nil {
		return err
	}
	record, err := s.cfg.Store.Load(ctx, bearer.ID())
	if errors.Is(err, ErrUnknown) {
		// Without a record, Delete only informs the other gateways.
		return cmp.Or(s.delete(ctx, bearer.ID()), err)
	}
	if err != nil {
		return err
	}
	switch {
	case !record.Digest.Equal(bearer.Digest()):
		return ErrMismatch
	case !s.cfg.Now().Before(record.Token.ExpiresAt):
		return ErrExpired
	case record.Token.Client != client:
		return ErrForeignToken
	}
	return s.delete(ctx, bearer.ID())
}

// RevokeID revokes the token with the given id, of any client, for an administrator. It is no error
// if the token does not exist. It takes effect like Revoke.
func (s *Service) RevokeID(ctx context.Context, id idgen.ID) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err := s.delete(ctx, id)
	s.cfg.Observer.Revoked(Reason(err))
	return err
}

// delete removes the record of id and the cached entry, and cuts the streams of the token.
func (s *Service) delete(ctx context.Context, id idgen.ID) error {
	err := s.cfg.Store.Delete(ctx, id)
	s.forget(id)
	s.writeBack.add(id)
	if err != nil {
		s.watches.reread(id) // the record may be deleted all the same
		return err
	}
	s.watches.cut(id, ErrRevoked)
	return nil
}

// bounded applies the deadline of one decision.
func (s *Service) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.cfg.Timeout <= 0 {
		return ctx, func() {}
	}
	bounded := s.timers.WithTimeout(ctx, s.cfg.Timeout)
	return bounded, bounded.Release
}
