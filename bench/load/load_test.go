package load_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snowgate/bench/load"
)

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func get(n int) []byte { return fmt.Appendf(nil, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", n) }

func TestCount(t *testing.T) {
	var asked atomic.Int64
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, r.URL.Path)
	})
	seen := map[int]string{}
	result, err := load.Run(t.Context(), load.Plan{
		Address: address, Connections: 7, Count: 1000, Length: time.Minute, Request: get,
		Answer: func(n, status int, body []byte) { seen[n] = string(body) },
	})
	if err != nil || result.Requests != 1000 || asked.Load() != 1000 {
		t.Errorf("Run = %d answers, %v; %d asked; want 1000", result.Requests, err, asked.Load())
	}
	for n := range 1000 {
		if want := fmt.Sprintf("/%d", n); seen[n] != want {
			t.Fatalf("answer %d is %q, want %q", n, seen[n], want)
		}
	}
}

// A server that stalls once is charged for every request that was due meanwhile:
// that is what a generator with coordinated omission leaves out.
func TestStallIsCharged(t *testing.T) {
	const stall = 300 * time.Millisecond
	var count atomic.Int64
	var stalled atomic.Int64
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if count.Add(1) == 500 {
			stalled.Store(time.Now().Add(stall).UnixNano())
		}
		if wait := time.Until(time.Unix(0, stalled.Load())); wait > 0 {
			time.Sleep(wait)
		}
		_, _ = io.WriteString(w, "ok")
	})
	result, err := load.Run(t.Context(), load.Plan{Address: address, Connections: 4, Rate: 1000, Length: time.Second, Request: get})
	if err != nil {
		t.Fatal(err)
	}
	if result.Requests < 990 || result.Requests > 1010 {
		t.Errorf("%d answers in a second at 1000/s", result.Requests)
	}
	// About 300 of 1000 requests were due in the stall, and waited for up to 300 ms. Without the
	// correction, only four waits would be counted: one for each connection.
	if p80 := time.Duration(result.Latency.ValueAtQuantile(80)); p80 < stall/6 {
		t.Errorf("the 80th percentile is %v; the stall of %v is not charged", p80, stall)
	}
}

func TestRefusalIsAnError(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
	_, err := load.Run(t.Context(), load.Plan{Address: address, Connections: 2, Length: time.Second, Request: get})
	if err == nil || !strings.Contains(err.Error(), "401 no") {
		t.Errorf("Run = %v, want the refusal", err)
	}
}
