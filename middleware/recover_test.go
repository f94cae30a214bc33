package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"snowgate/middleware"
)

// TestRecoverKeepsWhatHoldsForAny: what was said about the connection and to the
// browser before the handler ran is said with the 500, too.
func TestRecoverKeepsWhatHoldsForAny(t *testing.T) {
	kept := []string{"X-Request-Id", "Connection", "Strict-Transport-Security", "Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}
	w := httptest.NewRecorder()
	for _, name := range kept {
		w.Header().Set(name, "x")
	}
	middleware.Recover()(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/half")
		panic("x")
	})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, name := range kept {
		if w.Header().Get(name) != "x" {
			t.Errorf("the answer to a panic has lost %s", name)
		}
	}
	if w.Code != http.StatusInternalServerError || w.Header().Get("Location") != "" {
		t.Errorf("the answer to a panic = %d %v", w.Code, w.Header())
	}
}
