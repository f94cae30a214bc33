package telemetry_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"snowgate/internal/telemetry"
)

const counted = "snowgate_http_requests_total"

// TestCountersOfGoneRoutes: the counters stay for as long as a scrape may take. A route that
// returns continues with them or starts anew.
func TestCountersOfGoneRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := telemetry.New("v", "c")
		shows := func(why, want string) {
			t.Helper()
			if got := scrape(t, m, counted); got != want {
				t.Errorf("%s: the page shows %q, want %q", why, got, want)
			}
		}
		const line = counted + `{method="GET",route="a",status="2xx"} %d` + "\n"
		m.Request("", "GET", 404, 0)
		const none = counted + `{method="GET",route="",status="4xx"} 1` + "\n"
		first := m.Route("a")
		first.Count("GET", 200, 0)
		time.Sleep(time.Hour)
		shows("in force", none+fmt.Sprintf(line, 1))
		m.RouteGone("a")
		time.Sleep(4 * time.Minute)
		shows("gone for a moment", none+fmt.Sprintf(line, 1))
		second := m.Route("a")
		second.Count("GET", 200, 0)
		time.Sleep(time.Hour)
		shows("back in time", none+fmt.Sprintf(line, 2))
		m.RouteGone("a")
		m.RouteGone("a")
		time.Sleep(5 * time.Minute)
		shows("gone for long", none)
		second.Count("GET", 200, 0) // a request that was under way all the time
		shows("a late request", none+fmt.Sprintf(line, 1))
		time.Sleep(5 * time.Minute)
		shows("its count is forgotten, too", none)
		m.Route("a").Count("GET", 200, 0)
		first.Count("GET", 200, 0)
		second.Count("GET", 200, 0)
		time.Sleep(time.Hour)
		shows("back later", none+fmt.Sprintf(line, 3))
	})
}

// TestManyRoutesComeAndGo: the memory for names that are used once is limited, however fast they
// come.
func TestManyRoutesComeAndGo(t *testing.T) {
	m := telemetry.New("v", "c")
	m.Route("stays").Count("GET", 200, 0)
	for i := range 10_000 {
		name := fmt.Sprint("name", i)
		m.Route(name).Count("GET", 200, 0)
		m.RouteGone(name)
	}
	page := scrape(t, m, counted)
	if got := strings.Count(page, "\n"); got > 257 || !strings.Contains(page, `"stays"`) || !strings.Contains(page, `"name9999"`) {
		t.Errorf("the page has %d routes, want the one in force and the last 256:\n%.500s", got, page)
	}
}

// TestManyRoutesGoUncounted: a route without requests leaves nothing behind.
func TestManyRoutesGoUncounted(t *testing.T) {
	m := telemetry.New("v", "c")
	for i := range 10_000 {
		m.Route(fmt.Sprint("name", i))
		m.RouteGone(fmt.Sprint("name", i))
	}
	if page := scrape(t, m, counted); page != "" {
		t.Errorf("the page shows %.500s", page)
	}
}
