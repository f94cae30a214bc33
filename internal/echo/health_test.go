package echo_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"snowgate/internal/echo"
)

func TestHealth(t *testing.T) {
	var health echo.Health
	for _, step := range []struct {
		set    func()
		status int
		body   string
	}{
		{func() {}, http.StatusOK, `{"healthy": true}`},
		{func() { health.Set(false) }, http.StatusServiceUnavailable, `{"healthy": false}`},
		{func() { health.Set(true) }, http.StatusOK, `{"healthy": true}`},
	} {
		step.set()
		response := httptest.NewRecorder()
		health.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
		if response.Code != step.status || response.Body.String() != step.body+"\n" {
			t.Errorf("health = %d %s, want %d %s", response.Code, response.Body, step.status, step.body)
		}
	}
}

// A connection that was kept carries one request more after the drain has begun,
// and is closed by the upstream only with the response to that.
func TestDrain(t *testing.T) {
	var drain echo.Drain
	server := httptest.NewServer(drain.Wrap(echo.Handler("orders")))
	defer server.Close()
	ask := func() *http.Response {
		t.Helper()
		response, err := server.Client().Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("GET = %s", response.Status)
		}
		return response
	}
	if ask().Close {
		t.Error("the connection is closed before the drain has begun")
	}
	drain.Begin()
	for range 2 {
		if !ask().Close {
			t.Error("the connection is kept although the drain has begun")
		}
	}
}
