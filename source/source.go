// Package source gets access tokens for a program that calls services behind an OAuth 2.0
// gateway such as snowgate, by the client credentials grant (RFC 6749 §4.4).
//
// A [Source] keeps one token. It renews the token in the background at about 80 % of the
// lifetime, shares each fetch among all callers, and reads secrets from their files again for
// each fetch. [Source.Transport] adds the token to the requests of an [http.Client], and fetches
// another one when a service refuses it.
//
// The package needs the standard library only.
package source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// fetchTimeout bounds one fetch, whoever waits for it.
	fetchTimeout = 10 * time.Second
	// dropInterval is how long after a refused token was replaced the next refusal is ignored.
	// Without it, a service that refuses every token would cause a fetch for each request.
	dropInterval = 10 * time.Second
	// maxMargin bounds how long before its end a token is no longer handed out.
	maxMargin = 5 * time.Second
)

// Config says where a Source gets its tokens and how it authenticates. Exactly one of Secret,
// SecretFile and AssertionFile is needed.
type Config struct {
	// TokenURL is the token endpoint, such as https://gateway.example/oauth2/token.
	TokenURL string
	// ClientID is the id of the client that the program acts as.
	ClientID string
	// Secret is the client secret. Prefer SecretFile, which can be changed without a restart.
	Secret string
	// SecretFile is the path of a file with the client secret. The Source reads it for each
	// fetch, and ignores white space around the secret.
	SecretFile string
	// AssertionFile is the path of a file with a JWT that authenticates the client (RFC 7523
	// §2.2), such as a mounted service account token. The Source reads it for each fetch.
	// Snowgate itself does not accept assertions yet.
	AssertionFile string
	// Scopes are asked for; none means the client's default.
	Scopes []string
	// Resources are the audiences asked for (RFC 8707); none means all of the client's.
	Resources []string
	// Client sends the token requests; nil means one with a transport of its own. Redirects are
	// never followed: they would carry the secret away.
	Client *http.Client
}

// check returns every fault of c.
func (c Config) check() error {
	var faults []error
	u, err := url.Parse(c.TokenURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Fragment != "" {
		faults = append(faults, errors.New("TokenURL: needs to be like https://gateway.example/oauth2/token"))
	}
	if c.ClientID == "" {
		faults = append(faults, errors.New("ClientID: needs to be set"))
	}
	given := 0
	for _, text := range []string{c.Secret, c.SecretFile, c.AssertionFile} {
		if text != "" {
			given++
		}
	}
	if given != 1 {
		faults = append(faults, errors.New("needs exactly one of Secret, SecretFile and AssertionFile"))
	}
	return errors.Join(faults...)
}

// Source hands out one access token and keeps it fresh. Its methods may be called concurrently.
// A Source has no goroutine while it is idle, so there is nothing to close: the first call after
// about 80 % of the lifetime starts the renewal and returns the present token at once.
type Source struct {
	config Config
	client *http.Client

	mu       sync.Mutex
	token    Token     // zero: none
	renewAt  time.Time // when token should be renewed
	fetching *fetch    // nil: no fetch under way
	failure  *failure  // nil: the last fetch worked
	replaced time.Time // when a refused token was dropped last
}

// fetch is one token request that callers wait for.
type fetch struct {
	done  chan struct{} // closed at the end; token and err are set before
	token Token
	err   error
}

// failure is why the last fetch failed, and when the next one may start.
type failure struct {
	err         error
	credentials [32]byte // digest of the credentials that were sent
	retryAt     time.Time
	count       int // failures in a row
}

// New returns a Source. It contacts nobody and reads no file; the error names every fault of c.
func New(c Config) (*Source, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	client := &http.Client{}
	if c.Client != nil {
		*client = *c.Client
	} else {
		client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Jar = nil
	return &Source{config: c, client: client}, nil
}

// Token returns a token that is still good, and fetches one if there is none. Callers that need
// one at the same time share one fetch; ctx bounds how long this caller waits, not the fetch.
//
// After a failure, Token returns the same *[Error] without a request until the instant that the
// server named in Retry-After, or else for a second and longer each time, up to 30 seconds.
func (s *Source) Token(ctx context.Context) (Token, error) {
	if err := ctx.Err(); err != nil {
		return Token{}, err
	}
	s.mu.Lock()
	now := time.Now()
	usable := s.token.usable(now)
	if usable && now.Before(s.renewAt) {
		defer s.mu.Unlock()
		return s.token, nil
	}
	if usable {
		defer s.mu.Unlock()
		if s.fetching == nil && !s.blocked(now) {
			s.start()
		}
		return s.token, nil
	}
	if s.fetching == nil {
		if s.blocked(now) {
			defer s.mu.Unlock()
			return Token{}, s.failure.err
		}
		s.start()
	}
	running := s.fetching
	s.mu.Unlock()
	select {
	case <-running.done:
		return running.token, running.err
	case <-ctx.Done():
		return Token{}, fmt.Errorf("source: waiting for a token of client %q: %w", s.config.ClientID, ctx.Err())
	}
}

// Drop forgets a token that a service refused, so that the next call of Token fetches another
// one. Drop does nothing if value is no longer the present token: many callers that were refused
// with one token cause one fetch. It also does nothing within 10 seconds of the last token that
// was dropped, so that a service that refuses every token causes no stream of fetches. It reports
// whether Token may now return another token than value.
func (s *Source) Drop(value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.token.value != value:
		return true
	case !s.replaced.IsZero() && now.Sub(s.replaced) < dropInterval:
		return false
	}
	s.token, s.replaced = Token{}, now
	return true
}

// start begins a fetch. s.mu is held.
func (s *Source) start() {
	running := &fetch{done: make(chan struct{})}
	s.fetching = running
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		defer close(running.done)
		sent := time.Now()
		token, credentials, err := s.request(ctx)
		s.finish(running, sent, token, credentials, err)
	}()
}

// finish records the end of a fetch that began at sent.
func (s *Source) finish(running *fetch, sent time.Time, token Token, credentials [32]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetching = nil
	running.token, running.err = token, err
	if err == nil {
		s.token, s.failure = token, nil
		share := 0.75 + 0.1*rand.Float64() //nolint:gosec // spreads load; nothing secret
		s.renewAt = sent.Add(time.Duration(share * float64(token.Expiry.Sub(sent))))
		return
	}
	next := &failure{err: err, credentials: credentials, count: 1}
	if s.failure != nil {
		next.count = s.failure.count + 1
	}
	next.retryAt = time.Now().Add(pause(next.count))
	if refused, ok := errors.AsType[*Error](err); ok && refused.RetryAt.After(time.Now()) {
		next.retryAt = refused.RetryAt
	}
	s.failure = next
}

// pause is how long to wait after so many failures in a row: 1, 2, 4 … 30 seconds, less up to a
// quarter, so that many programs do not come back at the same instant.
func pause(failures int) time.Duration {
	longest := min(30*time.Second, time.Second<<min(failures-1, 5))
	return longest - time.Duration(rand.Int64N(int64(longest/4))) //nolint:gosec // spreads load; nothing secret
}

// blocked reports whether the last failure still forbids a fetch. Other credentials than those
// that were refused end the wait, unless the server named its end. s.mu is held.
func (s *Source) blocked(now time.Time) bool {
	if s.failure == nil || !now.Before(s.failure.retryAt) {
		return false
	}
	refused, ok := errors.AsType[*Error](s.failure.err)
	if !ok || refused.Code != "invalid_client" || !refused.RetryAt.IsZero() {
		return true
	}
	_, credentials, err := s.config.credentials()
	return err != nil || credentials == s.failure.credentials
}
