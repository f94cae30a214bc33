package telemetry_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"snowgate/internal/telemetry"
)

// scrape returns the lines of /metrics that begin with prefix.
func scrape(t testing.TB, m *telemetry.Metrics, prefix string) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("/metrics = %d %s", w.Code, w.Body)
	}
	var lines strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, prefix) {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

func TestRequestsAreCountedByLabel(t *testing.T) {
	m := telemetry.New("v", "c")
	for _, r := range []struct {
		route, method string
		status        int
	}{
		{"orders", "GET", 200}, {"orders", "GET", 204}, {"orders", "GET", 404}, {"orders", "POST", 201}, {"orders", "TRACE", 405},
		{"orders", "BREW", 501}, {"orders", "get", 200}, {"orders", "", 99}, {"orders", "HEAD", 600}, {"", "GET", 101}, {`a"b`, "GET", 500},
	} {
		m.Request(r.route, r.method, r.status, time.Millisecond)
	}
	const name = "snowgate_http_requests_total"
	want := []string{
		`{method="GET",route="",status="1xx"} 1`,
		`{method="GET",route="a\"b",status="5xx"} 1`,
		`{method="GET",route="orders",status="2xx"} 2`,
		`{method="GET",route="orders",status="4xx"} 1`,
		`{method="HEAD",route="orders",status="other"} 1`,
		`{method="POST",route="orders",status="2xx"} 1`,
		`{method="TRACE",route="orders",status="4xx"} 1`,
		`{method="other",route="orders",status="2xx"} 1`,
		`{method="other",route="orders",status="5xx"} 1`,
		`{method="other",route="orders",status="other"} 1`,
	}
	if got := scrape(t, m, name); got != name+strings.Join(want, "\n"+name)+"\n" {
		t.Errorf("got\n%s", got)
	}
}

func TestDurationsAreCountedByBucket(t *testing.T) {
	m := telemetry.New("v", "c")
	for _, d := range []time.Duration{
		-time.Second, 0, 500 * time.Microsecond, 500*time.Microsecond + 1, // a bound belongs to its bucket
		time.Millisecond, 30 * time.Second, 30*time.Second + 1, time.Hour,
	} {
		m.Request("orders", "GET", 200, d)
	}
	const name = "snowgate_http_request_duration_seconds"
	got := scrape(t, m, name)
	for _, want := range []string{
		`_bucket{route="orders",le="0.0005"} 3`,
		`_bucket{route="orders",le="0.001"} 5`,
		`_bucket{route="orders",le="0.0025"} 5`,
		`_bucket{route="orders",le="10"} 5`,
		`_bucket{route="orders",le="30"} 6`,
		`_bucket{route="orders",le="+Inf"} 8`,
		`_sum{route="orders"} 3660.002`,
		`_count{route="orders"} 8`,
	} {
		if !strings.Contains(got, name+want+"\n") {
			t.Errorf("lacks %s:\n%s", want, got)
		}
	}
}

func TestRequestsAreCountedByManyAtOnce(t *testing.T) {
	m := telemetry.New("v", "c")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 1000 {
				m.Request("orders", "GET", 200, time.Second)
			}
		})
		group.Go(func() { scrape(t, m, "snowgate_http") })
	}
	group.Wait()
	for _, want := range []string{
		`snowgate_http_requests_total{method="GET",route="orders",status="2xx"} 8000`,
		`snowgate_http_request_duration_seconds_sum{route="orders"} 8000`,
	} {
		if got := scrape(t, m, "snowgate_http"); !strings.Contains(got, want+"\n") {
			t.Errorf("lacks %s:\n%s", want, got)
		}
	}
}

// TestRouteIsCountedInOnePlace: all counters of a route count together, those of the current table,
// of an earlier one, and those looked up by name.
func TestRouteIsCountedInOnePlace(t *testing.T) {
	m := telemetry.New("v", "c")
	before, after := m.Route("orders"), m.Route("orders")
	if got := scrape(t, m, "snowgate_http"); got != "" {
		t.Errorf("a route that was not asked shows\n%s", got)
	}
	for range 2 {
		before.Count("GET", 200, time.Millisecond)
		after.Count("GET", 200, 2*time.Second)
		m.Request("orders", "GET", 200, time.Millisecond)
	}
	m.Route("billing").Count("POST", 404, 0)
	const requests, count = "snowgate_http_requests_total", "snowgate_http_request_duration_seconds_count"
	want := requests + `{method="GET",route="orders",status="2xx"} 6` + "\n" + requests + `{method="POST",route="billing",status="4xx"} 1` + "\n" +
		count + `{route="billing"} 1` + "\n" + count + `{route="orders"} 6` + "\n"
	got := strings.SplitAfter(scrape(t, m, requests)+scrape(t, m, count), "\n")
	wanted := strings.SplitAfter(want, "\n")
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("got\n%s", got)
	}
}

// TestRoutesAreNotCountedBeforeTheyAreAsked: a route without requests has no metrics, as in a
// vector.
func TestRoutesAreNotCountedBeforeTheyAreAsked(t *testing.T) {
	if got := scrape(t, telemetry.New("v", "c"), "snowgate_http"); got != "" {
		t.Errorf("a new gateway shows\n%s", got)
	}
}

func TestMetricsAreNamedAsPrometheusHasIt(t *testing.T) {
	m := telemetry.New("v", "c")
	m.Request("orders", "GET", 200, time.Second)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	problems, err := promlint.New(w.Body).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func BenchmarkScrapeOfManyRoutes(b *testing.B) {
	m := telemetry.New("v", "c")
	for i := range 10_000 {
		m.Request("route"+strings.Repeat("x", i%7)+time.Duration(i).String(), "GET", 200, time.Millisecond)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	}
}
