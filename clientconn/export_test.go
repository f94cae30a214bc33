package clientconn

// Len returns how many connections rest.
func (r *Rest) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.resting)
}

// Ahead returns how many bytes are read before anything else.
func (c *Conn) Ahead() int {
	c.read.mu.Lock()
	defer c.read.mu.Unlock()
	return len(c.ahead)
}
