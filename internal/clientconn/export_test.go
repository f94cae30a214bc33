package clientconn

import "testing"

// Len returns how many connections rest.
func (r *Rest) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.resting)
}

// NeedsHabits skips a test of what is left out of a build with the tag snowgate_plainconn.
func NeedsHabits(t *testing.T) {
	t.Helper()
	if !knowsServer {
		t.Skip("this build does not rely on how net/http reads")
	}
}
