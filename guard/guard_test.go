package guard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/guard"
)

var (
	good  = "sgt_" + strings.Repeat("a", 11) + "_" + strings.Repeat("b", 54)
	other = "sgt_" + strings.Repeat("c", 11) + "_" + strings.Repeat("d", 54)
)

// gateway answers introspection requests without a network.
type gateway struct {
	mu     sync.Mutex
	asked  int
	delay  time.Duration
	answer func(token string) (status int, body string)
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	_ = r.ParseForm()
	_ = r.Body.Close()
	select {
	case <-time.After(g.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	status, body := g.answer(r.PostForm.Get("token"))
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r, Header: http.Header{}}, nil
}

// set replaces the response.
func (g *gateway) set(answer func(string) (int, string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

func active(life time.Duration) func(string) (int, string) {
	expiry := time.Now().Add(life).Unix()
	return func(string) (int, string) {
		return 200, fmt.Sprintf(`{"active":true,"scope":"orders.read x","client_id":"worker","jti":"id","exp":%d,"aud":["https://orders"]}`, expiry)
	}
}

func revoked(string) (int, string) { return 200, `{"active":false}` }

func away(string) (int, string) { return 503, `{"error":"temporarily_unavailable"}` }

func open(t testing.TB, gw *gateway, change ...func(*guard.Options)) *guard.Guard {
	t.Helper()
	o := guard.Options{Audience: "https://orders", Client: &http.Client{Transport: gw}}
	for _, f := range change {
		f(&o)
	}
	g, err := guard.New("https://gw.example", guard.Credentials{ID: "api", Secret: "s"}, o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestRevokedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gw := &gateway{answer: active(time.Hour)}
		g := open(t, gw)
		for range 100 {
			if id, err := g.Verify(t.Context(), good, "orders.read"); err != nil || id.Client != "worker" {
				t.Fatal(id, err)
			}
		}
		if gw.asked != 1 {
			t.Errorf("%d questions for 100 checks, want 1", gw.asked)
		}
		gw.set(revoked)
		time.Sleep(time.Second)
		if _, err := g.Verify(t.Context(), good); !errors.Is(err, guard.ErrInvalid) {
			t.Errorf("a second after the revocation: %v", err)
		}
	})
}

func TestNeverBehindTheEndOfAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := open(t, &gateway{answer: active(2 * time.Second)})
		time.Sleep(1500 * time.Millisecond) // so that the cache would last longer than the token
		if _, err := g.Verify(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if _, err := g.Verify(t.Context(), good); !errors.Is(err, guard.ErrInvalid) {
			t.Errorf("at the end of the token: %v", err)
		}
	})
}

func TestAFaultIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, answer := range map[string]func(string) (int, string){
			"away":       away,
			"own secret": func(string) (int, string) { return 401, `{"error":"invalid_client"}` },
			"no right":   func(string) (int, string) { return 403, `{}` },
			"HTML":       func(string) (int, string) { return 200, `<html>` },
			"no active":  func(string) (int, string) { return 200, `{}` },
			"redirect":   func(string) (int, string) { return 302, `` },
			"panic":      func(string) (int, string) { panic("s") },
		} {
			gw := &gateway{answer: answer}
			g := open(t, gw)
			_, err := g.Verify(t.Context(), good)
			if !errors.Is(err, guard.ErrUnavailable) || errors.Is(err, guard.ErrInvalid) {
				t.Errorf("%s: %v, want ErrUnavailable", name, err)
			}
			gw.set(active(time.Hour)) // the fault is not kept
			if _, err := g.Verify(t.Context(), good); err != nil {
				t.Errorf("%s, then well again: %v", name, err)
			}
		}
	})
}

func TestManyCallersShareOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gw := &gateway{answer: active(time.Hour), delay: 100 * time.Millisecond}
		g := open(t, gw)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.Verify(impatient, good); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first caller: %v", err)
		}
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if _, err := g.Verify(t.Context(), good); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if gw.asked != 1 {
			t.Errorf("%d questions, want 1", gw.asked)
		}
	})
}

func TestRequire(t *testing.T) {
	const realm, metadata = `Bearer realm="snowgate"`, `, resource_metadata="https://gw.example/.well-known/oauth-protected-resource"`
	for _, c := range []struct {
		why       string
		header    []string
		answer    func(string) (int, string)
		status    int
		challenge string
	}{
		{"good", []string{"bearer " + good}, active(time.Hour), 200, ""},
		{"no credentials", nil, nil, 401, realm + metadata},
		{"two lines", []string{"Bearer " + good, "Bearer " + good}, nil, 400, realm + `, error="invalid_request"` + metadata},
		{"a list", []string{"Bearer " + good + ", Bearer x"}, nil, 400, realm + `, error="invalid_request"` + metadata},
		{"another form, no question", []string{"Bearer garbage"}, nil, 401, realm + `, error="invalid_token"` + metadata},
		{"revoked", []string{"Bearer " + good}, revoked, 401, realm + `, error="invalid_token"` + metadata},
		{"scope", []string{"Bearer " + good}, func(string) (int, string) {
			return 200, `{"active":true,"exp":99999999999,"aud":"https://orders"}`
		}, 403, realm + `, error="insufficient_scope", scope="orders.read"` + metadata},
		{"audience", []string{"Bearer " + good}, func(string) (int, string) {
			return 200, `{"active":true,"exp":99999999999,"scope":"orders.read","aud":["https://billing"]}`
		}, 401, realm + `, error="invalid_token"` + metadata},
		{"away", []string{"Bearer " + good}, away, 503, ""},
	} {
		g := open(t, &gateway{answer: c.answer})
		handler := g.Require("orders.read")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if id := guard.FromContext(r.Context()); id == nil || id.Client != "worker" {
				t.Errorf("%s: identity %v", c.why, id)
			}
		}))
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header["Authorization"] = c.header
		handler.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("WWW-Authenticate") != c.challenge || (w.Header().Get("Retry-After") != "") != (c.status == 503) {
			t.Errorf("%s: %d %v", c.why, w.Code, w.Header())
		}
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	gw := &gateway{answer: active(time.Hour)}
	g := open(t, gw, func(o *guard.Options) { o.CacheSize = 2 })
	for _, token := range []string{good, other, good} {
		if _, err := g.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if gw.asked != 2 {
		t.Errorf("%d questions, want 2: two tokens fit", gw.asked)
	}
	for i := range 1000 {
		_, _ = g.Verify(t.Context(), fmt.Sprintf("sgt_%011d_%s", i, strings.Repeat("e", 54)))
	}
	if _, err := g.Verify(t.Context(), good); err != nil || gw.asked != 1003 {
		t.Errorf("%d questions, want 1003: the first tokens had to go; %v", gw.asked, err)
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := guard.New("gateway", guard.Credentials{}, guard.Options{CacheSize: -1})
	for _, want := range []string{"issuer", "credentials", "Audience", "CacheSize"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v; want %s named", err, want)
		}
	}
}

func TestCachedCheckAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still, so that the response stays fresh
		g := open(t, &gateway{answer: active(time.Hour)})
		ctx := t.Context()
		if _, err := g.Verify(ctx, good, "orders.read"); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = g.Verify(ctx, good, "orders.read") }); n != 0 {
			t.Errorf("%v allocations, want 0", n)
		}
	})
}

func BenchmarkCachedCheck(b *testing.B) {
	g := open(b, &gateway{answer: active(time.Hour)})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = g.Verify(b.Context(), good, "orders.read")
	}
}
