package proxy_test

import (
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"snowgate/proxy/route"
	"snowgate/proxy/upstream"
)

// TestOutlierReplica: one that answers 503 to everything while the other does well is taken out,
// but not before there are enough outcomes to tell.
func TestOutlierReplica(t *testing.T) {
	served := func(response string) func(n int) int {
		bad := newUpstream(t, says(unavailableResponse))
		good := newUpstream(t, says(response))
		g := newGateway(t, gatewayOptions{now: newTestClock().time}, several(bad.url, good.url))
		return func(n int) (failed int) {
			for range n {
				if g.statuses(t, 1, get("/public", ""))[0] == http.StatusServiceUnavailable {
					failed++
				}
				for len(bad.requests)+len(good.requests) > 0 {
					select {
					case <-bad.requests:
					case <-good.requests:
					}
				}
			}
			return failed
		}
	}
	ask := served(okResponse)
	if got := ask(98); got != 49 {
		t.Errorf("of 98 requests %d failed, want 49: too few to tell", got)
	}
	if got := ask(20); got > 2 {
		t.Errorf("of the next 20 requests %d failed, want the outlier out", got)
	}
	if got := served(unavailableResponse)(150); got != 150 {
		t.Errorf("a fleet that fails answered 503 itself %d times of 150", got)
	}
}

// TestEjectionReasons: each way to be taken out is counted as what it is.
func TestEjectionReasons(t *testing.T) {
	slow := func(conn net.Conn, _ string) bool { _, _ = io.Copy(io.Discard, conn); return false }
	for reason, test := range map[string]struct {
		response script
		change   func(*route.Route)
		ask      int
	}{
		"connect":  {response: nil, ask: 20},
		"reset":    {response: func(net.Conn, string) bool { return false }, ask: 20},
		"protocol": {response: saysAndCloses("HTTP/1.1 two hundred\r\n\r\n"), ask: 20},
		"status":   {response: says(unavailableResponse), ask: 120},
		"timeout":  {response: slow, ask: 104, change: func(r *route.Route) { r.Timeout = 10 * time.Millisecond }},
		"check": {response: says(unavailableResponse), change: func(r *route.Route) {
			r.Health = &route.HealthCheck{Path: "/", Interval: time.Millisecond}
		}},
	} {
		t.Run(reason, func(t *testing.T) {
			bad, good := newUpstream(t, test.response), newUpstream(t, says(okResponse))
			if test.response == nil {
				bad.listener.Close()
			}
			route := several(bad.url, good.url)
			if test.change != nil {
				test.change(&route)
			}
			drain(t, bad, good)
			g := newGateway(t, gatewayOptions{now: newTestClock().time}, route)
			g.statuses(t, test.ask, get("/public", ""))
			eventually(t, "the replica is not taken out", func() bool {
				return slices.ContainsFunc(g.router.AllReplicas(), func(r upstream.ReplicaState) bool { return !r.Healthy })
			})
			for _, r := range g.router.AllReplicas() {
				for i, n := range r.Ejections {
					ejected := r.Upstream == bad.url.String() && upstream.EjectionReasons[i] == reason
					if want := truth(ejected); n != want {
						t.Errorf("%s was taken out %d times because of %s, want %d", r.Upstream, n, upstream.EjectionReasons[i], want)
					}
				}
			}
		})
	}
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// drain forgets what services are asked.
func drain(t *testing.T, us ...*testService) {
	t.Helper()
	for _, u := range us {
		go func() {
			for {
				select {
				case <-u.requests:
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
}
