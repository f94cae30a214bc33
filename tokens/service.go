package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"snowgate/idgen"
	"snowgate/scope"
)

const (
	// recordGrace is how much longer a record lives than its token, so that the
	// instant in the record decides and not the store's own clock.
	recordGrace = time.Second
	// issueAttempts bounds how many ids Issue tries when they turn out taken.
	issueAttempts = 3
)

// Generator makes the ids of new tokens.
type Generator interface {
	// Next returns an id that nobody else is given. It may wait until ctx ends.
	Next(ctx context.Context) (idgen.ID, error)
}

// Observer is told how every call ended, as [Reason] words it. It is called by
// many goroutines at once and must not block.
type Observer interface {
	Issued(result string)
	Validated(result string)
	Revoked(result string)
}

// Config is what a [Service] is made of.
type Config struct {
	Store Store     // required
	Keys  *Keyring  // required; its owner runs it
	IDs   Generator // required

	// MintTime reads the instant from an id. Required.
	MintTime func(idgen.ID) time.Time
	// Now is the clock that tokens expire by. Default: time.Now.
	Now func() time.Time
	// Timeout bounds each call that asks the store, however many round trips it
	// takes. 0: only ctx does.
	Timeout time.Duration
	// Observer counts results; may be nil.
	Observer Observer
	// DuplicateID, if set, is told of every id that turned out to be taken:
	// two generators work under one worker number.
	DuplicateID func(idgen.ID)
}

// Service issues, validates and revokes tokens. It is safe for concurrent use.
type Service struct {
	cfg Config
}

// NewService returns a service on cfg. It panics if a required field is missing.
func NewService(cfg Config) *Service {
	if cfg.Store == nil || cfg.Keys == nil || cfg.IDs == nil || cfg.MintTime == nil {
		panic("tokens: NewService without Store, Keys, IDs or MintTime")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observer == nil {
		cfg.Observer = silent{}
	}
	if cfg.DuplicateID == nil {
		cfg.DuplicateID = func(idgen.ID) {}
	}
	return &Service{cfg: cfg}
}

// Grant is what a client has been found entitled to.
type Grant struct {
	Client   string        // never empty
	Scope    scope.List    // may be empty
	Audience []string      // may be empty
	TTL      time.Duration // > 0; fractions of a millisecond are dropped from the expiry
}

var errGrant = errors.New("tokens: a grant needs a client and a lifetime of at least a millisecond")

// Issue makes a token for g and stores its record: one round trip unless the id
// turns out to be taken, when it takes the next one, at most twice.
// What keeps it from issuing matches [ErrUnavailable]; then no token is alive
// that anybody knows the secret of.
func (s *Service) Issue(ctx context.Context, g Grant) (Bearer, Token, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	bearer, token, err := s.issue(ctx, g)
	s.cfg.Observer.Issued(Reason(err))
	return bearer, token, err
}

func (s *Service) issue(ctx context.Context, g Grant) (Bearer, Token, error) {
	if g.Client == "" || g.TTL < time.Millisecond {
		return Bearer{}, Token{}, errGrant
	}
	for range issueAttempts {
		bearer, token, err := s.mint(ctx, g)
		if err != nil {
			return Bearer{}, Token{}, err
		}
		record := Record{Digest: bearer.Digest(), Token: token}
		err = s.cfg.Store.Save(ctx, record, g.TTL+recordGrace)
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

// mint makes a token that is not stored yet.
func (s *Service) mint(ctx context.Context, g Grant) (Bearer, Token, error) {
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
	return bearer, Token{
		ID:        id,
		Client:    g.Client,
		Scope:     g.Scope,
		Audience:  slices.Clone(g.Audience),
		IssuedAt:  issued,
		ExpiresAt: time.UnixMilli(s.cfg.Now().Add(g.TTL).UnixMilli()),
	}, nil
}

// Validate judges the text that a caller presented as a token: the token, an
// error that matches [ErrInvalid] with its reason, or one that matches
// [ErrUnavailable]. Malformed and forged texts are refused without asking the
// store. Whether the token is good for a certain place, [Requirement.Check]
// tells.
func (s *Service) Validate(ctx context.Context, text string) (*Token, error) {
	token, err := s.validate(ctx, text)
	s.cfg.Observer.Validated(Reason(err))
	return token, err
}

func (s *Service) validate(ctx context.Context, text string) (*Token, error) {
	bearer, issued, err := s.authentic(ctx, text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.load(ctx, bearer, issued)
}

// authentic parses text and verifies its tag.
func (s *Service) authentic(ctx context.Context, text string) (Bearer, time.Time, error) {
	bearer, err := ParseBearer(text)
	if err != nil {
		return Bearer{}, time.Time{}, err
	}
	issued := s.cfg.MintTime(bearer.ID())
	return bearer, issued, s.cfg.Keys.Verify(ctx, bearer, issued)
}

// load returns the token that bearer opens, if it is still good.
func (s *Service) load(ctx context.Context, bearer Bearer, issued time.Time) (*Token, error) {
	record, err := s.cfg.Store.Load(ctx, bearer.ID())
	if err != nil {
		return nil, err
	}
	if !record.Digest.Equal(bearer.Digest()) {
		return nil, ErrMismatch
	}
	if !s.cfg.Now().Before(record.Token.ExpiresAt) {
		return nil, ErrExpired
	}
	token := record.Token
	token.IssuedAt = issued
	return &token, nil
}

// Revoke ends the token with the given text on behalf of client (RFC 7009
// §2.1). A text that is no token of ours, or no longer, is no error (§2.2). A
// token of another client is [ErrForeignToken] and lives on. [ErrUnavailable]
// means that the token may still be alive.
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
	bearer, issued, err := s.authentic(ctx, text)
	if err != nil {
		return err
	}
	token, err := s.load(ctx, bearer, issued)
	if err != nil {
		return err
	}
	if token.Client != client {
		return ErrForeignToken
	}
	return s.cfg.Store.Delete(ctx, token.ID)
}

// RevokeID ends the token with the given id, whoever's it is, on behalf of an
// administrator. That there is none is no error.
func (s *Service) RevokeID(ctx context.Context, id idgen.ID) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err := s.cfg.Store.Delete(ctx, id)
	s.cfg.Observer.Revoked(Reason(err))
	return err
}

// bounded applies the budget of one decision.
func (s *Service) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.cfg.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.cfg.Timeout)
}

// silent is the Observer of those who set none.
type silent struct{}

func (silent) Issued(string)    {}
func (silent) Validated(string) {}
func (silent) Revoked(string)   {}
