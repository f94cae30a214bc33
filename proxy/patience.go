package proxy

import (
	"errors"
	"sync"
	"time"
)

// errTooSlow says that a service did not answer in time.
var errTooSlow = errors.New("proxy: no answer in time")

// patience is a timer for the wait for a service. It stands still while the
// gateway waits for the client instead.
type patience struct {
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer
	over  bool // the service has answered, or was given up
}

// newPatience calls give when limit has passed, at most once.
func newPatience(limit time.Duration, give func()) *patience {
	p := &patience{limit: limit}
	p.timer = time.AfterFunc(limit, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.over {
			p.over = true
			give()
		}
	})
	return p
}

// pause stops the clock until resume.
func (p *patience) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
}

// resume starts the clock anew, unless the wait is over.
func (p *patience) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.timer.Reset(p.limit)
	}
}

// end ends the wait. Nothing is called after it has returned.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.timer.Stop()
}
