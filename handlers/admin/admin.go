// Package admin is the JSON API of operators, below /admin/v1/ of the admin
// listener: clients and their secrets, tokens, revocations, tag keys, and a look
// at routes and health. openapi.json describes it, and a test holds the two
// together.
//
// Authentication happens before a request gets here. Every change leaves one audit line that says
// who did what to whom, see [API].
package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/tokens"
)

// Prefix is where the API lives on the admin listener.
const Prefix = "/admin/v1"

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 10

// ClientRegistry is what this gateway knows of all clients. [clients.Registry] is
// one.
type ClientRegistry interface {
	// Lookup returns the client with that id, or nil.
	Lookup(id string) *clients.Client
	// Page returns up to limit clients that are wanted, in the order of their
	// ids, beginning behind the id after, and tells whether there are more.
	Page(after string, limit int, wanted func(*clients.Client) bool) (page []*clients.Client, more bool)
	// Current reports whether those of the store were found to be complete a
	// moment ago.
	Current() bool
}

// ClientStore keeps the clients that can be changed. [clients.Store] implements it and documents
// what the methods promise and how they fail.
type ClientStore interface {
	Create(ctx context.Context, d clients.Document, secret clients.Credential) (clients.Change, error)
	Update(ctx context.Context, d clients.Document, expected uint64) (clients.Change, error)
	Delete(ctx context.Context, id string, expected uint64) (clients.Change, error)
	AddSecret(ctx context.Context, id string, secret clients.Credential, others time.Time, expected uint64) (clients.Change, error)
	RemoveSecret(ctx context.Context, id, secretID string, expected uint64) (clients.Change, error)
	Load(ctx context.Context, id string) (*clients.Client, error)
	LastUsed(ctx context.Context, of ...*clients.Client) (map[clients.SecretRef]time.Time, error)
}

// TokenService looks at single tokens and ends them. [tokens.Service] is one.
type TokenService interface {
	// Lookup returns a token that still has a record, with the reason if it is
	// not good; without one the token is the zero value.
	Lookup(ctx context.Context, id idgen.ID) (tokens.Token, error)
	// RevokeID ends a token. That there is none is no error.
	RevokeID(ctx context.Context, id idgen.ID) error
}

// RuleService holds the revocation rules. [tokens.Service] is one.
type RuleService interface {
	// AddRule returns the rule as it is stored, or an error that matches
	// [tokens.ErrRule], [tokens.ErrRuleInFuture] or [tokens.ErrUnavailable].
	AddRule(ctx context.Context, r tokens.Rule) (tokens.Rule, error)
	// Revocations returns the rules in force that are known here.
	Revocations() tokens.RuleSet
	// CountRule counts live tokens that a rule covers, and writes nothing; it continues from a
	// cursor. See [tokens.Service.CountRule] for its promises and its errors.
	CountRule(ctx context.Context, r tokens.Rule, cursor string) (tokens.Coverage, error)
}

// KeyService holds the tag keys. [tokens.Keyring] is one.
type KeyService interface {
	// Rotate starts a new key and returns the instant from which on it signs.
	Rotate(ctx context.Context) (time.Time, error)
	// Starts returns the instants from which on the keys sign, the first key's
	// being the zero time, in their order.
	Starts() []time.Time
}

// API serves the admin API. It is safe for concurrent use; its fields must not
// change once it serves, and all of them are required that do not say otherwise.
//
// Each change, and each attempt at one, is written to Log as one line "audit",
// whatever the level of the log: actor and actor_token_id, action, target,
// before and after, reason, outcome (ok, refused, failed) and request_id. What
// failed may have happened all the same. No line holds a secret or a digest.
type API struct {
	Clients ClientRegistry
	Store   ClientStore
	Tokens  TokenService
	Rules   RuleService
	Keys    KeyService
	// IDs decodes ids, and knows which worker numbers there can be.
	IDs *handlers.IDs
	// RouteTable returns the routes in force.
	RouteTable func() []Route
	// Discovery tells how routes are discovered; nil: none are.
	Discovery func() Discovery
	// Health returns the state of this gateway without waiting for anything.
	Health func() Health
	// MaxTTL is the longest lifetime that tokens of a client may have.
	MaxTTL time.Duration
	// Now is the clock by which secrets expire.
	Now func() time.Time
	Log zerolog.Logger
}

// methods holds the handler of each method of a resource. HEAD is GET's.
type methods map[string]problem.HandlerFunc

// resource is one path of the API.
type resource struct {
	path    string // a pattern of chi, below [Prefix]
	methods methods
}

// resources is the whole API.
func (a *API) resources() []resource {
	return []resource{
		{"/clients", methods{
			http.MethodGet:  a.listClients,
			http.MethodPost: a.audited(a.createClient),
		}},
		{"/clients/{id}", methods{
			http.MethodGet:    a.readClient,
			http.MethodPut:    a.audited(a.replaceClient),
			http.MethodDelete: a.audited(a.deleteClient),
		}},
		{"/clients/{id}/secrets", methods{
			http.MethodGet:  a.listSecrets,
			http.MethodPost: a.audited(a.addSecret),
		}},
		{"/clients/{id}/secrets/{secret}", methods{
			http.MethodDelete: a.audited(a.removeSecret),
		}},
		{"/tokens/{id}", methods{
			http.MethodGet:    a.readToken,
			http.MethodDelete: a.audited(a.revokeToken),
		}},
		{"/revocations", methods{
			http.MethodGet:  a.listRevocations,
			http.MethodPost: a.postRevocation,
		}},
		{"/revocations/{id}", methods{
			http.MethodDelete: a.audited(a.keepRevocation),
		}},
		{"/keys", methods{
			http.MethodGet:  a.listKeys,
			http.MethodPost: a.audited(a.rotateKey),
		}},
		{"/routes", methods{http.MethodGet: a.listRoutes}},
		{"/ids/{id}", methods{http.MethodGet: a.IDs.Read}},
		{"/health", methods{http.MethodGet: a.readHealth}},
		{"/openapi.json", methods{http.MethodGet: readOpenAPI}},
	}
}

// Routes registers the API with r under [Prefix]. The caller must put the check of the token in
// front, and must limit the time for a body.
func (a *API) Routes(r chi.Router) {
	r = r.With(sameSite)
	for _, resource := range a.resources() {
		r.Handle(Prefix+resource.path, resource.methods)
	}
	r.Handle(Prefix+"/*", problem.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		return problem.New(http.StatusNotFound, "", nil)
	}))
}

// ServeHTTP answers by the method of r, with 405 if there is none (RFC 9110
// §15.5.6).
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	handler, ok := m[method]
	if !ok {
		problem.Write(w, r, problem.MethodNotAllowed(m.allow()))
		return
	}
	handler.ServeHTTP(w, r)
}

// allow lists the methods for the Allow header.
func (m methods) allow() string {
	var names []string
	for name := range m {
		names = append(names, name)
		if name == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// sameSite refuses what a page of another site makes a browser send, reading
// included: nothing here is for pages of others.
func sameSite(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Reading is checked like writing.
		asWrite := &http.Request{Method: http.MethodPost, Host: r.Host, Header: r.Header, URL: r.URL}
		if err := protection.Check(asWrite); err != nil {
			problem.Write(w, r, problem.New(http.StatusForbidden, "A page of another site sent this request.", err))
			return
		}
		next.ServeHTTP(w, r)
	})
}
