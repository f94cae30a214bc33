package telemetry_test

import (
	"testing"
	"time"

	"snowgate/internal/telemetry"
)

// hotPath makes the counts of every request or every token.
func hotPath(t testing.TB) []struct {
	name  string
	count func()
} {
	t.Helper()
	m := telemetry.New("test", "test")
	limits := m.NewLimits()
	routes := []string{"orders", "billing"}
	route := m.Route("orders")
	i := 0
	return []struct {
		name  string
		count func()
	}{
		{"Request", func() {
			i++
			m.Request(routes[i%2], "GET", 200, time.Millisecond)
		}},
		{"Route", func() { route.Count("GET", 200, time.Millisecond) }},
		{"Validated", func() { m.Validated("ok") }},
		{"CacheLookup", func() { m.CacheLookup(true) }},
		{"TokenAge", func() { m.TokenAge(time.Minute) }},
		{"Issued", func() { m.Issued("ok") }},
		{"RedisCall", func() { m.RedisCall("set", time.Millisecond, "ok") }},
		{"Decided", func() { limits.Decided("client_rate", true) }},
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, test := range hotPath(t) {
		if allocs := testing.AllocsPerRun(500, test.count); allocs != 0 {
			t.Errorf("%s allocates %v times, want 0", test.name, allocs)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	for _, test := range hotPath(b) {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				test.count()
			}
		})
	}
}
