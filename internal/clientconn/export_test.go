package clientconn

// Len returns how many connections rest.
func (r *Rest) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.resting)
}
