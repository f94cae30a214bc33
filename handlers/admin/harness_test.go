package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// noon is the time of the tests.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// errStore is the error of a store that cannot be reached.
var errStore = errors.New("connection refused")

// fakeStore keeps clients in a real registry, as the real store does.
type fakeStore struct {
	mu       sync.Mutex
	registry *clients.Registry
	revision uint64
	stored   map[string]clients.Client
	used     map[clients.SecretRef]time.Time
	err      error // error of every call
}

func (s *fakeStore) put(before *clients.Client, after clients.Client) clients.Change {
	s.revision++
	after.Revision, after.Source, after.UpdatedAt = s.revision, clients.SourceRegistry, noon
	s.stored[after.ID] = after
	s.registry.ChangeStored([]clients.Client{after}, nil)
	return clients.Change{Before: before, After: &after}
}

func (s *fakeStore) find(id string, expected uint64) (*clients.Client, error) {
	if s.err != nil {
		return nil, s.err
	}
	if c := s.registry.Lookup(id); c != nil && c.Source != clients.SourceRegistry {
		return nil, clients.ErrReadOnly
	}
	c, ok := s.stored[id]
	switch {
	case !ok:
		return nil, clients.ErrNotFound
	case expected != 0 && expected != c.Revision:
		return nil, clients.ErrConflict
	}
	return &c, nil
}

func (s *fakeStore) Create(_ context.Context, d clients.Document, secret clients.Credential) (clients.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find(d.ID, 0); !errors.Is(err, clients.ErrNotFound) {
		if err == nil || errors.Is(err, clients.ErrReadOnly) {
			err = clients.ErrExists
		}
		return clients.Change{}, err
	}
	kept := secret.Secret()
	kept.ID = "s1"
	made := s.put(nil, clients.Client{
		ID: d.ID, Name: d.Name, Scopes: d.Scopes, Audiences: d.Audiences, TokenTTL: d.TokenTTL, Rate: d.Rate,
		Introspect: d.Introspect, Disabled: d.Disabled, Secrets: []clients.Secret{kept}, CreatedAt: noon,
	})
	made.Secret = kept
	return made, nil
}

func (s *fakeStore) Update(_ context.Context, d clients.Document, expected uint64) (clients.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.find(d.ID, expected)
	if err != nil {
		return clients.Change{}, err
	}
	after := *before
	after.Name, after.Scopes, after.Audiences, after.TokenTTL = d.Name, d.Scopes, d.Audiences, d.TokenTTL
	after.Rate, after.Introspect, after.Disabled = d.Rate, d.Introspect, d.Disabled
	return s.put(before, after), nil
}

func (s *fakeStore) Delete(_ context.Context, id string, expected uint64) (clients.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.find(id, expected)
	if err != nil {
		return clients.Change{}, err
	}
	s.revision++
	delete(s.stored, id)
	s.registry.ChangeStored(nil, []string{id})
	return clients.Change{Before: before}, nil
}

func (s *fakeStore) AddSecret(_ context.Context, id string, secret clients.Credential, others time.Time, expected uint64) (clients.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.find(id, expected)
	if err != nil {
		return clients.Change{}, err
	}
	if len(before.Secrets) == clients.MaxSecrets {
		return clients.Change{}, clients.ErrTooManySecrets
	}
	after := *before
	after.Secrets = slices.Clone(before.Secrets)
	if !others.IsZero() {
		for i := range after.Secrets {
			after.Secrets[i].ExpiresAt = others
		}
		after.Secrets = slices.DeleteFunc(after.Secrets, func(s clients.Secret) bool { return !s.Live(noon) })
	}
	kept := secret.Secret()
	kept.ID = fmt.Sprintf("s%d", len(before.Secrets)+1)
	after.Secrets = append(after.Secrets, kept)
	done := s.put(before, after)
	done.Secret = kept
	return done, nil
}

func (s *fakeStore) RemoveSecret(_ context.Context, id, secretID string, expected uint64) (clients.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, err := s.find(id, expected)
	if err != nil {
		return clients.Change{}, err
	}
	after := *before
	after.Secrets = slices.DeleteFunc(slices.Clone(before.Secrets), func(s clients.Secret) bool { return s.ID == secretID })
	if len(after.Secrets) == len(before.Secrets) {
		return clients.Change{}, clients.ErrNotFound
	}
	return s.put(before, after), nil
}

func (s *fakeStore) Load(_ context.Context, id string) (*clients.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(id, 0)
}

func (s *fakeStore) LastUsed(context.Context, ...*clients.Client) (map[clients.SecretRef]time.Time, error) {
	return s.used, s.err
}

// fakeTokens holds tokens, rules and keys.
type fakeTokens struct {
	tokens map[idgen.ID]tokens.Token
	why    error // why the tokens are not valid
	rules  tokens.RuleSet
	starts []time.Time
	err    error // error of every call
}

func (f *fakeTokens) Lookup(_ context.Context, id idgen.ID) (tokens.Token, error) {
	if f.err != nil {
		return tokens.Token{}, f.err
	}
	token, ok := f.tokens[id]
	if !ok {
		return tokens.Token{}, tokens.ErrUnknown
	}
	return token, f.why
}

func (f *fakeTokens) RevokeID(_ context.Context, id idgen.ID) error {
	delete(f.tokens, id)
	return f.err
}

func (f *fakeTokens) AddRule(_ context.Context, r tokens.Rule) (tokens.Rule, error) {
	if f.err != nil {
		return r, f.err
	}
	if err := r.Check(noon); err != nil {
		return r, err
	}
	r.Created, r.End = noon, noon.Add(time.Hour)
	if r.Kind == tokens.RuleClient {
		r.Generation = 7
	}
	f.rules.Rules = append(f.rules.Rules, r)
	return r, nil
}

func (f *fakeTokens) Revocations() tokens.RuleSet { return f.rules }

// CountRule finds all tokens in two steps. The first step finds none.
func (f *fakeTokens) CountRule(_ context.Context, _ tokens.Rule, cursor string) (tokens.Coverage, error) {
	switch {
	case f.err != nil:
		return tokens.Coverage{}, f.err
	case cursor == "":
		return tokens.Coverage{Seen: 5, Next: "0.17"}, nil
	case cursor != "0.17":
		return tokens.Coverage{}, tokens.ErrCursor
	}
	return tokens.Coverage{Tokens: len(f.tokens), Seen: len(f.tokens)}, nil
}

func (f *fakeTokens) Rotate(context.Context) (time.Time, error) {
	if f.err != nil {
		return time.Time{}, f.err
	}
	f.starts = append(f.starts, noon.Add(time.Minute))
	return noon.Add(time.Minute), nil
}

func (f *fakeTokens) Starts() []time.Time { return f.starts }

// bench is an API with everything that it needs.
type bench struct {
	t       *testing.T
	api     *API
	store   *fakeStore
	tokens  *fakeTokens
	handler http.Handler
	log     *bytes.Buffer
	spec    routers.Router
}

// aToken is the id of a token that the bench knows.
const aToken = "00000000001"

// configured is a client of the configuration file.
var configured = clients.Client{
	ID: "configured", Scopes: scope.Of("a"), Secrets: []clients.Secret{{ID: "s1", SHA256: clients.Digest("x")}},
}

func newBench(t *testing.T) *bench {
	t.Helper()
	registry := clients.NewRegistry(time.Hour)
	if err := registry.ReplaceFile([]clients.Client{configured}); err != nil {
		t.Fatal(err)
	}
	registry.Complete(1)
	layout, err := idgen.ParseLayout("time:41,worker:10,sequence:12")
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := idgen.NewScheme(layout, noon.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		t: t, log: new(bytes.Buffer), spec: specification(t),
		store: &fakeStore{registry: registry, revision: 1, stored: map[string]clients.Client{}, used: map[clients.SecretRef]time.Time{}},
		tokens: &fakeTokens{
			tokens: map[idgen.ID]tokens.Token{1: {ID: 1, Client: "configured", Scope: "a", IssuedAt: noon, ExpiresAt: noon.Add(time.Hour)}},
			starts: []time.Time{{}, noon.Add(-time.Hour)},
		},
	}
	b.api = &API{
		Clients: registry, Store: b.store, Tokens: b.tokens, Rules: b.tokens, Keys: b.tokens,
		IDs: &handlers.IDs{Scheme: scheme},
		RouteTable: func() []Route {
			return []Route{{Name: "orders", Source: "file", Changed: "2026-06-01T12:00:00Z", Path: "/orders"}}
		},
		Health: func() Health { return Health{Version: "v1", Commit: "c"} },
		MaxTTL: 24 * time.Hour,
		Now:    func() time.Time { return noon },
		Log:    zerolog.New(zerolog.SyncWriter(b.log)).Level(zerolog.ErrorLevel),
	}
	router := chi.NewRouter()
	router.Group(func(r chi.Router) { b.api.Routes(r) })
	b.handler = router
	return b
}

// specification returns the OpenAPI document, after validation.
var specification = func() func(t *testing.T) routers.Router {
	var once sync.Once
	var router routers.Router
	var err error
	return func(t *testing.T) routers.Router {
		t.Helper()
		once.Do(func() {
			var doc *openapi3.T
			if doc, err = openapi3.NewLoader().LoadFromData(document); err != nil {
				return
			}
			router, err = legacy.NewRouter(doc, openapi3.IsOpenAPI31OrLater())
		})
		if err != nil {
			t.Fatalf("openapi.json: %v", err)
		}
		return router
	}
}()

// response is a response that fits the OpenAPI document.
type response struct {
	*httptest.ResponseRecorder
	t *testing.T
}

// object decodes the body.
func (r response) object() map[string]any {
	r.t.Helper()
	var o map[string]any
	if err := json.Unmarshal(r.Body.Bytes(), &o); err != nil {
		r.t.Fatalf("the response %q: %v", r.Body.String(), err)
	}
	return o
}

// do sends a request as the client admin and checks that the response is one that
// the OpenAPI document tells. header holds names and values in turn; a body is
// JSON unless header says otherwise.
func (b *bench) do(method, path, body string, header ...string) response {
	b.t.Helper()
	request := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	x := &exchange.Exchange{Client: "admin", TokenID: "0000000000A", RequestID: "r1"}
	request = request.WithContext(exchange.NewContext(request.Context(), x))
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, request)
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		b.t.Errorf("%s %s: Cache-Control %q, want no-store", method, path, got)
	}
	b.conforms(method, path, body, request.Header, w)
	return response{w, b.t}
}

// conforms compares a response with the document, and the request, too, if it was
// answered with success.
func (b *bench) conforms(method, path, body string, header http.Header, w *httptest.ResponseRecorder) {
	b.t.Helper()
	if method == http.MethodHead {
		return // like GET, without the body
	}
	request := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
	request.Header = header
	route, params, err := b.spec.FindRoute(request)
	if err != nil {
		if w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
			b.t.Errorf("%s %s responds with %d and is not in the document: %v", method, path, w.Code, err)
		}
		return
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: route, Options: options}
	if w.Code < http.StatusBadRequest {
		if err := openapi3filter.ValidateRequest(b.t.Context(), input); err != nil {
			b.t.Errorf("%s %s %s gets %d, and the document refuses it: %v", method, path, body, w.Code, err)
		}
	}
	response := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: w.Code, Header: w.Header(),
		Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())), Options: options,
	}
	if err := openapi3filter.ValidateResponse(b.t.Context(), response); err != nil {
		b.t.Errorf("%s %s responds with %d %s, which is not in the document: %v", method, path, w.Code, w.Body.String(), err)
	}
}

// audit returns the audit lines since its last call.
func (b *bench) audit() []map[string]any {
	b.t.Helper()
	var lines []map[string]any
	for line := range bytes.Lines(b.log.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			b.t.Fatalf("audit line %q: %v", line, err)
		}
		lines = append(lines, fields)
	}
	b.log.Reset()
	return lines
}

// create creates a client and returns its entity tag and secret.
func (b *bench) create(id string) (tag, secret string) {
	b.t.Helper()
	got := b.do("POST", "/clients", `{"client_id":"`+id+`","scope":"a b"}`)
	if got.Code != http.StatusCreated {
		b.t.Fatalf("create %s: %d %s", id, got.Code, got.Body)
	}
	return got.Header().Get("ETag"), got.object()["client_secret"].(string)
}

// faults returns the pointers of the faults in a response.
func (r response) faults() []string {
	r.t.Helper()
	var body struct {
		Errors []problem.Fault `json:"errors"`
	}
	if err := json.Unmarshal(r.Body.Bytes(), &body); err != nil {
		r.t.Fatalf("the response %q: %v", r.Body.String(), err)
	}
	var pointers []string
	for _, f := range body.Errors {
		pointers = append(pointers, f.Pointer)
	}
	return pointers
}

// serveOnly sends a request and returns the status. It is safe for concurrent use.
func (b *bench) serveOnly(method, path, body string) int {
	request := httptest.NewRequest(method, Prefix+path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, request)
	return w.Code
}
