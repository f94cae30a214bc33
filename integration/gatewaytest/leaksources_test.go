package gatewaytest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"snowgate/tokens/redisstore"
	"snowgate/tokens/tokenstest"
	"snowgate/tokens/tokenstest/redistest"
)

// TestOwnClients: what tests read with clients of their own is searched, whether they read all of it or
// none.
func TestOwnClients(t *testing.T) {
	token := "sgt_0123456789A_" + strings.Repeat("abcdefghi", 6)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/token":
			_, _ = io.WriteString(w, `{"access_token":"`+token+`"}`)
		case "/header":
			w.Header().Set("X-Planted", token)
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "no "+token)
		}
	}))
	defer server.Close()
	s := newSecretTexts()
	client := &http.Client{Transport: inspecting{http.DefaultTransport, s}}
	for _, test := range []struct {
		path  string
		read  bool
		finds int
	}{{"/token", true, 0}, {"/body", true, 1}, {"/header", false, 1}} {
		response, err := client.Get(server.URL + test.path)
		if err != nil {
			t.Fatal(err)
		}
		if test.read {
			_, _ = io.Copy(io.Discard, response.Body)
		}
		response.Body.Close()
		if finds := s.take(); len(finds) != test.finds {
			t.Errorf("%s: found %q, want %d", test.path, finds, test.finds)
		}
	}
}

// TestEachValue: a secret is found in whatever Redis it lies.
func TestEachValue(t *testing.T) {
	for name, address := range map[string]func() string{
		"one server": func() string { return redistest.Start(t).URL() },
		"Sentinel": func() string {
			primary := redistest.Start(t)
			u, err := url.Parse(redistest.StartSentinel(t, "mymaster", primary).URL())
			if err != nil {
				t.Fatal(err)
			}
			u.Scheme = "redis+sentinel"
			u.RawQuery = url.Values{"master_name": {"mymaster"}, "password": {primary.Password()}}.Encode()
			return u.String()
		},
		"cluster": func() string { return redistest.StartCluster(t, 3).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			at := address()
			store, err := redisstore.Open(redisstore.Options{URL: at, Timeout: 5e9})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			s := newSecretTexts()
			planted := strings.Repeat("planted", 3)
			s.add("what was planted", planted)
			find := func() (found string) {
				err := eachValue(at, func(text string) { found += s.search("Redis", text) })
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			if err := store.Save(t.Context(), tokenstest.SampleRecord(1), 6e10); err != nil {
				t.Fatal(err)
			}
			if found := find(); found != "" {
				t.Errorf("before: %s", found)
			}
			if err := store.Client().HSet(t.Context(), "x", "y", planted).Err(); err != nil {
				t.Fatal(err)
			}
			if find() == "" {
				t.Error("what was planted is not found")
			}
		})
	}
}
