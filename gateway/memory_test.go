package gateway

import (
	"runtime"
	"testing"
)

func TestRoomPercent(t *testing.T) {
	tests := []struct {
		living, scanned uint64
		want            int
		why             string
	}{
		{0, 0, 1600, "the least, before the first collection"},
		{4 << 20, 4 << 20, 400, "4 MiB live: the next collection is at 20 MiB"},
		{8 << 20, 8 << 20, 300, "it may quadruple"},
		{1 << 30, 1 << 30, 300, "never less than that"},
		{100 << 20, 4 << 20, 16, "96 MiB are not looked at: the next collection is at 116 MiB"},
		{100 << 20, 50 << 20, 150, "a half is looked at"},
		{8 << 30, 1 << 20, 1, "never none"},
	}
	for _, test := range tests {
		if got := roomPercent(test.living, test.scanned); got != test.want {
			t.Errorf("roomPercent(%d, %d) = %d, want %d: %s", test.living, test.scanned, got, test.want, test.why)
		}
	}
}

func TestAbout(t *testing.T) {
	for _, test := range []struct {
		a, b int
		want bool
	}{{400, 400, true}, {450, 400, true}, {350, 400, true}, {451, 400, false}, {349, 400, false}, {2, 1, false}, {1, 1, true}, {400, -1, false}} {
		if got := about(test.a, test.b); got != test.want {
			t.Errorf("about(%d, %d) = %t, want %t", test.a, test.b, got, test.want)
		}
	}
}

// The runtime must know the figures by these names; one that it does not know
// would be 0 for ever.
func TestGaugesAreKnown(t *testing.T) {
	runtime.GC() // some are taken by a collection
	now := gauges()
	for _, name := range []string{gcPercent, heapAll, heapScan, gcsStacks, gcsGlobals} {
		if now[name] == 0 {
			t.Errorf("%s = 0", name)
		}
	}
	for _, name := range []string{gcCycles, heapLive, heapFree} {
		if _, known := now[name]; !known {
			t.Errorf("%s is not known", name)
		}
	}
}

func TestSlack(t *testing.T) {
	for _, test := range []struct{ all, live, free, want uint64 }{
		{100, 40, 10, 70},
		{40, 100, 10, 10}, // more was alive than is there now
	} {
		if got := slack(map[string]uint64{heapAll: test.all, heapLive: test.live, heapFree: test.free}); got != test.want {
			t.Errorf("slack of %+v = %d, want %d", test, got, test.want)
		}
	}
}

// AfterCollection calls again and again, not once.
func TestAfterCollection(t *testing.T) {
	calls := make(chan struct{}, 1)
	afterCollection(func() {
		select {
		case calls <- struct{}{}:
		default:
		}
	})
	for range 3 {
		collectUntil(calls)
	}
}

// collectUntil collects garbage until something comes from c.
func collectUntil(c <-chan struct{}) {
	for {
		runtime.GC()
		select {
		case <-c:
			return
		default:
		}
	}
}
