package http1

import (
	"net/http"
	"testing"
)

// FuzzLook compares look with net/http.
func FuzzLook(f *testing.F) {
	for _, name := range []string{"", "Content-Type", "content-type", "ETag", "Etag", "X-1a", "-x", "X--Y", "a b", "é", "WWW-Authenticate", "x_y"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		token, canonical := look(name)
		if token != isToken(name) {
			t.Errorf("look(%q) takes it for a token: %v, want %v", name, token, !token)
		}
		if token && canonical != (http.CanonicalHeaderKey(name) == name) {
			t.Errorf("look(%q) takes it for canonical: %v, want %v", name, canonical, !canonical)
		}
	})
}
