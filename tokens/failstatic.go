package tokens

import (
	"sync"
	"time"
)

// staticCalm is how long no token may be served stale before fail-static counts as over. While one
// shard of many is down, stale and fresh decisions alternate.
const staticCalm = time.Second

// staticMode calls tell when the first token is accepted by fail-static, and when fail-static is
// over.
type staticMode struct {
	tell func(active bool)

	mu     sync.Mutex
	active bool
	last   time.Time // monotonic: the last use
}

// used records that a token was accepted by fail-static.
func (m *staticMode) used() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = time.Now()
	if !m.active {
		m.active = true
		m.tell(true)
	}
}

// recovered records a decision by the store and by fresh rules.
func (m *staticMode) recovered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active && time.Since(m.last) >= staticCalm {
		m.active = false
		m.tell(false)
	}
}
