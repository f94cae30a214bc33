package problem_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"snowgate/internal/problem"
	"snowgate/internal/request/exchange"
	"snowgate/tokens"
)

// discard is a response writer that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header       { return d.header }
func (*discard) Write(b []byte) (int, error) { return len(b), nil }
func (*discard) WriteHeader(int)             {}

// BenchmarkWrite measures a refusal. An attack consists of refusals.
func BenchmarkWrite(b *testing.B) {
	for _, c := range []struct {
		name string
		err  error
	}{
		{"unknown token", tokens.ErrUnknown},
		{"unavailable", tokens.ErrUnavailable},
		{"bad request", problem.New(http.StatusBadRequest, "The method is malformed.", nil)},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/orders", nil)
			r = r.WithContext(exchange.NewContext(r.Context(), &exchange.Exchange{RequestID: "0123456789abcdef"}))
			w := &discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				problem.Write(w, r, c.err)
			}
		})
	}
}
