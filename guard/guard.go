// Package guard checks access tokens for a Go service that callers reach directly, beside a
// snowgate gateway and not through it.
//
// A [Guard] asks the gateway about a token (RFC 7662) and believes the answer for a second at
// most. A revoked token is therefore refused within a second, plus the time that the gateways
// need among themselves. If the gateway cannot be asked, the response is 503 and never 401.
//
// The package needs the standard library only.
package guard

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// The errors of Verify, for [errors.Is].
var (
	// ErrInvalid means that the token is unknown, expired, revoked, forged or for others.
	ErrInvalid = errors.New("guard: the access token is not valid here")
	// ErrScope means that the token is good and lacks a scope.
	ErrScope = errors.New("guard: the access token lacks a scope")
	// ErrUnavailable means that the gateway could not be asked, or refuses the service's own
	// credentials. Nothing is known of the token.
	ErrUnavailable = errors.New("guard: the gateway cannot be asked about the access token")
)

const (
	// believed bounds how long a response of the gateway is used.
	believed = time.Second
	// lookupTimeout bounds one question to the gateway, whoever waits for it.
	lookupTimeout = 5 * time.Second
	// tokenLength is the length of a token of snowgate, in bytes.
	tokenLength = 70
	// defaultCacheSize is how many tokens are kept where Options do not say it.
	defaultCacheSize = 100_000
)

// Credentials are those of the service. Its client needs the right to introspect.
type Credentials struct {
	// ID is the id of the client, Secret its secret.
	ID, Secret string
	// SecretFile is the path of a file with the secret, in place of Secret. It is read for each
	// question, so that the secret can be changed without a restart.
	SecretFile string
}

// Options say what is accepted, and how.
type Options struct {
	// Audience must be among the audiences of a token: the service's own URI. Required, unless
	// AnyAudience is set.
	Audience string
	// AnyAudience accepts tokens that were issued for other services, too.
	AnyAudience bool
	// CacheSize bounds how many tokens are kept; 0 means 100 000.
	CacheSize int
	// Client sends the questions; nil means one with a transport of its own.
	Client *http.Client
}

// Identity is what a good token stands for. It is shared by requests: do not change it.
type Identity struct {
	TokenID  string // public, for logs
	Client   string
	Scopes   []string
	Audience []string
	Expiry   time.Time
}

// Guard checks tokens. Its methods may be called concurrently.
type Guard struct {
	issuer      string
	credentials Credentials
	options     Options
	client      *http.Client
	metadata    string // URL of the gateway's resource metadata

	mu      sync.RWMutex
	young   map[digest]entry // answers; at most half of the cache's size
	old     map[digest]entry // those before, which go all at once
	lookups map[digest]*lookup
}

// digest is the SHA-256 of a token: the guard keeps no token.
type digest [sha256.Size]byte

// entry is a response for an active token.
type entry struct {
	identity *Identity
	until    time.Time // never behind the token's end
}

// lookup is one question to the gateway that callers wait for.
type lookup struct {
	done  chan struct{} // closed at the end; found and err are set before
	found entry
	err   error
}

// New returns a Guard for a gateway. It contacts nobody: the gateway may be down while the
// service starts. The error names every fault.
func New(issuer string, c Credentials, o Options) (*Guard, error) {
	var faults []error
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		faults = append(faults, errors.New("issuer: needs to be the URL of the gateway, like https://gateway.example"))
	}
	if c.ID == "" || (c.Secret == "") == (c.SecretFile == "") {
		faults = append(faults, errors.New("credentials: needs ID, and either Secret or SecretFile"))
	}
	if (o.Audience == "") != o.AnyAudience {
		faults = append(faults, errors.New("options: needs either Audience or AnyAudience"))
	}
	if o.CacheSize < 0 {
		faults = append(faults, errors.New("options: CacheSize needs to be positive"))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("guard: %w", errors.Join(faults...))
	}
	if o.CacheSize == 0 {
		o.CacheSize = defaultCacheSize
	}
	client := &http.Client{}
	if o.Client != nil {
		*client = *o.Client
	} else {
		client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: 64, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base := strings.TrimSuffix(issuer, "/")
	metadata := u.Scheme + "://" + u.Host + "/.well-known/oauth-protected-resource" + strings.TrimSuffix(u.EscapedPath(), "/")
	return &Guard{
		issuer: base, credentials: c, options: o, client: client, metadata: metadata,
		young: map[digest]entry{}, old: map[digest]entry{}, lookups: map[digest]*lookup{},
	}, nil
}

// Verify returns what a token stands for if it is good and has all scopes. Else the error is
// ErrInvalid, ErrScope or ErrUnavailable, or that of ctx. Callers that show the same token at
// the same time share one question to the gateway; ctx bounds this caller's wait only.
func (g *Guard) Verify(ctx context.Context, token string, scopes ...string) (*Identity, error) {
	if !plausible(token) {
		return nil, ErrInvalid
	}
	var text [tokenLength]byte // on the stack, so that a cached check does not allocate
	copy(text[:], token)
	key := digest(sha256.Sum256(text[:]))
	identity := g.cached(key, time.Now())
	if identity == nil {
		found, err := g.ask(ctx, key, token)
		if err != nil {
			return nil, err
		}
		// The response may have ended while this caller waited.
		if identity = found.identity; !time.Now().Before(identity.Expiry) {
			return nil, ErrInvalid
		}
	}
	for _, wanted := range scopes {
		if !slices.Contains(identity.Scopes, wanted) {
			return nil, ErrScope
		}
	}
	return identity, nil
}

// plausible reports whether text has the form of a token: others are refused without a question.
func plausible(text string) bool {
	const prefix = "sgt_"
	if len(text) != tokenLength || text[:len(prefix)] != prefix || text[len(prefix)+11] != '_' {
		return false
	}
	for i := len(prefix); i < len(text); i++ {
		c := text[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return true
}

// cached returns a fresh response, or nil.
func (g *Guard) cached(key digest, now time.Time) *Identity {
	g.mu.RLock()
	defer g.mu.RUnlock()
	found, ok := g.young[key]
	if !ok {
		found, ok = g.old[key]
	}
	if !ok || !now.Before(found.until) {
		return nil
	}
	return found.identity
}

// ask waits for the response to one question about a token, which it sends if none is under way.
func (g *Guard) ask(ctx context.Context, key digest, token string) (entry, error) {
	g.mu.Lock()
	running, ok := g.lookups[key]
	if !ok {
		running = &lookup{done: make(chan struct{})}
		g.lookups[key] = running
		g.start(running, key, token)
	}
	g.mu.Unlock()
	select {
	case <-running.done:
		return running.found, running.err
	case <-ctx.Done():
		return entry{}, ctx.Err()
	}
}

// start sends a question in the background. A fault is told to those that wait, and not kept.
func (g *Guard) start(running *lookup, key digest, token string) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		defer close(running.done)
		sent := time.Now()
		identity, err := g.introspect(ctx, token)
		running.err = err
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.lookups, key)
		if err != nil {
			delete(g.young, key)
			delete(g.old, key)
			return
		}
		until := sent.Add(believed) // not later: the gateway judged after sent
		if identity.Expiry.Before(until) {
			until = identity.Expiry
		}
		running.found = entry{identity, until}
		if len(g.young) >= max(g.options.CacheSize/2, 1) {
			g.young, g.old = map[digest]entry{}, g.young
		}
		g.young[key] = running.found
	}()
}
