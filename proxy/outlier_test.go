package proxy_test

import (
	"net/http"
	"testing"
)

// TestOutlierReplica: one that answers 503 to everything while the other does well is taken out,
// but not before there are enough outcomes to tell.
func TestOutlierReplica(t *testing.T) {
	served := func(answer string) func(n int) int {
		bad := newUpstream(t, says(unavailableAnswer))
		good := newUpstream(t, says(answer))
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
	ask := served(okAnswer)
	if got := ask(98); got != 49 {
		t.Errorf("of 98 requests %d failed, want 49: too few to tell", got)
	}
	if got := ask(20); got > 2 {
		t.Errorf("of the next 20 requests %d failed, want the outlier out", got)
	}
	if got := served(unavailableAnswer)(150); got != 150 {
		t.Errorf("a fleet that fails answered 503 itself %d times of 150", got)
	}
}
