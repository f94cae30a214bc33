package handlers_test

import (
	"encoding/base64"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"snowgate/clients"
	"snowgate/handlers"
)

// TestUnknownClientTakesAsLongAsAWrongSecret: response times must not reveal whether a client
// exists. The test measures both requests in pairs, in random order, so that disturbances affect
// both alike. It compares the median of the differences, which ignores outliers. The noise that
// remains is far below the tolerance. One of three experiments must pass.
func TestUnknownClientTakesAsLongAsAWrongSecret(t *testing.T) {
	s := newServer(t)
	wrong, _ := clients.NewSecret()
	for _, path := range []string{handlers.TokenPath, handlers.IntrospectPath, handlers.RevokePath} {
		for _, style := range []struct {
			name string
			make func(id, secret string) *http.Request
		}{
			{"basic", func(id, secret string) *http.Request { return basicRequest(path, id, secret) }},
			{"post", func(id, secret string) *http.Request { return postRequest(path, id, secret) }},
		} {
			t.Run(strings.TrimPrefix(path, "/oauth2/")+"/"+style.name, func(t *testing.T) {
				var difference, usual time.Duration
				for range 3 {
					difference, usual = s.compare(
						func() *http.Request { return style.make("worker", wrong.Reveal()) },
						func() *http.Request { return style.make("nobody", wrong.Reveal()) })
					if difference.Abs() < time.Microsecond+usual/10 {
						t.Logf("an unknown client takes %v longer than the %v of a wrong secret", difference, usual)
						return
					}
				}
				t.Errorf("an unknown client takes %v longer than the %v of a wrong secret", difference, usual)
			})
		}
	}
}

// compare sends both requests many times. It returns the median of how much longer b takes than a,
// and the median of a.
func (s *server) compare(a, b func() *http.Request) (difference, usual time.Duration) {
	const pairs = 1500
	differences := make([]time.Duration, 0, pairs)
	all := make([]time.Duration, 0, pairs)
	for i := range pairs + pairs/10 {
		var tookA, tookB time.Duration
		if rand.IntN(2) == 0 {
			tookA, tookB = s.took(a()), s.took(b())
		} else {
			tookB, tookA = s.took(b()), s.took(a())
		}
		if i >= pairs/10 { // the first pairs warm up
			differences, all = append(differences, tookB-tookA), append(all, tookA)
		}
	}
	return median(differences), median(all)
}

func (s *server) took(r *http.Request) time.Duration {
	w := httptest.NewRecorder()
	begin := time.Now()
	s.ServeHTTP(w, r)
	return time.Since(begin)
}

func median(values []time.Duration) time.Duration {
	slices.Sort(values)
	return values[len(values)/2]
}

func basicRequest(path, id, secret string) *http.Request {
	r := formRequest(path, "grant_type=client_credentials&token=x")
	r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(id+":"+secret)))
	return r
}

func postRequest(path, id, secret string) *http.Request {
	return formRequest(path, "grant_type=client_credentials&token=x&"+url.Values{"client_id": {id}, "client_secret": {secret}}.Encode())
}

func formRequest(path, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}
