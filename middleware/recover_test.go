package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"snowgate/middleware"
)

// TestRecoverKeepsWhatHoldsForAny: fields about the connection and for the browser that were set
// before the handler ran are in the 500, too.
func TestRecoverKeepsWhatHoldsForAny(t *testing.T) {
	kept := []string{"X-Request-Id", "Connection", "Strict-Transport-Security", "Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}
	w := httptest.NewRecorder()
	for _, name := range kept {
		w.Header().Set(name, "close")
	}
	middleware.Recover()(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/half")
		panic("x")
	})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, name := range kept {
		if w.Header().Get(name) != "close" {
			t.Errorf("the response to a panic has lost %s", name)
		}
	}
	if w.Code != http.StatusInternalServerError || w.Header().Get("Location") != "" {
		t.Errorf("the response to a panic = %d %v", w.Code, w.Header())
	}
}

// TestRecoverClosesTheConnection: a handler in full duplex may leave a body half read. net/http
// panics if it reads the rest of the body together with the next request. HTTP/2 has streams
// instead.
func TestRecoverClosesTheConnection(t *testing.T) {
	for proto, want := range map[int]string{1: "close", 2: ""} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil)
		r.ProtoMajor = proto
		middleware.Recover()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault") })).ServeHTTP(w, r)
		if got := w.Header().Get("Connection"); got != want {
			t.Errorf("HTTP/%d: Connection: %q, want %q", proto, got, want)
		}
	}
}
