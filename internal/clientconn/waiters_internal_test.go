package clientconn

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitersAreLetGo: on an idle server there are no waiters, and the timer does not run.
func TestWaitersAreLetGo(t *testing.T) {
	NeedsHabits(t)
	synctest.Test(t, func(t *testing.T) {
		var w Waiters
		for i := range 10 {
			near, far := net.Pipe()
			conn := Wrap(near, &w)
			defer far.Close()
			defer conn.Close()
			ConnContext(t.Context(), conn)
			for range 3 { // the later ones while the timer runs
				_ = conn.SetReadDeadline(time.Time{})
				_, _ = conn.Read(make([]byte, 1))
			}
			if i%2 == 0 {
				_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
				_, _ = conn.Read(make([]byte, 10))
			}
		}
		state := func() (waiting int, runs bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.conns), w.runs
		}
		if waiting, runs := state(); waiting != 10 || !runs {
			t.Errorf("%d connections wait, the timer runs: %v, want 10, true", waiting, runs)
		}
		time.Sleep(2 * Glance)
		synctest.Wait()
		if waiting, runs := state(); waiting != 0 || runs {
			t.Errorf("%d connections wait, the timer runs: %v, want 0, false", waiting, runs)
		}
	})
}
