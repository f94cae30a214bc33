package clientconn

import "testing"

// Len returns the number of parked connections.
func (r *Rest) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.resting)
}

// NeedsHabits skips a test of features that a build with the tag snowgate_plainconn lacks.
func NeedsHabits(t *testing.T) {
	t.Helper()
	if !knowsServer {
		t.Skip("this build does not rely on how net/http reads")
	}
}
