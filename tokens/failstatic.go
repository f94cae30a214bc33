package tokens

import (
	"sync"
	"time"
)

// staticCalm is how long nothing may be served by fail-static before that counts
// as over: while one shard of many is down, answers of both kinds alternate.
const staticCalm = time.Second

// staticMode notices when tokens begin to be served by fail-static, and when
// that ends.
type staticMode struct {
	tell func(active bool)

	mu     sync.Mutex
	active bool
	last   time.Time // monotonic: the last use
}

// used notes that a token was served by fail-static.
func (m *staticMode) used() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = time.Now()
	if !m.active {
		m.active = true
		m.tell(true)
	}
}

// recovered notes that the store answered and that the rules are confirmed.
func (m *staticMode) recovered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active && time.Since(m.last) >= staticCalm {
		m.active = false
		m.tell(false)
	}
}
