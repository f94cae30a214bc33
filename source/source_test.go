package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/source"
)

const tokenURL = "http://gateway.test/oauth2/token"

// server is a token endpoint and a service in one, without a network.
type server struct {
	mu      sync.Mutex
	issued  int
	asked   []url.Values
	secrets []string
	refused map[string]bool // tokens that the service refuses
	calls   []string        // the service's requests: token and body
	delay   time.Duration   // of the token endpoint
	life    int
	respond func(n int, secret string) *http.Response // nil, or nil returned: issue a token
	service func(r *http.Request) *http.Response      // nil, or nil returned: 200 or 401
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		read, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		body = string(read)
	}
	if r.URL.String() == tokenURL {
		return s.token(r, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.calls = append(s.calls, strings.TrimSpace(r.URL.Host+" "+token+" "+body))
	if s.service != nil {
		if response := s.service(r); response != nil {
			return response, nil
		}
	}
	if s.refused[token] {
		return reply(r, 401, `{}`, "WWW-Authenticate", `Bearer realm="snowgate", error="invalid_token"`), nil
	}
	return reply(r, 200, "fine"), nil
}

func (s *server) token(r *http.Request, body string) (*http.Response, error) {
	select {
	case <-time.After(s.delay):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	form, _ := url.ParseQuery(body)
	id, secret, _ := r.BasicAuth()
	s.asked, s.secrets = append(s.asked, form), append(s.secrets, id+":"+secret)
	if s.respond != nil {
		if response := s.respond(len(s.asked), secret); response != nil {
			response.Request = r
			return response, nil
		}
	}
	s.issued++
	life := s.life
	if life == 0 {
		life = 1000
	}
	return reply(r, 200, fmt.Sprintf(`{"access_token":"t%d","token_type":"bearer","expires_in":%d,"scope":"a b"}`, s.issued, life)), nil
}

func reply(r *http.Request, status int, body string, header ...string) *http.Response {
	response := &http.Response{StatusCode: status, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i < len(header); i += 2 {
		response.Header.Set(header[i], header[i+1])
	}
	return response
}

func open(t *testing.T, s *server, change ...func(*source.Config)) *source.Source {
	t.Helper()
	c := source.Config{TokenURL: tokenURL, ClientID: "orders worker", Secret: "s+1", Client: &http.Client{Transport: s}}
	for _, f := range change {
		f(&c)
	}
	src, err := source.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func get(t *testing.T, s *source.Source) string {
	t.Helper()
	token, err := s.Token(t.Context())
	if err != nil {
		t.Fatalf("Token: %v", err)
	}
	return token.Value()
}

func TestManyCallersShareOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: time.Second}
		src := open(t, s)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := src.Token(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first caller's deadline: %v", err)
		}
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				if token, err := src.Token(t.Context()); err != nil || token.Value() != "t1" {
					t.Errorf("Token = %q, %v; the first caller's end must not fail the others", token.Value(), err)
				}
			})
		}
		all.Wait()
		if s.issued != 1 {
			t.Errorf("%d fetches, want 1", s.issued)
		}
	})
}

func TestRenewsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		src := open(t, s)
		if got := get(t, src); got != "t1" {
			t.Fatal(got)
		}
		s.delay = 2 * time.Second
		time.Sleep(740 * time.Second) // of the bubble: at 74 % of 1000 s
		get(t, src)
		synctest.Wait()
		if s.issued != 1 {
			t.Error("renewed before 75 % of the lifetime")
		}
		time.Sleep(110 * time.Second) // at 85 %
		start := time.Now()
		if got := get(t, src); got != "t1" || time.Since(start) != 0 {
			t.Errorf("Token = %q after %v; want the present token at once", got, time.Since(start))
		}
		time.Sleep(3 * time.Second)
		if got := get(t, src); got != "t2" {
			t.Errorf("Token = %q after the renewal, want t2", got)
		}
	})
}

func TestRenewalFaultsKeepTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		src := open(t, s)
		get(t, src)
		s.respond = func(int, string) *http.Response { return reply(nil, 503, `{"error":"temporarily_unavailable"}`) }
		time.Sleep(900 * time.Second)
		for range 90 { // the remaining life of the token, but for the margin
			if got := get(t, src); got != "t1" {
				t.Fatalf("Token = %q while the gateway is away", got)
			}
			time.Sleep(time.Second)
		}
		if n := len(s.asked); n < 4 || n > 10 {
			t.Errorf("%d requests in 90 s without the gateway; want a few, ever further apart", n)
		}
		time.Sleep(6 * time.Second) // within the margin
		_, err := src.Token(t.Context())
		if refused, ok := errors.AsType[*source.Error](err); !ok || !refused.Temporary() {
			t.Errorf("Token at the end of the life: %v, want the server's temporary error", err)
		}
	})
}

func TestObeysRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for field, wait := range map[string]time.Duration{
			"120":         120 * time.Second,
			"date":        5 * time.Minute,
			"99999999999": time.Hour, // nobody is kept out for ever
		} {
			if field == "date" {
				field = time.Now().Add(wait).UTC().Format(http.TimeFormat)
			}
			s := &server{respond: func(n int, _ string) *http.Response {
				if n > 1 {
					return nil
				}
				return reply(nil, 429, `{"error":"temporarily_unavailable"}`, "Retry-After", field)
			}}
			src, start := open(t, s), time.Now()
			for time.Since(start) < wait-2*time.Second {
				if _, err := src.Token(t.Context()); err == nil {
					t.Fatalf("Retry-After %s: a token after %v", field, time.Since(start))
				}
				time.Sleep(time.Second)
			}
			if len(s.asked) != 1 {
				t.Errorf("Retry-After %s: %d requests before its end", field, len(s.asked))
			}
			time.Sleep(3 * time.Second)
			get(t, src)
		}
	})
}

func TestReadsFilesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "secret")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := &server{respond: func(_ int, secret string) *http.Response {
			if secret != "old" && secret != "new" {
				return reply(nil, 401, `{"error":"invalid_client"}`)
			}
			return nil
		}}
		src := open(t, s, func(c *source.Config) { c.Secret, c.SecretFile = "", path })
		if _, err := src.Token(t.Context()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("without the file: %v; want it named", err)
		}
		time.Sleep(time.Second)
		write("old\n")
		get(t, src)
		time.Sleep(1000 * time.Second)
		write("wrong")
		for range 5 {
			if _, err := src.Token(t.Context()); err == nil {
				t.Fatal("a token for a wrong secret")
			}
		}
		if len(s.asked) != 2 {
			t.Errorf("%d requests, want 2: a wrong secret is not tried again at once", len(s.asked))
		}
		write("new")
		get(t, src) // at once: the file is another one
	})
}

func TestAssertionAndParameters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwt")
	if err := os.WriteFile(path, []byte("header.claims.signature\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{}
	get(t, open(t, s, func(c *source.Config) {
		c.Secret, c.AssertionFile = "", path
		c.Scopes, c.Resources = []string{"a", "b"}, []string{"https://x", "https://y"}
	}))
	want := "client_assertion=header.claims.signature&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer" +
		"&client_id=orders+worker&grant_type=client_credentials&resource=https%3A%2F%2Fx&resource=https%3A%2F%2Fy&scope=a+b"
	if got := s.asked[0].Encode(); got != want || s.secrets[0] != ":" {
		t.Errorf("sent %s, credentials %q\nwant %s", got, s.secrets[0], want)
	}
	get(t, open(t, s))
	if s.secrets[1] != "orders+worker:s%2B1" {
		t.Errorf("basic credentials %q, want them form-encoded (RFC 6749 §2.3.1)", s.secrets[1])
	}
}

func TestTransportReplacesARefusedTokenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{refused: map[string]bool{"t1": true}, delay: time.Millisecond}
		src := open(t, s)
		client := &http.Client{Transport: src.Transport(s)}
		get(t, src)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				response, err := client.Post("http://orders.test/", "text/plain", strings.NewReader("body"))
				if err != nil || response.StatusCode != 200 {
					t.Errorf("%v, %v", response, err)
				}
			})
		}
		all.Wait()
		if s.issued != 2 {
			t.Errorf("%d tokens fetched, want 2: one in place of the refused one", s.issued)
		}
		if last := s.calls[len(s.calls)-1]; last != "orders.test t2 body" {
			t.Errorf("the last call was %q", last)
		}
		s.refused["t2"] = true // a service that refuses every token causes no stream of fetches
		for range 50 {
			if response, err := client.Get("http://orders.test/"); err != nil || response.StatusCode != 401 {
				t.Fatalf("%v, %v; want the service's 401", response, err)
			}
		}
		if s.issued != 2 {
			t.Errorf("%d tokens fetched within 10 s", s.issued)
		}
		time.Sleep(10 * time.Second)
		if response, err := client.Get("http://orders.test/"); err != nil || response.StatusCode != 200 || s.issued != 3 {
			t.Errorf("10 s later: %v, %v, %d tokens", response, err, s.issued)
		}
	})
}

func TestTransportKeepsTokensFromOthers(t *testing.T) {
	s := &server{service: func(r *http.Request) *http.Response {
		switch r.URL.String() {
		case "http://orders.test/away":
			return reply(r, 302, "", "Location", "http://evil.test/back")
		case "http://evil.test/back":
			return reply(r, 302, "", "Location", "http://orders.test/end")
		case "http://orders.test/near":
			return reply(r, 302, "", "Location", "/end")
		case "http://orders.test/own401":
			return reply(r, 401, "", "WWW-Authenticate", "Basic")
		}
		return nil
	}}
	src := open(t, s)
	client := &http.Client{Transport: src.Transport(s)}
	for _, path := range []string{"away", "near", "own401"} {
		request, _ := http.NewRequestWithContext(t.Context(), "GET", "http://orders.test/"+path, nil)
		if _, err := client.Do(request); err != nil {
			t.Fatal(err)
		}
		if request.Header.Get("Authorization") != "" {
			t.Error("the transport changed its request")
		}
	}
	want := "orders.test t1, evil.test, orders.test, orders.test t1, orders.test t1, orders.test t1"
	if got := strings.Join(s.calls, ", "); got != want {
		t.Errorf("calls: %s\nwant:  %s", got, want)
	}
	if s.issued != 1 {
		t.Error("a 401 that does not speak of the token dropped it")
	}
}

func TestOddResponses(t *testing.T) {
	for name, response := range map[string]func() *http.Response{
		"HTML":            func() *http.Response { return reply(nil, 200, "<html>") },
		"redirect":        func() *http.Response { return reply(nil, 307, "", "Location", "http://evil.test/") },
		"no token":        func() *http.Response { return reply(nil, 200, `{"token_type":"Bearer"}`) },
		"field injection": func() *http.Response { return reply(nil, 200, `{"access_token":"a\r\nb","token_type":"Bearer"}`) },
		"MAC token":       func() *http.Response { return reply(nil, 200, `{"access_token":"a","token_type":"mac"}`) },
		"ended": func() *http.Response {
			return reply(nil, 200, `{"access_token":"a","token_type":"Bearer","expires_in":0}`)
		},
		"not found": func() *http.Response { return reply(nil, 404, "no", "Content-Type", "text/plain") },
		"panic":     func() *http.Response { panic("s+1") },
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{respond: func(int, string) *http.Response { return response() }}
			_, err := open(t, s).Token(t.Context())
			if err == nil || strings.Contains(err.Error(), "s+1") || strings.Contains(err.Error(), "s%2B1") {
				t.Errorf("Token: %v; want an error without the secret", err)
			}
			if len(s.calls) != 0 {
				t.Error("the credentials were sent on")
			}
		})
	}
}

func TestTokensAreNotPrinted(t *testing.T) {
	token, err := open(t, &server{}).Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, token); !strings.Contains(text, "[redacted]") || strings.Contains(text, "t1") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

func TestNewNamesEveryFault(t *testing.T) {
	_, err := source.New(source.Config{TokenURL: "gateway/oauth2/token", Secret: "a", SecretFile: "b"})
	for _, want := range []string{"TokenURL", "ClientID", "exactly one of Secret"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v; want %q named", err, want)
		}
	}
}

func TestCachedTokenAllocatesNothing(t *testing.T) {
	src := open(t, &server{})
	get(t, src)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _, _ = src.Token(ctx) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
