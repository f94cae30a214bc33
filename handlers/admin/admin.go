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

// Prefix is the path of the API on the admin listener.
const Prefix = "/admin/v1"

// maxBody limits the body of a request, in bytes.
const maxBody = 64 << 10

// ClientRegistry is the local copy of all clients. [clients.Registry] implements it.
type ClientRegistry interface {
	// Lookup returns the client with that id, or nil.
	Lookup(id string) *clients.Client
	// Page returns up to limit wanted clients in the order of their ids, starting after the id
	// after. It also reports whether there are more.
	Page(after string, limit int, wanted func(*clients.Client) bool) (page []*clients.Client, more bool)
	// Current reports whether the copy of the stored clients was complete a moment ago.
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

// TokenService inspects and revokes single tokens. [tokens.Service] implements it.
type TokenService interface {
	// Lookup returns a token that still has a record. If the token is not valid, the error says
	// why. Without a record, the token is the zero value.
	Lookup(ctx context.Context, id idgen.ID) (tokens.Token, error)
	// RevokeID revokes a token. An unknown id is not an error.
	RevokeID(ctx context.Context, id idgen.ID) error
}

// RuleService holds the revocation rules. [tokens.Service] implements it.
type RuleService interface {
	// AddRule returns the stored rule. Its error matches [tokens.ErrRule], [tokens.ErrRuleInFuture]
	// or [tokens.ErrUnavailable].
	AddRule(ctx context.Context, r tokens.Rule) (tokens.Rule, error)
	// Revocations returns the rules in force that this gateway knows.
	Revocations() tokens.RuleSet
	// CountRule counts live tokens that a rule covers, and writes nothing; it continues from a
	// cursor. See [tokens.Service.CountRule] for its promises and its errors.
	CountRule(ctx context.Context, r tokens.Rule, cursor string) (tokens.Coverage, error)
}

// KeyService holds the tag keys. [tokens.Keyring] implements it.
type KeyService interface {
	// Rotate starts a new key and returns the time from which the key signs.
	Rotate(ctx context.Context) (time.Time, error)
	// Starts returns, in order, the times from which the keys sign. For the first key this is the
	// zero time.
	Starts() []time.Time
}

// API serves the admin API. It is safe for concurrent use. Its fields must not change once it
// serves. All fields are required unless they say otherwise.
//
// The API writes one line "audit" to Log for each change, and for each attempt at one, whatever the
// level of the log. The keys are actor and actor_token_id, action, target, before and after,
// reason, outcome (ok, refused, failed) and request_id. A change with the outcome failed may have
// happened nevertheless. No line holds a secret or a digest.
type API struct {
	Clients ClientRegistry
	Store   ClientStore
	Tokens  TokenService
	Rules   RuleService
	Keys    KeyService
	// IDs decodes ids, and knows the valid worker numbers.
	IDs *handlers.IDs
	// RouteTable returns the routes in force.
	RouteTable func() []Route
	// Discovery returns the state of the discovery of routes; nil: routes are not discovered.
	Discovery func() Discovery
	// Health returns the state of this gateway. It must not block.
	Health func() Health
	// MaxTTL is the longest lifetime that the tokens of a client may have.
	MaxTTL time.Duration
	// Now is the clock for the expiry of secrets.
	Now func() time.Time
	Log zerolog.Logger
}

// methods maps the methods of a resource to their handlers. HEAD uses the handler of GET.
type methods map[string]problem.HandlerFunc

// resource is one path of the API.
type resource struct {
	path    string // a pattern of chi, below [Prefix]
	methods methods
}

// resources returns all resources of the API.
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

// ServeHTTP calls the handler for the method of r. It responds with 405 if there is none (RFC 9110
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

// allow returns the value of the Allow header.
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

// sameSite refuses requests that the page of another site makes a browser send. It also refuses
// reads, because no page of another site has a use for them.
func sameSite(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A read is checked like a write.
		asWrite := &http.Request{Method: http.MethodPost, Host: r.Host, Header: r.Header, URL: r.URL}
		if err := protection.Check(asWrite); err != nil {
			problem.Write(w, r, problem.New(http.StatusForbidden, "A page of another site sent this request.", err))
			return
		}
		next.ServeHTTP(w, r)
	})
}
