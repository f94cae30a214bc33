package clients

import (
	"crypto/sha256"
	"crypto/subtle"
	"sync/atomic"
	"time"
)

// Registry holds all clients. Readers never wait: a change puts a whole new
// snapshot in place of the old one. Use [NewRegistry]; all methods are safe for
// concurrent use.
type Registry struct {
	defaultTTL time.Duration
	current    atomic.Pointer[snapshot]
}

// snapshot is one immutable state of the registry.
type snapshot struct {
	clients map[string]*Client
	// slots is the number of comparisons of every authentication: the largest
	// number of secrets that any client has, at least 1.
	slots int
}

// NewRegistry returns an empty registry. defaultTTL is the token lifetime of
// clients that do not state one.
func NewRegistry(defaultTTL time.Duration) *Registry {
	r := &Registry{defaultTTL: defaultTTL}
	r.Replace(nil)
	return r
}

// Replace makes all the clients, and no others, the content of the registry.
// The registry keeps what the values point to; it must not be modified any
// more. Of two clients with one id the later one wins; the configuration
// refuses such a file.
func (r *Registry) Replace(all []Client) {
	next := &snapshot{clients: make(map[string]*Client, len(all)), slots: 1}
	for _, c := range all {
		if c.TokenTTL == 0 {
			c.TokenTTL = r.defaultTTL
		}
		next.clients[c.ID] = &c
		next.slots = max(next.slots, len(c.Secrets))
	}
	r.current.Store(next)
}

// Lookup returns the client with the given id, or nil.
func (r *Registry) Lookup(id string) *Client {
	return r.current.Load().clients[id]
}

// Len returns the number of clients.
func (r *Registry) Len() int {
	return len(r.current.Load().clients)
}

// Authenticate returns the client that id names if secret is one of its
// secrets and that is good at now. Anything else is [ErrUnauthenticated], with
// the same text and after the same work: one hash and a number of comparisons
// that depends on neither id nor secret. An empty secret never authenticates.
// It does not allocate for a secret of the usual length.
func (r *Registry) Authenticate(id, secret string, now time.Time) (*Client, error) {
	s := r.current.Load()
	client, known := s.clients[id]
	if !known {
		client = &nobody
	}
	matched, _ := match(client.Secrets, Digest(secret), s.slots, now)
	if !matched || !known || secret == "" {
		return nil, ErrUnauthenticated
	}
	return client, nil
}

// nobody stands in for unknown clients.
var nobody Client

// match compares digest with every secret, and with dummies up to slots, and
// says how many comparisons that were. It never stops early, neither at a hit
// nor at an expired secret.
func match(secrets []Secret, digest [sha256.Size]byte, slots int, now time.Time) (matched bool, comparisons int) {
	found := 0
	for i := range slots {
		candidate, live := Secret{}, 0
		if i < len(secrets) {
			candidate = secrets[i]
			if candidate.Live(now) {
				live = 1
			}
		}
		found |= live & subtle.ConstantTimeCompare(candidate.SHA256[:], digest[:])
		comparisons++
	}
	return found == 1, comparisons
}
