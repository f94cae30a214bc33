package handlers_test

import (
	"context"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/handlers"
	"snowgate/idgen"
	"snowgate/internal/problem"
	"snowgate/internal/scope"
	"snowgate/tokens"
)

// acceptor is a store that accepts every token and keeps none. It allocates nothing.
type acceptor struct{ tokens.Store }

func (acceptor) Save(context.Context, tokens.Record, time.Duration) error { return nil }

// nowhere is a ResponseWriter that allocates nothing.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
func (w *nowhere) Write(b []byte) (int, error) { return len(b), nil }

// issuing returns a function that makes one token request to the endpoint.
func issuing(t testing.TB) func() {
	t.Helper()
	secret, digest := clients.NewSecret()
	registry := clients.NewRegistry(time.Hour)
	err := registry.ReplaceFile([]clients.Client{{ID: "worker", Secrets: []clients.Secret{{ID: "s1", SHA256: digest}}, Scopes: scope.Of("orders.read", "orders.write")}})
	if err != nil {
		t.Fatal(err)
	}
	service := tokens.NewService(tokens.Config{
		Store: acceptor{}, Keys: tokens.FixedKeyring(tokens.Key{1}), IDs: new(counter),
		MintTime: func(idgen.ID) time.Time { return start }, Timeout: time.Minute,
	})
	t.Cleanup(service.Close)
	h := &handlers.OAuth{Clients: registry, Tokens: service, Now: time.Now}
	handler := problem.OAuthHandlerFunc(h.Token)

	var body strings.Reader
	r := basicRequest(handlers.TokenPath, "worker", secret.Reveal())
	r.Body = io.NopCloser(&body)
	w := &nowhere{header: make(http.Header)}
	return func() {
		clear(w.header)
		body.Reset("grant_type=client_credentials&scope=orders.read")
		handler.ServeHTTP(w, r)
		if w.status != http.StatusOK {
			t.Fatalf("status %d", w.status)
		}
	}
}

// The number of allocations of a token request from the form to the response, without the store and
// the listener. It must be exact, so a change that saves one updates it.
func TestAllocationsOfATokenRequest(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would empty the pools
	const want = 22
	once := issuing(t)
	once()
	if got := testing.AllocsPerRun(2000, once); got != want {
		t.Errorf("%v allocations, want %v", got, want)
	}
}

// BenchmarkToken measures a token request without the store and the middleware.
func BenchmarkToken(b *testing.B) {
	once := issuing(b)
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}
